use std::future::Future;

use distlock::{LockError, distributed_lock};

struct Options {
    lease: u64,
}

#[distributed_lock(key = "order:<id>", lease = lease)]
fn pay(id: u64) -> impl Future<Output = Result<u64, LockError>> {
    async move { Ok(Options { lease: 3 }.lease + id) }
}

fn main() {}
