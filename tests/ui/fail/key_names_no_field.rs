use distlock::{LockError, distributed_lock};

struct Order {
    id: u64,
}

// The compiler must not offer to write `id` in place of the whole template.
#[distributed_lock(key = "order:<order.idd>")]
async fn pay(order: Order) -> Result<u64, LockError> {
    Ok(order.id)
}

fn main() {}
