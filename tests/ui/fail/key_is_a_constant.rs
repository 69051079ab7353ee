use distlock::{LockError, distributed_lock};

const KEY: &str = "order";

#[distributed_lock(key = KEY)]
async fn pay(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = concat!("order", ":<id>"))]
async fn ship(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
