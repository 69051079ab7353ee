//! The calls: annotated functions of all kinds, and some by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{LockError, distributed_lock};
use fastrand::Rng;
use harness::holders::{Kind, NotingPolls};

use super::TTL;
use super::bodies::{Work, Worker};

/// How many may hold one of the locks with permits.
const PERMITS: u32 = 3;
/// How many keys there are of each kind.
pub(crate) const KEYS: u32 = 5;

#[distributed_lock(
    key = "x:<key>", ttl = TTL, retry = 20, backoff = "5ms..60ms", lease = lease, fencing_token = _token,
    manager = worker.locks.clone()
)]
async fn tried(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Exclusive, &[&format!("x:{key}")], &lease, work).await
}

#[distributed_lock(
    key = "x:<key>", ttl = TTL, wait = "3s", lease = lease, fencing_token = _token, manager = worker.locks.clone()
)]
async fn waited(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Exclusive, &[&format!("x:{key}")], &lease, work).await
}

/// The first lock passes on to what is nested in it.
#[distributed_lock(
    key = "x:<key>", ttl = TTL, retry = 10, lease = lease, fencing_token = _token, manager = worker.locks.clone()
)]
async fn nested(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Exclusive, &[&format!("x:{key}")], &lease, Work { steps: 2, ..work }).await?;
    tried(worker, key, work).await
}

#[distributed_lock(
    keys = ["x:<one>", "x:<other>"], ttl = TTL, wait = "3s", lease = lease, fencing_token = _token,
    manager = worker.locks.clone()
)]
async fn both_waited(worker: &Worker, one: u32, other: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Exclusive, &[&format!("x:{one}"), &format!("x:{other}")], &lease, work).await
}

#[distributed_lock(
    keys = ["x:<one>", "x:<other>"], ttl = TTL, retry = 20, lease = lease, fencing_token = _token,
    manager = worker.locks.clone()
)]
async fn both_tried(worker: &Worker, one: u32, other: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Exclusive, &[&format!("x:{one}"), &format!("x:{other}")], &lease, work).await
}

#[distributed_lock(key = "rw:<key>", ttl = TTL, mode = read, wait = "3s", lease = lease, manager = worker.locks.clone())]
async fn read(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Reader, &[&format!("rw:{key}")], &lease, work).await
}

#[distributed_lock(
    key = "rw:<key>", ttl = TTL, mode = write, retry = 40, backoff = "5ms..60ms", lease = lease, fencing_token = _token,
    manager = worker.locks.clone()
)]
async fn write(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Exclusive, &[&format!("rw:{key}")], &lease, work).await
}

#[distributed_lock(key = "p:<key>", ttl = TTL, permits = 3, retry = 20, lease = lease, manager = worker.locks.clone())]
async fn permitted(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    worker.work(Kind::Permits(PERMITS as usize), &[&format!("p:{key}")], &lease, work).await
}

/// By hand: the guard is released, or dropped. Nobody stops what runs beside a guard, so that it looks at its lease before each step.
async fn guarded(worker: &Worker, key: u32, work: Work, releases: bool) -> Result<(), LockError> {
    let guard = worker.locks.lock(format!("x:{key}")).ttl(TTL).wait(Duration::from_secs(2)).acquire().await?;
    let lease = guard.lease().clone();
    worker.work(Kind::Exclusive, &[&format!("x:{key}")], &lease, Work { looks: true, ..work }).await?;
    if releases { guard.release().await } else { Ok(()) }
}

/// What a task calls next.
#[derive(Clone, Copy, Debug)]
enum Call {
    Tried,
    Waited,
    Nested,
    BothWaited,
    BothTried,
    Guarded,
    Read,
    Write,
    Permitted,
}

const ALL: [Call; 9] = [
    Call::Tried,
    Call::Waited,
    Call::Nested,
    Call::BothWaited,
    Call::BothTried,
    Call::Guarded,
    Call::Read,
    Call::Write,
    Call::Permitted,
];
/// The first so many are what a body that takes its time is called by, and the first so many are exclusive.
const PATIENT: usize = 2;
const EXCLUSIVE: usize = 6;

/// Calls one function after the other, until it is to stop. One task of each client holds its locks for long, so that there is hardly
/// a fault without a lease to end.
pub(super) async fn call_on(
    worker: Worker,
    mut random: Rng,
    takes_its_time: bool,
    only_exclusive: bool,
    stopping: Arc<AtomicBool>,
) {
    while !stopping.load(Ordering::Relaxed) {
        let kinds = match (takes_its_time, only_exclusive) {
            (true, _) => &ALL[..PATIENT],
            (_, true) => &ALL[..EXCLUSIVE],
            _ => &ALL[..],
        };
        let call = kinds[random.usize(..kinds.len())];
        // Of 3 ms each. Some bodies outlast a ttl or two: their leases have to be renewed, or to end.
        let steps = if takes_its_time || random.u8(..8) == 0 { random.u32(300..1_000) } else { random.u32(2..40) };
        let work = Work { steps, writes: random.bool(), looks: false };
        let (key, other) = (random.u32(..KEYS), random.u32(..KEYS - 1));
        let other = if other >= key { other + 1 } else { other };
        worker.journal.note(&worker.name, &format!("call {call:?} {key}"));
        let future = make(&worker, call, [key, other], work, random.bool());
        let future = NotingPolls::of(future);
        // Some callers have no patience: what they drop must leave nothing behind.
        let outcome = if random.u8(..10) == 0 {
            tokio::time::timeout(Duration::from_millis(random.u64(1..300)), future).await.ok()
        } else {
            Some(future.await)
        };
        let outcome = match &outcome {
            None => "dropped".to_owned(),
            Some(Ok(())) => "ok".to_owned(),
            Some(Err(error)) => word(error),
        };
        worker.journal.note(&worker.name, &format!("done {outcome}"));
        if random.u8(..6) == 0 {
            worker.read(&format!("x:{key}")).await;
        }
        // Between two calls of a task others get their chance.
        tokio::time::sleep(Duration::from_millis(random.u64(..20))).await;
    }
}

async fn make(
    worker: &Worker,
    call: Call,
    [key, other]: [u32; 2],
    work: Work,
    releases: bool,
) -> Result<(), LockError> {
    match call {
        Call::Tried => tried(worker, key, work).await,
        Call::Waited => waited(worker, key, work).await,
        Call::Nested => nested(worker, key, work).await,
        Call::BothWaited => both_waited(worker, key, other, work).await,
        Call::BothTried => both_tried(worker, key, other, work).await,
        Call::Guarded => guarded(worker, key, work, releases).await,
        Call::Read => read(worker, key, work).await,
        Call::Write => write(worker, key, work).await,
        Call::Permitted => permitted(worker, key, work).await,
    }
}

fn word(error: &LockError) -> String {
    match error {
        LockError::Busy { .. } => "busy".to_owned(),
        LockError::Lost { reason, .. } => format!("lost {reason:?}"),
        LockError::Backend { .. } => "backend".to_owned(),
        other => format!("error {other}"),
    }
}
