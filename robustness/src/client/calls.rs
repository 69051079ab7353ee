//! What the tasks of a client call, one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::LockError;
use fastrand::Rng;
use harness::holders::NotingPolls;

use super::bodies::{Work, Worker};
use super::exclusive::{
    barred, both_tried, both_waited, bounded, finished, guarded, nested, siblings, tried, unwatched, waited,
};
use super::shared::{
    both_read, permit_nested, permit_tried, permit_waited, read_tried, read_waited, write_nested, write_tried,
    write_waited,
};

/// How many may hold one of the locks with permits.
pub(crate) const PERMITS: u32 = 3;
/// How many keys there are of each kind. Of those that are shared two are called for, and the first of them most of the time.
pub(crate) const KEYS: u32 = 5;

/// So many of them are held for long by those who take their time.
const LONG_HELD: u32 = 3;

/// What a task calls next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Tried,
    Waited,
    Nested,
    Siblings,
    Barred,
    Finished,
    Bounded,
    Unwatched,
    BothWaited,
    BothTried,
    Guarded,
    ReadWaited,
    ReadTried,
    BothRead,
    WriteWaited,
    WriteTried,
    WriteNested,
    PermitWaited,
    PermitTried,
    PermitNested,
}

/// What a body that takes its time is called by.
const PATIENT: [Call; 2] = [Call::Tried, Call::Waited];
/// Those that need two locks come to them less often, and are called more often.
pub(crate) const EXCLUSIVE: [Call; 13] = [
    Call::Tried,
    Call::Waited,
    Call::Nested,
    Call::Siblings,
    Call::Barred,
    Call::Finished,
    Call::Bounded,
    Call::Unwatched,
    Call::BothWaited,
    Call::BothWaited,
    Call::BothTried,
    Call::BothTried,
    Call::Guarded,
];
/// Readers are more than writers, so that they are there together.
pub(crate) const READERS_AND_WRITERS: [Call; 9] = [
    Call::ReadWaited,
    Call::ReadWaited,
    Call::ReadTried,
    Call::ReadTried,
    Call::BothRead,
    Call::BothRead,
    Call::WriteWaited,
    Call::WriteTried,
    Call::WriteNested,
];
pub(crate) const PERMITTED: [Call; 4] = [Call::PermitWaited, Call::PermitWaited, Call::PermitTried, Call::PermitNested];

impl Call {
    fn is_shared(self) -> bool {
        !EXCLUSIVE.contains(&self)
    }

    /// Whether a body that stays for long has to be stopped, whatever happens.
    fn is_bounded(self) -> bool {
        matches!(self, Call::Bounded | Call::Unwatched)
    }
}

/// What the tasks of a client call, by their numbers. The first holds its locks for long, so that there is hardly a fault without a
/// lease to end.
fn deck(task: usize, only_exclusive: bool) -> &'static [Call] {
    match task {
        0 => &PATIENT,
        3 if !only_exclusive => &READERS_AND_WRITERS,
        4 if !only_exclusive => &PERMITTED,
        _ => &EXCLUSIVE,
    }
}

/// Calls one function after the other, until it is to stop: each of its deck once, in any order, and then all of them again.
pub(super) async fn call_on(
    worker: Worker,
    mut random: Rng,
    task: usize,
    only_exclusive: bool,
    stopping: Arc<AtomicBool>,
) {
    let mut calls = Vec::new();
    while !stopping.load(Ordering::Relaxed) {
        if calls.is_empty() {
            calls = deck(task, only_exclusive).to_vec();
            random.shuffle(&mut calls);
        }
        let Some(call) = calls.pop() else { return };
        call_once(&worker, &mut random, call, task == 0).await;
        // Between two calls of a task others get their chance.
        tokio::time::sleep(Duration::from_millis(random.u64(..20))).await;
    }
}

