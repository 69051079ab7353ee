use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:<name>")]
async fn pay(name: String) -> Result<usize, LockError> {
    drop(name);
    Ok(name.len())
}

fn main() {}
