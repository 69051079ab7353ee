use distlock::{LockError, distributed_lock};

const PREFIX: &str = "order";

#[distributed_lock(key = "{PREFIX}:{0}")]
async fn pay(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
