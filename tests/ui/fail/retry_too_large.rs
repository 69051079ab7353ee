use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", retry = 5_000_000_000)]
async fn pay(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {}
