use std::rc::Rc;

use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>")]
async fn pay(id: u64) -> Result<u64, LockError> {
    let shared = Rc::new(id);
    std::future::ready(()).await;
    Ok(*shared)
}

fn spawn<T: Send>(_: T) {}

fn spawned() {
    spawn(pay(1));
}

fn main() {}
