use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:<idd>", ttl = "30s")]
#[distributed_lock(key = "order:<id>", timeout = "30s")]
async fn pay(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    let _ = pay(1);
}