async fn call_once(worker: &Worker, random: &mut Rng, call: Call, takes_its_time: bool) {
    let keys = keys(random, call, takes_its_time, worker.likes);
    let work = Work { steps: steps(random, call, takes_its_time), writes: random.bool(), looks: false };
    worker.journal.note(&worker.name, &format!("call {call:?} {}", keys[0]));
    let future = NotingPolls::of(make(worker, call, keys, work, random.bool()));
    // Some callers have no patience: what they drop must leave nothing behind.
    let outcome = if random.u8(..10) == 0 {
        tokio::time::timeout(Duration::from_millis(random.u64(1..300)), future).await.ok()
    } else {
        Some(future.await)
    };
    let how = match &outcome {
        None => "dropped".to_owned(),
        Some(Ok(())) => "ok".to_owned(),
        Some(Err(error)) => word(error),
    };
    worker.journal.note(&worker.name, &format!("done {how}"));
    if call.is_bounded() && work.steps >= TOO_MANY && matches!(outcome, Some(Ok(()))) {
        worker.complain(&format!("seen a body of {call:?} come to its end after {} steps", work.steps));
    }
    if random.u8(..6) == 0 {
        worker.read(&format!("x:{}", keys[0])).await;
    }
}

/// Two keys that are not the same. Who takes its time stays away from some, so that others come to something. Of these each client likes
/// one, so that its tasks wait for one another, and pass it on.
fn keys(random: &mut Rng, call: Call, takes_its_time: bool, likes: u32) -> [u32; 2] {
    if call.is_shared() {
        let key = u32::from(random.u8(..5) == 0);
        return [key, 1 - key];
    }
    let key = match random.u8(..4) {
        _ if takes_its_time => random.u32(..LONG_HELD),
        0 => random.u32(..KEYS),
        _ => LONG_HELD + likes % (KEYS - LONG_HELD),
    };
    [key, (key + random.u32(1..KEYS)) % KEYS]
}

/// Of 3 ms at least: more than the time that any body is bounded to.
const TOO_MANY: u32 = 400;

/// Some bodies outlast a ttl or two: their leases have to be renewed, or to end.
fn steps(random: &mut Rng, call: Call, takes_its_time: bool) -> u32 {
    let is_long = random.u8(..8) == 0;
    match call {
        _ if call.is_bounded() => {
            if random.u8(..3) > 0 {
                TOO_MANY
            } else {
                random.u32(2..40)
            }
        }
        // All bodies together are to last about as long as one; and two locks are held for a short time.
        Call::Siblings | Call::BothWaited | Call::BothTried => random.u32(2..20),
        _ if call.is_shared() => {
            if is_long {
                random.u32(300..600)
            } else {
                random.u32(10..60)
            }
        }
        _ if takes_its_time || is_long => random.u32(300..1_000),
        _ => random.u32(2..40),
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
        Call::Siblings => siblings(worker, key, work).await,
        Call::Barred => barred(worker, key, work).await,
        Call::Finished => finish(worker, key, work).await,
        Call::Bounded => bounded(worker, key, work).await,
        Call::Unwatched => unwatched(worker, key, work).await,
        Call::BothWaited => both_waited(worker, key, other, work).await,
        Call::BothTried => both_tried(worker, key, other, work).await,
        Call::Guarded => guarded(worker, key, work, releases).await,
        Call::ReadWaited => read_waited(worker, key, work).await,
        Call::ReadTried => read_tried(worker, key, work).await,
        Call::BothRead => both_read(worker, key, other, work).await,
        Call::WriteWaited => write_waited(worker, key, work).await,
        Call::WriteTried => write_tried(worker, key, work).await,
        Call::WriteNested => write_nested(worker, key, work).await,
        Call::PermitWaited => permit_waited(worker, key, work).await,
        Call::PermitTried => permit_tried(worker, key, work).await,
        Call::PermitNested => permit_nested(worker, key, work).await,
    }
}

/// A body that has come to its end returns what it returns, whatever became of its lock.
async fn finish(worker: &Worker, key: u32, work: Work) -> Result<(), LockError> {
    let ended = AtomicBool::new(false);
    let outcome = finished(worker, key, work, &ended).await;
    if let (Err(why), true) = (&outcome, ended.load(Ordering::Relaxed)) {
        worker.complain(&format!("seen a body that was to finish come to its end, and its call fail: {why}"));
    }
    outcome
}

fn word(error: &LockError) -> String {
    match error {
        LockError::Busy { .. } => "busy".to_owned(),
        LockError::Lost { reason, .. } => format!("lost {reason:?}"),
        LockError::Backend { .. } => "backend".to_owned(),
        other => format!("error {other}"),
    }
}
