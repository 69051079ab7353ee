//! Annotated functions that share their locks, and those that exclude them.

use distlock::{LockError, distributed_lock};
use harness::holders::Kind;

use super::TTL;
use super::bodies::{Work, Worker};
use super::calls::PERMITS;

#[distributed_lock(key = "rw:<key>", ttl = TTL, mode = read, wait = "3s", lease = lease, manager = worker.locks.clone())]
pub(super) async fn read_waited(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Reader, &[&format!("rw:{key}")], &lease, work).await
}

#[distributed_lock(
    key = "rw:<key>", ttl = TTL, mode = read, retry = 30, backoff = "5ms..60ms", lease = lease,
    manager = worker.locks.clone()
)]
pub(super) async fn read_tried(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Reader, &[&format!("rw:{key}")], &lease, work).await
}

#[distributed_lock(
    keys = ["rw:<one>", "rw:<other>"], ttl = TTL, mode = read, wait = "3s", lease = lease, manager = worker.locks.clone()
)]
pub(super) async fn both_read(worker: &Worker, one: u32, other: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Reader, &[&format!("rw:{one}"), &format!("rw:{other}")], &lease, work).await
}

#[distributed_lock(
    key = "rw:<key>", ttl = TTL, mode = write, retry = 40, backoff = "5ms..60ms", lease = lease, fencing_token = _token,
    manager = worker.locks.clone()
)]
pub(super) async fn write_tried(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Exclusive, &[&format!("rw:{key}")], &lease, work).await
}

#[distributed_lock(
    key = "rw:<key>", ttl = TTL, mode = write, wait = "3s", lease = lease, fencing_token = _token,
    manager = worker.locks.clone()
)]
pub(super) async fn write_waited(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Exclusive, &[&format!("rw:{key}")], &lease, work).await
}

/// The lock passes on to a reader that is nested in it, and is still there alone after that.
#[distributed_lock(
    key = "rw:<key>", ttl = TTL, mode = write, wait = "3s", lease = lease, fencing_token = _token,
    manager = worker.locks.clone()
)]
pub(super) async fn write_nested(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    let name = format!("rw:{key}");
    worker.work(Kind::Exclusive, &[&name], &lease, Work { steps: 2, ..work }).await?;
    read_waited(worker, key, work).await?;
    lease.ensure_held()?;
    worker.work(Kind::Exclusive, &[&name], &lease, Work { steps: 10, ..work }).await
}

/// It has no patience, so that it is refused where all permits are given.
#[distributed_lock(
    key = "p:<key>", ttl = TTL, permits = PERMITS, retry = 2, backoff = "5ms..20ms", lease = lease,
    manager = worker.locks.clone()
)]
pub(super) async fn permit_tried(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Permits(PERMITS as usize), &[&format!("p:{key}")], &lease, work).await
}

#[distributed_lock(
    key = "p:<key>", ttl = TTL, permits = PERMITS, wait = "3s", lease = lease, manager = worker.locks.clone()
)]
pub(super) async fn permit_waited(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Permits(PERMITS as usize), &[&format!("p:{key}")], &lease, work).await
}

/// The permit passes on to a call that is nested in it, and is still there after that.
#[distributed_lock(
    key = "p:<key>", ttl = TTL, permits = PERMITS, wait = "3s", lease = lease, manager = worker.locks.clone()
)]
pub(super) async fn permit_nested(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    let (kind, name) = (Kind::Permits(PERMITS as usize), format!("p:{key}"));
    worker.work(kind, &[&name], &lease, Work { steps: 2, ..work }).await?;
    permit_tried(worker, key, work).await?;
    lease.ensure_held()?;
    worker.work(kind, &[&name], &lease, Work { steps: 10, ..work }).await
}
