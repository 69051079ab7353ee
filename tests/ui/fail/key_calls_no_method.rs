use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:<name.tirm()>")]
async fn pay(name: &str) -> Result<usize, LockError> {
    Ok(name.len())
}

fn main() {}
