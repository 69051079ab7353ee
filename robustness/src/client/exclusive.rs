//! Annotated functions that hold their locks alone, and one by hand.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{LockError, distributed_lock};
use harness::holders::Kind;

use super::TTL;
use super::bodies::{Work, Worker};

/// The longest time that a body of [`bounded`] runs.
pub(super) const BOUND: Duration = Duration::from_millis(900);

#[distributed_lock(
    key = "x:<key>", ttl = TTL, retry = 20, backoff = "5ms..60ms", lease = lease, fencing_token = _token,
    manager = worker.locks.clone()
)]
pub(super) async fn tried(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Exclusive, &[&format!("x:{key}")], &lease, work).await
}

#[distributed_lock(
    key = "x:<key>", ttl = TTL, wait = "3s", lease = lease, fencing_token = _token, manager = worker.locks.clone()
)]
pub(super) async fn waited(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Exclusive, &[&format!("x:{key}")], &lease, work).await
}

/// The first lock passes on to what is nested in it, and is still there after that.
#[distributed_lock(
    key = "x:<key>", ttl = TTL, retry = 10, lease = lease, fencing_token = _token, manager = worker.locks.clone()
)]
pub(super) async fn nested(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    let name = format!("x:{key}");
    worker.work(Kind::Exclusive, &[&name], &lease, Work { steps: 2, ..work }).await?;
    tried(worker, key, work).await?;
    lease.ensure_held()?;
    worker.work(Kind::Exclusive, &[&name], &lease, Work { steps: 10, ..work }).await?;
    lease.ensure_held()
}

/// Two that pass under the first lock at the same time: they take turns.
#[distributed_lock(
    key = "x:<key>", ttl = TTL, wait = "3s", lease = lease, fencing_token = _token, manager = worker.locks.clone()
)]
pub(super) async fn siblings(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    // Their writes would be asked for under one name.
    let work = Work { writes: false, ..work };
    worker.work(Kind::Exclusive, &[&format!("x:{key}")], &lease, Work { steps: 2, ..work }).await?;
    let (one, other) = tokio::join!(waited(worker, key, work), waited(worker, key, work));
    one.and(other)
}

/// A call that may not pass under another is refused at once.
#[distributed_lock(
    key = "x:<key>", ttl = TTL, wait = "3s", lease = lease, fencing_token = _token, manager = worker.locks.clone()
)]
pub(super) async fn barred(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    let inner = proud(worker, key).await;
    if !matches!(inner, Err(LockError::WouldDeadlock { .. } | LockError::Lost { .. })) {
        worker.complain(&format!("seen a call that is not reentrant end as {inner:?} under its own lock"));
    }
    worker.work(Kind::Exclusive, &[&format!("x:{key}")], &lease, work).await
}

#[distributed_lock(key = "x:<key>", ttl = TTL, wait = "3s", reentrant = false, manager = worker.locks.clone())]
async fn proud(worker: &Worker, key: u32) -> Result<(), LockError> {
    Ok(())
}

/// The body runs on after a loss, and then does nothing that needs the lock. Says whether it has come to its end.
#[distributed_lock(
    key = "x:<key>", ttl = TTL, wait = "3s", on_lost = finish, lease = lease, fencing_token = _token,
    manager = worker.locks.clone()
)]
pub(super) async fn finished(worker: &Worker, key: u32, work: Work, ended: &AtomicBool) -> Result<(), LockError> {
    let held = worker.work(Kind::Exclusive, &[&format!("x:{key}")], &lease, Work { looks: true, ..work }).await;
    if held.is_err() {
        // It is stopped here, if it is stopped at all.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ended.store(true, Ordering::Relaxed);
    Ok(())
}

/// However long its lease is renewed, the body is stopped after this time.
#[distributed_lock(
    key = "x:<key>", ttl = TTL, wait = "3s", max_hold = BOUND, lease = lease, fencing_token = _token,
    manager = worker.locks.clone()
)]
pub(super) async fn bounded(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Exclusive, &[&format!("x:{key}")], &lease, work).await
}

/// Nobody renews the lease: the body has to end within it.
#[distributed_lock(
    key = "x:<key>", ttl = TTL, wait = "3s", watchdog = false, lease = lease, fencing_token = _token,
    manager = worker.locks.clone()
)]
pub(super) async fn unwatched(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Exclusive, &[&format!("x:{key}")], &lease, work).await
}

#[distributed_lock(
    keys = ["x:<one>", "x:<other>"], ttl = TTL, wait = "3s", lease = lease, fencing_token = _token,
    manager = worker.locks.clone()
)]
pub(super) async fn both_waited(worker: &Worker, one: u32, other: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Exclusive, &[&format!("x:{one}"), &format!("x:{other}")], &lease, work).await
}

#[distributed_lock(
    keys = ["x:<one>", "x:<other>"], ttl = TTL, retry = 20, lease = lease, fencing_token = _token,
    manager = worker.locks.clone()
)]
pub(super) async fn both_tried(worker: &Worker, one: u32, other: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Exclusive, &[&format!("x:{one}"), &format!("x:{other}")], &lease, work).await
}

/// By hand: the guard is released, or dropped. Nobody stops what runs beside a guard, so that it looks at its lease before each step.
pub(super) async fn guarded(worker: &Worker, key: u32, work: Work, releases: bool) -> Result<(), LockError> {
    let guard = worker.locks.lock(format!("x:{key}")).ttl(TTL).wait(Duration::from_secs(2)).acquire().await?;
    let lease = guard.lease().clone();
    worker.work(Kind::Exclusive, &[&format!("x:{key}")], &lease, Work { looks: true, ..work }).await?;
    if releases { guard.release().await } else { Ok(()) }
}
