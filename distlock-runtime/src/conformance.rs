//! The rules that every backend must keep, as tests: run [`check`] in a test of your backend.
//!
//! Each rule uses keys of its own and leaves none behind, so the backend may be shared with others meanwhile. The whole
//! takes a few seconds, since some rules wait for a lease to end.

// A broken rule is told by a panic, as in any test.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::missing_panics_doc, clippy::panic)]

mod waiting;
mod kinds;

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::backend::{Acquired, Attempt, Backend, Entry, Released, Renewed};
use crate::{LockError, LockManager, LostReason};

/// Of leases that end here, or are renewed. Long enough for the watchdog to get its turn in time on a crowded machine.
const TTL: Duration = Duration::from_millis(1_500);
/// Of leases that must not end here.
const LONG_TTL: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(5);
const OURS: &str = "11111111-1111-4111-8111-111111111111/ours";
const THEIRS: &str = "22222222-2222-4222-8222-222222222222/theirs";

/// Checks all rules, one after the other, on the running Tokio runtime.
///
/// # Panics
///
/// At the first rule that does not hold, with its name in the text.
///
/// # Examples
///
/// ```
/// use distlock::{backend::MemoryBackend, conformance};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// conformance::check(std::sync::Arc::new(MemoryBackend::new())).await;
/// # }
/// ```
pub async fn check(backend: Arc<dyn Backend>) {
    backend.prepare().await.expect("the backend can be prepared");
    a_free_key_is_granted_and_then_refused(&*backend).await;
    our_own_entry_is_recognised(&*backend).await;
    release_frees_nobody_elses_entry(&*backend).await;
    renewal_extends_nobody_elses_entry(&*backend).await;
    an_entry_expires(&*backend).await;
    batches_are_answered_in_order(&*backend).await;
    if backend.reuses_values() {
        waiting::check(&backend).await;
    }

    let locks = LockManager::builder().backend(backend.clone()).owner("conformance").build().await;
    let locks = locks.expect("a manager can be built on the backend");
    a_lock_excludes_until_it_is_released(&locks).await;
    a_dropped_guard_frees_its_lock(&locks).await;
    the_watchdog_keeps_a_lock_over_its_ttl(&locks).await;
    a_lock_that_is_not_renewed_stops_its_body(&locks).await;
    a_lock_that_is_deleted_stops_its_body(&locks, &*backend).await;
    max_hold_stops_the_body(&locks).await;
    if backend.only_exclusive().is_none() {
        kinds::check(&backend, &locks).await;
    }
    a_shutdown_frees_everything(&backend).await;
}

fn entry<'a>(key: &'a str, value: &'a str) -> Entry<'a> {
    Entry::new(key, value, LONG_TTL, TIMEOUT)
}

async fn acquire(backend: &dyn Backend, entry: Entry<'_>) -> Acquired {
    backend.acquire(entry, Attempt::First, &mut None).await.expect("acquire is answered")
}

async fn release(backend: &dyn Backend, entry: Entry<'_>) -> Released {
    backend.release(entry).await.expect("release is answered")
}

async fn renew(backend: &dyn Backend, entry: Entry<'_>) -> Renewed {
    let mut answers = backend.renew(&[entry]).await;
    assert_eq!(answers.len(), 1, "one renewal has one answer");
    answers.remove(0).expect("a renewal is answered")
}

async fn a_free_key_is_granted_and_then_refused(backend: &dyn Backend) {
    let key = "conformance:granted";
    assert_eq!(acquire(backend, entry(key, OURS)).await, Acquired::Granted(None), "a free key is granted");
    match acquire(backend, entry(key, THEIRS)).await {
        Acquired::Held { value, remaining } => {
            assert_eq!(value, OURS, "a refusal tells what stands there");
            assert!(remaining <= LONG_TTL, "a refusal tells how long it lasts, not {remaining:?}");
        }
        Acquired::Granted(_) => panic!("a key is granted twice"),
    }
    assert_eq!(release(backend, entry(key, OURS)).await, Released::Freed, "a holder can release");
    assert_eq!(acquire(backend, entry(key, THEIRS)).await, Acquired::Granted(None), "a released key is free");
    release(backend, entry(key, THEIRS)).await;
}

