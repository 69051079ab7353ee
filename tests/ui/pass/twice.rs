//! Two locks on one function: the upper one is the outer one, and both bind what they are told to.
#![deny(warnings)]
#![forbid(unsafe_code)]

use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "from:<from>", ttl = "30s", lease = first)]
#[must_use]
#[distlock::distributed_lock(key = "to:<to>", retry = 3, lease = second)]
async fn transfer((from, to): (u64, u64), mut amount: u64, _: String) -> Result<Box<dyn Fn() -> u64 + Send>, LockError> {
    amount += 1;
    first.ensure_held()?;
    second.ensure_held()?;
    if amount == 0 {
        return Ok(Box::new(|| 0));
    }
    Ok(Box::new(move || amount))
}

struct Shop(u64);

impl Shop {
    #[distributed_lock(key = "a:<self.0>", or_else = |_| 0)]
    #[distributed_lock(key = "b:<id>:<self.0>", or_else = |_| id)]
    #[distributed_lock(key = "c:<id>", or_else = |_| 0)]
    async fn thrice(&mut self, id: u64) -> u64 {
        self.0 += id;
        self.0
    }
}

fn send<T: Send>(_: T) {}

fn main() {
    send(transfer((1, 2), 3, String::new()));
    send(Shop(1).thrice(2));
}
