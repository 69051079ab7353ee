use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:{type}")]
async fn pay(r#type: u64) -> Result<u64, LockError> {
    Ok(r#type)
}

fn main() {
    let _ = pay(1);
}
