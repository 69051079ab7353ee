use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:<idd>:{}", timeout = "30s", retry = -1, backoff = "1s", wait = "5s")]
async fn pay(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {}
