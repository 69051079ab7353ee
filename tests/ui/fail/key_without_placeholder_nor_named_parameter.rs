use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order")]
async fn pay(_: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
