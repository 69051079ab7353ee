use distlock::{LockError, distributed_lock};

#[distributed_lock(key = Order)]
async fn pay() -> Result<(), LockError> {
    Ok(())
}

struct Order;

fn main() {}
