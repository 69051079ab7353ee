use distlock::{LockError, distributed_lock};

#[distributed_lock(key = dbg!("order:{id}"))]
async fn pay(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    let _ = pay(1);
}
