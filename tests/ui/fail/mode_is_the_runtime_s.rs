use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", mode = Mode::Read)]
async fn pay(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
