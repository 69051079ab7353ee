use distlock::{Lease, LockError, distributed_lock};

async fn work(lease: Lease) -> Result<(), LockError> {
    lease.ensure_held()
}

#[distributed_lock(key = "order:<id>", lease = lease)]
fn pay(id: u64) -> impl Future<Output = Result<(), LockError>> {
    work(lease)
}

fn main() {}