async fn our_own_entry_is_recognised(backend: &dyn Backend) {
    let key = "conformance:recognised";
    acquire(backend, entry(key, OURS)).await;
    let again = backend.acquire(entry(key, OURS), Attempt::Repeated, &mut None).await.expect("acquire is answered");
    assert_eq!(again, Acquired::Granted(None), "a repeated attempt recognises what an earlier one set");
    let theirs = backend.acquire(entry(key, THEIRS), Attempt::Repeated, &mut None).await.expect("acquire is answered");
    assert!(matches!(theirs, Acquired::Held { .. }), "a repeated attempt takes nothing from others");
    release(backend, entry(key, OURS)).await;
}

async fn release_frees_nobody_elses_entry(backend: &dyn Backend) {
    let key = "conformance:release";
    acquire(backend, entry(key, OURS)).await;
    assert_eq!(release(backend, entry(key, THEIRS)).await, Released::NotHeld, "a release compares the value");
    assert_eq!(release(backend, entry(key, OURS)).await, Released::Freed, "the value still stood there");
    assert_eq!(release(backend, entry(key, OURS)).await, Released::NotHeld, "a second release finds nothing");
}

async fn renewal_extends_nobody_elses_entry(backend: &dyn Backend) {
    let key = "conformance:renewal";
    assert_eq!(renew(backend, entry(key, OURS)).await, Renewed::NotHeld, "a renewal sets nothing");
    acquire(backend, entry(key, OURS)).await;
    assert_eq!(renew(backend, entry(key, OURS)).await, Renewed::Extended, "a holder can renew");
    assert_eq!(renew(backend, entry(key, THEIRS)).await, Renewed::NotHeld, "a renewal compares the value");
    release(backend, entry(key, OURS)).await;
}

async fn an_entry_expires(backend: &dyn Backend) {
    let key = "conformance:expiry";
    acquire(backend, Entry::new(key, OURS, TTL, TIMEOUT)).await;
    let freed = async {
        while acquire(backend, entry(key, THEIRS)).await != Acquired::Granted(None) {
            tokio::time::sleep(TTL / 10).await;
        }
    };
    tokio::time::timeout(TIMEOUT, freed).await.expect("an entry that is not renewed expires");
    assert_eq!(renew(backend, entry(key, OURS)).await, Renewed::NotHeld, "what has expired can't be renewed");
    release(backend, entry(key, THEIRS)).await;
}

async fn batches_are_answered_in_order(backend: &dyn Backend) {
    let keys: Vec<_> = (0..600).map(|n| format!("conformance:batch:{n}")).collect();
    let held = |n: usize| n.is_multiple_of(3);
    let entries: Vec<_> = keys.iter().map(|key| entry(key, OURS)).collect();
    for entry in entries.iter().step_by(3) {
        acquire(backend, *entry).await;
    }
    let renewed = backend.renew(&entries).await;
    let released = backend.release_all(&entries).await;
    assert_eq!((renewed.len(), released.len()), (600, 600), "each entry has an answer");
    for (n, (renewed, released)) in renewed.into_iter().zip(released).enumerate() {
        let renewed = renewed.expect("a renewal is answered") == Renewed::Extended;
        let released = released.expect("a release is answered") == Released::Freed;
        assert_eq!((renewed, released), (held(n), held(n)), "answers have the order of their entries (at {n})");
    }
}

