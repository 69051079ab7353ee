use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:<lines>")]
async fn pay(lines: Vec<u8>) -> Result<usize, LockError> {
    Ok(lines.len())
}

fn main() {}
