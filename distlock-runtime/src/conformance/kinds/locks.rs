//! The rules for what a manager makes of locks that several may hold at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{LONG_TTL, TIMEOUT, TTL, entry, release};
use crate::backend::{Backend, Kind, Released};
use crate::conformance::{assert_stopped, body_without_end};
use crate::{LockError, LockManager, LostReason, Mode};

pub(super) async fn check(backend: &Arc<dyn Backend>, locks: &LockManager) {
    shared_locks_exclude_writers_until_all_are_released(locks).await;
    a_dropped_guard_frees_its_own_share(locks).await;
    the_watchdog_keeps_shares_over_their_ttls(locks).await;
    a_lost_share_stops_its_body_and_no_other(locks, &**backend).await;
    a_share_is_held_no_longer_than_it_may(locks).await;
    no_read_lock_becomes_a_write_lock(locks).await;
    what_makes_no_sense_is_refused(locks).await;
    a_shutdown_frees_shares_and_no_others(backend, locks).await;
}

async fn shared_locks_exclude_writers_until_all_are_released(locks: &LockManager) {
    let key = "conformance:kinds:excludes";
    for permits in [None, Some(2)] {
        let shared = || match permits {
            Some(permits) => locks.lock(key).permits(permits),
            None => locks.lock(key).mode(Mode::Read),
        };
        let one = shared().acquire().await.expect("a free lock is shared");
        let other = shared().acquire().await.expect("a shared lock is shared");
        if permits.is_some() {
            let third = shared().acquire().await;
            assert!(third.is_err_and(|error| error.is_busy()), "so many permits and no more");
        }
        for mode in [Mode::Write, Mode::Exclusive] {
            match locks.lock(key).mode(mode).retry(1).acquire().await {
                Err(LockError::Busy { holder, attempts, .. }) => {
                    assert_eq!(
                        (holder.as_str(), attempts),
                        ("conformance and 1 other", 2),
                        "a refusal tells the holders"
                    );
                }
                other => panic!("a lock that is shared is busy for others, not {other:?}"),
            }
        }
        one.release().await.expect("a share is released");
        assert!(locks.lock(key).acquire().await.is_err_and(|error| error.is_busy()), "the other still holds it");
        other.release().await.expect("a share is released");
        let writer = locks.lock(key).mode(Mode::Write).fencing_token(true).acquire().await;
        let writer = writer.expect("a lock that all have released is free for a writer");
        assert!(writer.lease().fencing_token().is_some(), "a writer has its fencing token");
        assert!(shared().acquire().await.is_err_and(|error| error.is_busy()), "a writer excludes everybody");
        writer.release().await.expect("a held lock is released");
    }
}

async fn a_dropped_guard_frees_its_own_share(locks: &LockManager) {
    let key = "conformance:kinds:dropped";
    let kept = locks.lock(key).mode(Mode::Read).acquire().await.expect("a free lock is shared");
    drop(locks.lock(key).mode(Mode::Read).acquire().await.expect("a shared lock is shared"));
    kept.lease().ensure_held().expect("another one's drop leaves a share alone");
    let writer = locks.lock(key).mode(Mode::Write).acquire().await;
    assert!(writer.is_err_and(|error| error.is_busy()), "a share still excludes writers");
    drop(kept);
    // Much less than the ttl of 30 s, and much more than a release takes.
    let writer = locks.lock(key).mode(Mode::Write).retry(100).acquire().await.expect("a dropped guard frees its share");
    writer.release().await.expect("a held lock is released");
}

async fn the_watchdog_keeps_shares_over_their_ttls(locks: &LockManager) {
    let keys = ["conformance:kinds:kept:read", "conformance:kinds:kept:permits"];
    let read = || locks.lock(keys[0]).mode(Mode::Read).ttl(TTL).acquire();
    let permit = || locks.lock(keys[1]).permits(2).ttl(TTL).acquire();
    let mut guards = Vec::new();
    for _ in 0..2 {
        guards.push(read().await.expect("a lock is shared"));
        guards.push(permit().await.expect("there are two permits"));
    }
    // Time is what is tested here: three leases pass.
    tokio::time::sleep(TTL * 3).await;
    for key in keys {
        let writer = locks.lock(key).mode(Mode::Write).acquire().await;
        assert!(writer.is_err_and(|error| error.is_busy()), "a share that is renewed still excludes");
    }
    assert!(permit().await.is_err_and(|error| error.is_busy()), "both permits are still held");
    for guard in guards {
        guard.lease().ensure_held().expect("the lease is renewed");
        guard.release().await.expect("a share is released");
    }
}

