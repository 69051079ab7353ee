use distlock::{LockError, distributed_lock};

#[distributed_lock(ttl = "30s")]
async fn pay(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {}
