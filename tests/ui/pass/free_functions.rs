#![deny(warnings)]
#![forbid(unsafe_code)]

use std::fmt;
use std::time::Duration;

use distlock::{Backoff, LockError, LockManager, distributed_lock};

#[derive(Debug)]
enum Failure {
    Lock,
    Parse,
}

impl From<LockError> for Failure {
    fn from(_: LockError) -> Self {
        Self::Lock
    }
}

impl From<std::num::ParseIntError> for Failure {
    fn from(_: std::num::ParseIntError) -> Self {
        Self::Parse
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

const TTL: Duration = Duration::from_secs(30);

#[distributed_lock(key = "order:<id>", ttl = "30s", retry = 3)]
async fn all_literals(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(
    key = "order:<id>",
    ttl = "1m 30s",
    retry = 1_000,
    backoff = "50ms..1.5s",
    watchdog = true,
    max_hold = "2h",
    on_lost = finish,
    crate = distlock
)]
async fn every_literal(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = key, ttl = TTL, retry = tries + 1, backoff = Backoff::default(), watchdog = tries > 1, manager = locks)]
async fn all_expressions(locks: &LockManager, key: &str, tries: u32) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = format!("order:{id}"))]
async fn formatted(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "nightly", global, or_else = |error| Err(error.to_string()))]
async fn global(report: String) -> Result<usize, String> {
    Ok(report.len())
}

#[distributed_lock(key = "nightly", or_else = drop)]
async fn nothing_returned() {}

#[distributed_lock(key = "question:<text>")]
async fn question_marks(text: &str) -> Result<u64, Failure> {
    if text.is_empty() {
        return Ok(0);
    }
    Ok(text.parse::<u64>()?)
}

#[distributed_lock(key = "coerced:<first>")]
async fn coercions(first: bool) -> Result<Box<dyn Fn() -> u8 + Send>, LockError> {
    if first {
        return Ok(Box::new(|| 1));
    }
    Ok(Box::new(|| 2))
}

#[distributed_lock(key = "into:<id>", or_else = |_| Default::default())]
async fn inference(id: u8) -> Vec<String> {
    [id].iter().map(|id| id.to_string()).collect()
}

#[distributed_lock(key = "lease:<id>", lease = held)]
async fn lease(id: u64) -> Result<(), LockError> {
    let held = held.clone();
    held.ensure_held()
}

#[distributed_lock(key = "outer:<id>")]
#[distributed_lock(key = "inner:<id>")]
async fn twice(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "recursive:<depth>")]
async fn recursive(depth: u64) -> Result<u64, LockError> {
    match depth {
        0 => Ok(0),
        depth => Box::pin(recursive(depth - 1)).await,
    }
}

#[distributed_lock(key = "forever:<id>")]
async fn forever(id: u64) -> Result<(), LockError> {
    loop {
        std::hint::black_box(id);
    }
}

#[distributed_lock(key = "todo:<id>")]
async fn unwritten(id: u64) -> Result<Vec<u8>, LockError> {
    #![allow(clippy::todo)]
    todo!("{id}")
}

fn send<T: Send>(_: T) {}

fn main() {
    send(all_literals(1));
    send(every_literal(1));
    send(all_expressions(&LockManager::in_memory(), "", 1));
    send(formatted(1));
    send(global(String::new()));
    send(nothing_returned());
    send(question_marks(""));
    send(coercions(true));
    send(inference(1));
    send(lease(1));
    send(twice(1));
    send(recursive(1));
    send(forever(1));
    send(unwritten(1));
}
