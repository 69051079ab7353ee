use std::future::{Ready, ready};

use distlock::{LockError, distributed_lock};

type ReadyFuture<T> = Ready<Result<T, LockError>>;

#[distributed_lock(key = "order:<id>")]
fn pay(id: u64) -> ReadyFuture<u64> {
    ready(Ok(id))
}

fn main() {
    let _ = pay(1);
}
