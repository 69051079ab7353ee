use distlock::{LockError, distributed_lock};

#[distributed_lock(key = if express { "express:<id>" } else { "slow:<id>" })]
async fn pay(id: u64, express: bool) -> Result<u64, LockError> {
    Ok(id + u64::from(express))
}

fn main() {
    let _ = pay(1, true);
}
