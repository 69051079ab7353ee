use std::rc::Rc;

use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>")]
async fn pay(id: u64) -> Result<Rc<u64>, LockError> {
    Ok(Rc::new(id))
}

fn spawn<T: Send>(_: T) {}

fn spawned() {
    spawn(pay(1));
}

fn main() {}
