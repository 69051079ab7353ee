use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", on_lost = canel)]
async fn pay(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {}
