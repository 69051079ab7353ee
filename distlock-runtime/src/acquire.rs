use std::sync::Arc;

use crate::backend::Attempt;
use crate::claim::{Ask, Claim};
use crate::clock::Time;
use crate::events::Search;
use crate::guard::LockGuard;
use crate::hold::Hold;
use crate::manager::Core;
use crate::{LockError, events, nest, several, turn};

/// Gets a lock in the way that its terms ask for.
///
/// # Cancel safety
///
/// If the future is dropped, a key that a request under way sets is freed behind it.
pub(crate) async fn acquire(core: Arc<Core>, hold: Arc<Hold>) -> Result<LockGuard, LockError> {
    let search = Search::begin(&hold);
    let outcome = find(core, hold).await;
    search.ended(&outcome);
    outcome
}

/// The same for a guard, which could outlive a lock that it would pass under.
pub(crate) async fn acquire_by_hand(core: Arc<Core>, hold: Arc<Hold>) -> Result<LockGuard, LockError> {
    let search = Search::begin(&hold);
    let outcome = match nest::outer_of_group(&core, &hold) {
        Some(outer) => Err(nest::refusal(&outer, &hold).unwrap_or_else(|| nest::would_deadlock(&hold))),
        None => find(core, hold).await,
    };
    search.ended(&outcome);
    outcome
}

async fn find(core: Arc<Core>, hold: Arc<Hold>) -> Result<LockGuard, LockError> {
    // What is not the usual way is in boxes, so that the usual way need not make room for it.
    if nest::is_held(&core, &hold) {
        return Box::pin(nest::pass(core, hold)).await;
    }
    if !hold.others().is_empty() {
        return Box::pin(several::acquire(core, hold)).await;
    }
    match hold.terms.wait {
        Some(wait) => Box::pin(turn::wait(core, hold, wait)).await,
        None => poll(core, hold).await,
    }
}

/// Tries for a lock until it is granted, its tries are used up, or something says that trying is of no use.
pub(crate) async fn poll(core: Arc<Core>, hold: Arc<Hold>) -> Result<LockGuard, LockError> {
    let call = core.enter()?;
    let mut pauses = None;
    let mut claim = Claim::new(&call.core, hold);
    loop {
        let first = claim.hold().count_attempt() == 1 || !call.core.backend().reuses_values();
        let refusal = match claim.attempt(Ask::Try(if first { Attempt::First } else { Attempt::Repeated })).await {
            Ok(grant) => {
                let hold = claim.hold().clone();
                drop(claim);
                let guard = LockGuard::new(call, hold, grant.strays);
                events::acquired(guard.hold());
                // Where a shutdown came first, dropping the guard gives the lock back.
                return guard.ensure_open().map(|()| guard);
            }
            Err(refusal) => refusal,
        };
        let hold = claim.hold();
        let last = hold.attempt() > u64::from(hold.terms.retry) || refusal.is_lasting();
        refusal.report(hold, last);
        if last {
            let waited = Time::now().saturating_since(claim.started);
            return Err(refusal.into_error(hold, waited));
        }
        let pause = pauses.get_or_insert_with(|| hold.terms.backoff.pauses()).next(refusal.remaining());
        let spread = claim.go_on();
        call.core.pause(pause + spread).await?;
    }
}