async fn a_lost_share_stops_its_body_and_no_other(locks: &LockManager, backend: &dyn Backend) {
    let key = "conformance:kinds:deleted";
    let kept = locks.lock(key).mode(Mode::Read).ttl(TTL).acquire().await.expect("a free lock is shared");
    let guard = locks.lock(key).mode(Mode::Read).ttl(TTL).acquire().await.expect("a shared lock is shared");
    let value = format!("{}/conformance", guard.lease().token());
    let share = entry(key, &value).with_kind(Kind::Read);
    assert_eq!(release(backend, share).await, Released::Freed, "the value is the token and the owner");
    let lost = tokio::time::timeout(TIMEOUT, guard.lease().lost()).await.expect("a deleted share is noticed");
    assert_eq!(lost, LostReason::Gone, "a deleted share is noticed by its renewal");
    kept.lease().ensure_held().expect("the other one is still held");
    kept.release().await.expect("and can be released");
}

async fn a_share_is_held_no_longer_than_it_may(locks: &LockManager) {
    let key = "conformance:kinds:max-hold";
    let other = locks.lock(key).mode(Mode::Read).acquire().await.expect("a free lock is shared");
    let request = locks.lock(key).mode(Mode::Read).ttl(TTL);
    assert_stopped(request.watchdog(false).run(body_without_end()).await, LostReason::Expired);
    let request = locks.lock(key).mode(Mode::Read).ttl(TTL).max_hold(TTL * 2);
    assert_stopped(request.run(body_without_end()).await, LostReason::HeldTooLong);
    other.release().await.expect("the other one is still held");
}

async fn no_read_lock_becomes_a_write_lock(locks: &LockManager) {
    let key = "conformance:kinds:upgrade";
    let steps = AtomicUsize::new(0);
    let step = || async {
        steps.fetch_add(1, Ordering::Relaxed);
        Ok::<(), LockError>(())
    };
    let body = async {
        // The longest wait that there is: only a refusal at once ends in time.
        let writer = locks.lock(key).mode(Mode::Write).wait(Duration::from_secs(60 * 60)).run(step()).await;
        assert!(matches!(writer, Err(LockError::UpgradeNotSupported { .. })), "an upgrade is refused: {writer:?}");
        locks.lock(key).mode(Mode::Read).run(step()).await
    };
    let reader = tokio::time::timeout(LONG_TTL, locks.lock(key).mode(Mode::Read).run(body)).await;
    reader.expect("an upgrade is refused at once").expect("a nested reader passes");
    let body = async { locks.lock(key).mode(Mode::Read).run(step()).await };
    locks.lock(key).mode(Mode::Write).run(body).await.expect("a reader passes under a writer");
    assert_eq!(steps.load(Ordering::Relaxed), 2, "the readers ran, and the writer did not");
}

async fn what_makes_no_sense_is_refused(locks: &LockManager) {
    let lock = || locks.lock("conformance:kinds:nonsense");
    let requests = [
        (lock().permits(0), "permits"),
        (lock().permits(10_001), "permits"),
        (lock().permits(2).mode(Mode::Read), "permits"),
        (lock().permits(2).fencing_token(true), "fencing_token"),
        (lock().mode(Mode::Read).fencing_token(true), "fencing_token"),
    ];
    for (request, expected) in requests {
        let text = format!("{request:?}");
        match request.acquire().await {
            Err(LockError::InvalidOption { option, .. }) => assert_eq!(option, expected, "{text}"),
            other => panic!("{text} is refused, not {other:?}"),
        }
    }
}

async fn a_shutdown_frees_shares_and_no_others(backend: &Arc<dyn Backend>, locks: &LockManager) {
    let key = "conformance:kinds:shutdown";
    let kept = locks.lock(key).permits(3).acquire().await.expect("a free lock is shared");
    let closing = LockManager::builder().backend(backend.clone()).build().await.expect("a manager can be built");
    let guards = [closing.lock(key).permits(3).acquire().await, closing.lock(key).permits(3).acquire().await];
    let guards = guards.map(|guard| guard.expect("there are three permits"));
    assert!(locks.lock(key).permits(3).acquire().await.is_err_and(|error| error.is_busy()), "and no more");
    closing.shutdown(Duration::ZERO).await;
    let two = [locks.lock(key).permits(3).acquire().await, locks.lock(key).permits(3).acquire().await];
    for guard in two {
        guard.expect("a shutdown gives permits back").release().await.expect("a share is released");
    }
    kept.lease().ensure_held().expect("and nobody else's");
    kept.release().await.expect("a share is released");
    drop(guards);
}
