use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", lease = lease)]
#[distributed_lock(key = "user:<user>", lease = lease)]
async fn pay(id: u64, user: u64) -> Result<u64, LockError> {
    lease.ensure_held()?;
    Ok(id + user)
}

fn main() {
    let _ = pay(1, 2);
}
