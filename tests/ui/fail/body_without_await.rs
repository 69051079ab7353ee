use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>")]
async fn pay(id: u64) -> Result<u64, LockError> {
    let total: u64 = std::future::ready(id);
    Ok(total)
}

fn main() {}
