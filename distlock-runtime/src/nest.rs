//! Calls inside of a body that holds the same lock already: they pass under its lease.
//!
//! What a task holds is known from the bodies that are being polled: a nested call is polled by the body around it. A task
//! that the body spawned is polled by the runtime, and one that a runtime inside of the body polls has another id.

use std::cell::RefCell;
use std::sync::Arc;

use tokio::task;

use crate::backend::{Fencing, Kind};
use crate::claim::Refusal;
use crate::clock::Time;
use crate::guard::LockGuard;
use crate::hold::Hold;
use crate::manager::Core;
use crate::passage::Passage;
use crate::{FencingToken, LockError, LostReason, events, several};

thread_local! {
    /// The bodies that are being polled on this thread, from the outermost to the innermost.
    static BODIES: RefCell<Vec<Body>> = const { RefCell::new(Vec::new()) };
}

struct Body {
    /// The manager's number: a reference would be counted by all threads at every poll.
    manager: u64,
    hold: Arc<Hold>,
    task: Option<task::Id>,
}

/// As long as this lives, the calling task counts as the holder.
pub(crate) struct Polling(());

impl Polling {
    pub(crate) fn begin(core: &Core, hold: &Arc<Hold>) -> Polling {
        let body = Body { manager: core.number(), hold: hold.clone(), task: task::try_id() };
        // Where the thread is ending, nothing is nested.
        let _ = BODIES.try_with(|bodies| bodies.borrow_mut().push(body));
        Polling(())
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        // Out of the borrow first: to drop it may do more than is good within.
        drop(BODIES.try_with(|bodies| bodies.borrow_mut().pop()));
    }
}

/// Whether the calling task holds one of the locks that are asked for.
pub(crate) fn is_held(core: &Core, hold: &Hold) -> bool {
    hold.group().any(|hold| outer(core, hold).is_some())
}

/// The first lock of those that are asked for that the calling task holds.
pub(crate) fn outer_of_group(core: &Core, hold: &Hold) -> Option<Arc<Hold>> {
    hold.group().find_map(|hold| outer(core, hold))
}

/// The lock on the same key that the calling task holds.
pub(crate) fn outer(core: &Core, hold: &Hold) -> Option<Arc<Hold>> {
    BODIES.try_with(|bodies| find(&bodies.borrow(), core, hold)).ok().flatten()
}

fn find(bodies: &[Body], core: &Core, asked: &Hold) -> Option<Arc<Hold>> {
    if bodies.is_empty() {
        return None;
    }
    let task = task::try_id();
    let mine = bodies.iter().rev().filter(|body| body.task == task && body.manager == core.number());
    let mut held = mine.flat_map(|body| std::iter::once(&body.hold).chain(body.hold.others()));
    held.find(|held| held.key == asked.key).cloned()
}

/// The locks that the calling task holds, each once, from the outermost to the innermost.
#[cfg(feature = "test-util")]
pub(crate) fn held() -> Vec<(String, Kind)> {
    let mut held: Vec<(String, Kind)> = Vec::new();
    // Where the thread is ending, nothing is held.
    let _ = BODIES.try_with(|bodies| {
        let (task, bodies) = (task::try_id(), bodies.borrow());
        let mine = bodies.iter().filter(|body| body.task == task);
        for hold in mine.flat_map(|body| body.hold.group()).filter(|hold| hold.leading().check().is_ok()) {
            if held.iter().all(|(key, _)| key != hold.key.as_str()) {
                held.push((hold.key.to_string(), hold.terms.kind));
            }
        }
    });
    held
}

pub(crate) fn would_deadlock(hold: &Hold) -> LockError {
    LockError::WouldDeadlock { key: hold.key.to_string() }
}