async fn a_lock_excludes_until_it_is_released(locks: &LockManager) {
    let key = "conformance:excludes";
    let guard = locks.lock(key).acquire().await.expect("a free lock is taken");
    match locks.lock(key).retry(1).acquire().await {
        Err(LockError::Busy { holder, attempts, .. }) => {
            assert_eq!((holder.as_str(), attempts), ("conformance", 2), "a refusal tells the holder and the attempts");
        }
        other => panic!("a lock that is held is busy, not {other:?}"),
    }
    guard.release().await.expect("a held lock is released");
    locks.lock(key).acquire().await.expect("a released lock is taken").release().await.expect("and released");
}

async fn a_dropped_guard_frees_its_lock(locks: &LockManager) {
    let key = "conformance:dropped";
    drop(locks.lock(key).acquire().await.expect("a free lock is taken"));
    // Much less than the ttl of 30 s, and much more than a release takes.
    let taken = locks.lock(key).retry(100).acquire().await.expect("a dropped guard frees its lock");
    taken.release().await.expect("a held lock is released");
}

async fn the_watchdog_keeps_a_lock_over_its_ttl(locks: &LockManager) {
    let key = "conformance:kept";
    let guard = locks.lock(key).ttl(TTL).acquire().await.expect("a free lock is taken");
    // Time is what is tested here: three leases pass.
    tokio::time::sleep(TTL * 3).await;
    guard.lease().ensure_held().expect("the lease is renewed");
    let other = locks.lock(key).acquire().await;
    assert!(other.is_err_and(|error| error.is_busy()), "a renewed lock still excludes");
    guard.release().await.expect("a held lock is released");
}

async fn a_lock_that_is_not_renewed_stops_its_body(locks: &LockManager) {
    let request = locks.lock("conformance:expired").ttl(TTL).watchdog(false);
    assert_stopped(request.run(body_without_end()).await, LostReason::Expired);
}

async fn a_lock_that_is_deleted_stops_its_body(locks: &LockManager, backend: &dyn Backend) {
    let key = "conformance:deleted";
    let guard = locks.lock(key).ttl(TTL).acquire().await.expect("a free lock is taken");
    let value = format!("{}/conformance/", guard.lease().token());
    assert_eq!(
        release(backend, entry(key, &value)).await,
        Released::Freed,
        "the value is the token and the owner, and a slash"
    );
    let lost = tokio::time::timeout(TIMEOUT, guard.lease().lost()).await.expect("a deleted lock is noticed");
    assert_eq!(lost, LostReason::Gone, "a deleted lock is noticed by its renewal");
}

async fn max_hold_stops_the_body(locks: &LockManager) {
    let request = locks.lock("conformance:max-hold").ttl(TTL).max_hold(TTL * 2);
    assert_stopped(request.run(body_without_end()).await, LostReason::HeldTooLong);
}

async fn a_shutdown_frees_everything(backend: &Arc<dyn Backend>) {
    let key = "conformance:shutdown";
    let locks = LockManager::builder().backend(backend.clone()).build().await.expect("a manager can be built");
    let started = Arc::new(AtomicBool::new(false));
    let body = {
        let started = started.clone();
        async move {
            started.store(true, Ordering::Relaxed);
            body_without_end().await
        }
    };
    let call = tokio::spawn(locks.lock(key).run(body));
    while !started.load(Ordering::Relaxed) {
        tokio::task::yield_now().await;
    }
    locks.shutdown(Duration::ZERO).await;
    assert_stopped(call.await.expect("the call ends"), LostReason::Shutdown);
    assert_eq!(acquire(&**backend, entry(key, OURS)).await, Acquired::Granted(None), "a shutdown frees the keys");
    release(&**backend, entry(key, OURS)).await;
    let refused = locks.lock(key).acquire().await;
    assert!(matches!(refused, Err(LockError::ShuttingDown)), "a closed manager refuses calls");
}

async fn body_without_end() -> Result<(), LockError> {
    pending().await
}

fn assert_stopped(result: Result<(), LockError>, expected: LostReason) {
    match result {
        Err(LockError::Lost { reason, .. }) => assert_eq!(reason, expected, "the loss has its reason"),
        other => panic!("a body is stopped with {expected:?}, not {other:?}"),
    }
}
