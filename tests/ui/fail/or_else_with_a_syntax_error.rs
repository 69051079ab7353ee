use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", or_else = |_| f(3 4), wait = 7)]
async fn pay(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    let _ = pay(1);
}