/// Why a call can't pass under a lock that the calling task holds, or have it once more beside that, if so. Whatever it is, nobody
/// waits for it: that would be a wait for oneself, or for somebody who waits for it.
pub(crate) fn refusal(outer: &Hold, asked: &Hold) -> Option<LockError> {
    let (held, wanted) = (outer.terms.kind, asked.terms.kind);
    if held.is_shared() && !wanted.is_shared() {
        return Some(LockError::UpgradeNotSupported { key: asked.key.to_string() });
    }
    let alike = match (held, wanted) {
        (Kind::Exclusive, _) | (Kind::Read, Kind::Read) => true,
        // Who asks for fewer neighbours than there may be can't have them here.
        (Kind::Permits(held), Kind::Permits(wanted)) => held <= wanted,
        _ => false,
    };
    (!alike || !asked.terms.reentrant).then(|| would_deadlock(asked))
}

/// Passes under what the calling task holds.
pub(crate) async fn pass(core: Arc<Core>, hold: Arc<Hold>) -> Result<LockGuard, LockError> {
    if hold.others().is_empty() { pass_one(&core, hold).await } else { several::pass(core, hold).await }
}

/// Passes under the lock that the calling task holds, as soon as no other call does that in the same body.
///
/// Such a call is no new one, so it goes on while the manager is shutting down.
pub(crate) async fn pass_one(core: &Arc<Core>, hold: Arc<Hold>) -> Result<LockGuard, LockError> {
    let Some(outer) = outer(core, &hold) else { return Err(would_deadlock(&hold)) };
    if let Some(refusal) = refusal(&outer, &hold) {
        return Err(refusal);
    }
    let inner = turn_of(core, &hold, &outer).await?;
    hold.pass_under(outer);
    // While this waited, the outer one may have ended or been lost. Then no body begins, whatever happens to one that runs.
    hold.check_group().map_err(|(lost, reason)| lost.lost_error(reason))?;
    if hold.terms.fencing_token && hold.leading().fence().is_none() {
        let token = mint(core, &[&hold]).await?;
        hold.leading().set_fence(token);
    }
    events::passed_under(&hold);
    Ok(LockGuard::passing(core.enter_again(), hold, inner))
}

/// Waits until no sibling is under the outer lock, for as long as the call would try for the lock itself. Those that read are
/// there together.
async fn turn_of(core: &Core, hold: &Hold, outer: &Hold) -> Result<Passage, LockError> {
    let started = Time::now();
    let patience = hold.terms.patience_with_others();
    hold.count_attempt();
    let (siblings, reads) = (outer.inner(), hold.terms.kind == Kind::Read);
    let turn = match Passage::at_once(siblings, reads) {
        // A timer would take its time.
        None if patience.is_zero() => None,
        None => {
            let turn = Passage::in_turn(siblings.clone(), reads);
            core.by_any_means(started.saturating_add(patience), turn).await?
        }
        turn => turn,
    };
    turn.ok_or_else(|| {
        let refusal =
            Refusal::Held { holder: core.owner().to_owned(), remaining: outer.leading().remaining(), first: false };
        refusal.report(hold, true);
        refusal.into_error(hold, Time::now().saturating_since(started))
    })
}

/// Gets a fencing token for locks that are held. It has as many tries as the call has for a lock.
pub(crate) async fn mint(core: &Core, holds: &[&Hold]) -> Result<FencingToken, LockError> {
    let Some(first) = holds.first() else { return Ok(FencingToken::MIN) };
    let mut pauses = first.terms.backoff.pauses();
    for attempts in 1.. {
        let fencing = Fencing::new(1, core.highest_fence());
        let timeout = first.terms.command_timeout;
        let entries = holds.iter().map(|hold| hold.leading().bare_entry(timeout).with_fencing(fencing));
        let entries: Vec<_> = entries.collect();
        let source = match core.backend().mint(&entries).await {
            Ok(Some(token)) => {
                core.note_fence(token);
                return Ok(token);
            }
            Ok(None) => return Err(first.lost_error(LostReason::Gone)),
            Err(error) => error,
        };
        if !source.is_passing() || attempts > first.terms.retry {
            let operation = format!("get a fencing token for lock `{}`", first.key);
            return Err(LockError::Backend { operation, attempts, source });
        }
        core.pause(pauses.next(None)).await?;
    }
    Err(would_deadlock(first))
}
