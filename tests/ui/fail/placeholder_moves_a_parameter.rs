use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{name.into_bytes().len()}")]
async fn pay(name: String) -> Result<String, LockError> {
    Ok(name)
}

fn main() {}
