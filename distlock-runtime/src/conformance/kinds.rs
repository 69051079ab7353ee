//! The rules for locks that several may hold at once: readers beside each other, so many by their permits.
//!
//! Here are those for what is asked of the backend itself; `line` has those for waiters, `locks` what a manager makes of it.

mod line;
mod locks;

use std::sync::Arc;
use std::time::Duration;

use super::{LONG_TTL, OURS, THEIRS, TIMEOUT, TTL, acquire, entry, release, renew};
use crate::LockManager;
use crate::backend::{Acquired, AcquiredAll, Attempt, Backend, Entry, Kind, Released, Renewed};

const ANOTHER: &str = "33333333-3333-4333-8333-333333333333/another";

pub(super) async fn check(backend: &Arc<dyn Backend>, locks: &LockManager) {
    every_two_kinds_share_or_exclude_each_other(&**backend).await;
    a_refusal_tells_of_the_share_that_lasts_longest(&**backend).await;
    each_share_has_an_expiry_of_its_own(&**backend).await;
    a_share_is_renewed_and_released_for_itself_alone(&**backend).await;
    a_share_that_was_set_already_is_recognised(&**backend).await;
    the_smallest_number_of_permits_counts(&**backend).await;
    shares_are_answered_in_the_order_of_a_batch(&**backend).await;
    who_will_come_back_holds_newcomers_back(&**backend).await;
    who_gives_up_holds_nobody_back(&**backend).await;
    who_does_not_come_back_holds_nobody_back_for_long(&**backend).await;
    several_shares_are_taken_or_none(&**backend).await;
    if backend.reuses_values() {
        line::check(&**backend).await;
    }
    locks::check(backend, locks).await;
}

fn of(kind: Kind, key: &'static str, value: &'static str) -> Entry<'static> {
    entry(key, value).with_kind(kind)
}

fn reader(key: &'static str, value: &'static str) -> Entry<'static> {
    of(Kind::Read, key, value)
}

fn short(entry: Entry<'static>) -> Entry<'static> {
    Entry::new(entry.key, entry.value, TTL, TIMEOUT).with_kind(entry.kind)
}

async fn again(backend: &dyn Backend, entry: Entry<'_>) -> Acquired {
    backend.acquire(entry, Attempt::Repeated, &mut None).await.expect("acquire is answered")
}

async fn granted(backend: &dyn Backend, entry: Entry<'_>) {
    let answer = acquire(backend, entry).await;
    assert_eq!(answer, Acquired::Granted(None), "{:?} is granted for `{}`", entry.kind, entry.key);
}

/// What a refusal says: the value and what remains of it.
async fn refused(backend: &dyn Backend, entry: Entry<'_>) -> (String, Duration) {
    match acquire(backend, entry).await {
        Acquired::Held { value, remaining } => (value, remaining),
        Acquired::Granted(_) => panic!("{:?} is refused for `{}`", entry.kind, entry.key),
    }
}

/// Asks until the entry is granted.
async fn in_the_end(backend: &dyn Backend, entry: Entry<'_>) {
    let tries = async {
        while again(backend, entry).await != Acquired::Granted(None) {
            tokio::time::sleep(TTL / 10).await;
        }
    };
    tokio::time::timeout(TIMEOUT, tries).await.expect("the entry is granted in the end");
}

/// Checks that nothing stands under the key, by the only one that nothing goes with.
async fn free(backend: &dyn Backend, key: &'static str) {
    granted(backend, entry(key, ANOTHER)).await;
    assert_eq!(release(backend, entry(key, ANOTHER)).await, Released::Freed, "what was granted is freed");
}

async fn every_two_kinds_share_or_exclude_each_other(backend: &dyn Backend) {
    let key = "conformance:kinds";
    for first in [Kind::Exclusive, Kind::Read, Kind::Permits(2)] {
        for second in [Kind::Exclusive, Kind::Read, Kind::Permits(2)] {
            granted(backend, of(first, key, OURS)).await;
            if first.is_shared() && first == second {
                granted(backend, of(second, key, THEIRS)).await;
                assert_eq!(release(backend, of(second, key, THEIRS)).await, Released::Freed, "a share is freed");
            } else {
                let (value, remaining) = refused(backend, of(second, key, THEIRS)).await;
                assert_eq!(value, OURS, "a refusal of {second:?} tells who has it for {first:?}");
                assert!(remaining <= LONG_TTL, "a refusal tells how long it lasts, not {remaining:?}");
                assert_eq!(release(backend, of(second, key, THEIRS)).await, Released::NotHeld, "none was taken");
            }
            assert_eq!(release(backend, of(first, key, OURS)).await, Released::Freed, "{first:?} beside {second:?}");
            free(backend, key).await;
        }
    }
}

async fn a_refusal_tells_of_the_share_that_lasts_longest(backend: &dyn Backend) {
    let key = "conformance:kinds:holder";
    granted(backend, reader(key, OURS)).await;
    granted(backend, short(reader(key, THEIRS))).await;
    let (value, remaining) = refused(backend, entry(key, ANOTHER)).await;
    assert_eq!(value, format!("{OURS} and 1 other"), "the one that lasts longest, and how many others there are");
    assert!(remaining > TTL && remaining <= LONG_TTL, "{remaining:?} is what is left of the longest");
    release(backend, reader(key, OURS)).await;
    let (value, remaining) = refused(backend, entry(key, ANOTHER)).await;
    assert!(value == THEIRS && remaining <= TTL, "{value} for {remaining:?} is what remains");
    release(backend, reader(key, THEIRS)).await;
    free(backend, key).await;
}

async fn each_share_has_an_expiry_of_its_own(backend: &dyn Backend) {
    let key = "conformance:kinds:expiry";
    for kind in [Kind::Read, Kind::Permits(2)] {
        for (first, second) in [(OURS, THEIRS), (THEIRS, OURS)] {
            // Ours is short, and comes before the long one or after it.
            let ours_or_long = |value| if value == OURS { short(of(kind, key, OURS)) } else { of(kind, key, THEIRS) };
            granted(backend, ours_or_long(first)).await;
            granted(backend, ours_or_long(second)).await;
            let gone = async {
                while renew(backend, of(kind, key, THEIRS)).await == Renewed::Extended {
                    if refused(backend, entry(key, ANOTHER)).await.0 == THEIRS {
                        return;
                    }
                    tokio::time::sleep(TTL / 10).await;
                }
                panic!("the long one is gone with the short one");
            };
            tokio::time::timeout(TIMEOUT, gone)
                .await
                .expect("a share that is not renewed expires, whoever else is renewed");
            assert_eq!(
                renew(backend, of(kind, key, OURS)).await,
                Renewed::NotHeld,
                "what has expired can't be renewed"
            );
            assert_eq!(release(backend, of(kind, key, OURS)).await, Released::NotHeld, "nor released");
            assert_eq!(release(backend, of(kind, key, THEIRS)).await, Released::Freed, "the long one still stood");
            free(backend, key).await;
        }
    }
}

async fn a_share_is_renewed_and_released_for_itself_alone(backend: &dyn Backend) {
    let key = "conformance:kinds:own";
    for kind in [Kind::Read, Kind::Permits(3)] {
        assert_eq!(renew(backend, of(kind, key, OURS)).await, Renewed::NotHeld, "a renewal sets nothing");
        granted(backend, of(kind, key, OURS)).await;
        assert_eq!(renew(backend, of(kind, key, THEIRS)).await, Renewed::NotHeld, "nor beside another one");
        assert_eq!(release(backend, of(kind, key, THEIRS)).await, Released::NotHeld, "and a release frees no other");
        assert_eq!(renew(backend, of(kind, key, OURS)).await, Renewed::Extended, "a holder can renew");
        granted(backend, of(kind, key, THEIRS)).await;
        assert_eq!(release(backend, of(kind, key, OURS)).await, Released::Freed, "a holder can release");
        assert_eq!(release(backend, of(kind, key, OURS)).await, Released::NotHeld, "and only once");
        assert_eq!(renew(backend, of(kind, key, THEIRS)).await, Renewed::Extended, "which leaves the other alone");
        refused(backend, entry(key, ANOTHER)).await;
        release(backend, of(kind, key, THEIRS)).await;
        free(backend, key).await;
    }
}

async fn a_share_that_was_set_already_is_recognised(backend: &dyn Backend) {
    let key = "conformance:kinds:recognised";
    for (kind, more) in [(Kind::Permits(1), false), (Kind::Permits(2), true), (Kind::Read, true)] {
        granted(backend, of(kind, key, OURS)).await;
        for _ in 0..3 {
            let answer = again(backend, of(kind, key, OURS)).await;
            assert_eq!(answer, Acquired::Granted(None), "a repeated attempt recognises what an earlier one set");
        }
        let beside = again(backend, of(kind, key, THEIRS)).await == Acquired::Granted(None);
        assert_eq!(beside, more, "and is one share of {kind:?}");
        release(backend, of(kind, key, THEIRS)).await;
        assert_eq!(release(backend, of(kind, key, OURS)).await, Released::Freed, "it stands once");
        free(backend, key).await;
    }
}

async fn the_smallest_number_of_permits_counts(backend: &dyn Backend) {
    let key = "conformance:kinds:permits";
    let five = |value| of(Kind::Permits(5), key, value);
    granted(backend, five(OURS)).await;
    granted(backend, five(THEIRS)).await;
    refused(backend, of(Kind::Permits(1), key, ANOTHER)).await;
    refused(backend, of(Kind::Permits(2), key, ANOTHER)).await;
    granted(backend, of(Kind::Permits(3), key, ANOTHER)).await;
    let fourth = "44444444-4444-4444-8444-444444444444/fourth";
    refused(backend, five(fourth)).await;
    release(backend, of(Kind::Permits(3), key, ANOTHER)).await;
    granted(backend, five(fourth)).await;
    granted(backend, five(ANOTHER)).await;
    for value in [OURS, THEIRS, ANOTHER, fourth] {
        assert_eq!(release(backend, five(value)).await, Released::Freed, "a permit is given back");
    }
    // A small number that has expired does not count, either.
    granted(backend, short(of(Kind::Permits(1), key, OURS))).await;
    refused(backend, five(THEIRS)).await;
    in_the_end(backend, five(THEIRS)).await;
    granted(backend, five(ANOTHER)).await;
    release(backend, five(THEIRS)).await;
    release(backend, five(ANOTHER)).await;
    free(backend, key).await;
}

async fn shares_are_answered_in_the_order_of_a_batch(backend: &dyn Backend) {
    let key = "conformance:kinds:batch";
    let values: Vec<_> = (0..300_u32).map(|n| format!("55555555-5555-4555-8555-{n:012}/batch")).collect();
    let kind = |n: usize| if n.is_multiple_of(2) { Kind::Read } else { Kind::Permits(200) };
    let names = ["conformance:kinds:batch:read", key];
    let entries: Vec<_> =
        values.iter().enumerate().map(|(n, value)| entry(names[n % 2], value).with_kind(kind(n))).collect();
    let held = |n: usize| n.is_multiple_of(3);
    for entry in entries.iter().step_by(3) {
        granted(backend, *entry).await;
    }
    let renewed = backend.renew(&entries).await;
    let released = backend.release_all(&entries).await;
    assert_eq!((renewed.len(), released.len()), (300, 300), "each entry has an answer");
    for (n, (renewed, released)) in renewed.into_iter().zip(released).enumerate() {
        let renewed = renewed.expect("a renewal is answered") == Renewed::Extended;
        let released = released.expect("a release is answered") == Released::Freed;
        assert_eq!((renewed, released), (held(n), held(n)), "answers have the order of their entries (at {n})");
    }
    free(backend, names[0]).await;
    free(backend, key).await;
}

async fn who_will_come_back_holds_newcomers_back(backend: &dyn Backend) {
    let key = "conformance:kinds:returning";
    for kind in [Kind::Read, Kind::Permits(5)] {
        let writer = entry(key, THEIRS).returning_within(LONG_TTL);
        granted(backend, of(kind, key, OURS)).await;
        refused(backend, writer).await;
        let (value, _) = refused(backend, of(kind, key, ANOTHER)).await;
        assert_eq!(value, format!("{THEIRS}, which waits for it"), "a newcomer is told whom it gives way to");
        assert_eq!(renew(backend, of(kind, key, OURS)).await, Renewed::Extended, "who holds it may go on");
        let ours = again(backend, of(kind, key, OURS)).await;
        assert_eq!(ours, Acquired::Granted(None), "and is no newcomer");
        release(backend, of(kind, key, OURS)).await;
        refused(backend, of(kind, key, ANOTHER)).await;
        let theirs = again(backend, writer).await;
        assert_eq!(theirs, Acquired::Granted(None), "who comes back has it");
        release(backend, writer).await;
        granted(backend, of(kind, key, ANOTHER)).await;
        release(backend, of(kind, key, ANOTHER)).await;
        free(backend, key).await;
    }
}

async fn who_gives_up_holds_nobody_back(backend: &dyn Backend) {
    let key = "conformance:kinds:gives-up";
    for kind in [Kind::Read, Kind::Permits(5)] {
        let writer = entry(key, THEIRS).returning_within(LONG_TTL);
        granted(backend, of(kind, key, OURS)).await;
        refused(backend, writer).await;
        refused(backend, of(kind, key, ANOTHER)).await;
        release(backend, writer).await;
        granted(backend, of(kind, key, ANOTHER)).await;
        release(backend, of(kind, key, OURS)).await;
        release(backend, of(kind, key, ANOTHER)).await;
        free(backend, key).await;
    }
}

async fn who_does_not_come_back_holds_nobody_back_for_long(backend: &dyn Backend) {
    let key = "conformance:kinds:never-returns";
    granted(backend, reader(key, OURS)).await;
    refused(backend, entry(key, THEIRS).returning_within(TTL)).await;
    refused(backend, reader(key, ANOTHER)).await;
    in_the_end(backend, reader(key, ANOTHER)).await;
    // Who does not mean to come back holds nobody back at all.
    refused(backend, entry(key, THEIRS)).await;
    granted(backend, reader(key, THEIRS)).await;
    for value in [OURS, THEIRS, ANOTHER] {
        release(backend, reader(key, value)).await;
    }
    free(backend, key).await;
}

async fn several_shares_are_taken_or_none(backend: &dyn Backend) {
    let keys = ["conformance:kinds:several:1", "conformance:kinds:several:2", "conformance:kinds:several:3"];
    for kind in [Kind::Read, Kind::Permits(2)] {
        let entries = keys.map(|key| of(kind, key, OURS));
        granted(backend, entry(keys[1], THEIRS)).await;
        let refused = backend.acquire_all(&entries, &mut None).await.expect("it is answered");
        assert!(matches!(&refused, AcquiredAll::Held { index: 1, value, .. } if value == THEIRS), "{refused:?}");
        free(backend, keys[0]).await;
        free(backend, keys[2]).await;
        release(backend, entry(keys[1], THEIRS)).await;

        granted(backend, of(kind, keys[2], THEIRS)).await;
        let taken = backend.acquire_all(&entries, &mut None).await.expect("it is answered");
        assert_eq!(taken, AcquiredAll::Granted(None), "beside a share of another");
        let writer = keys.map(|key| entry(key, ANOTHER));
        let refused = backend.acquire_all(&writer, &mut None).await.expect("it is answered");
        assert!(matches!(&refused, AcquiredAll::Held { index: 0, value, .. } if value == OURS), "{refused:?}");
        for key in keys {
            assert_eq!(release(backend, of(kind, key, OURS)).await, Released::Freed, "all are taken");
        }
        assert_eq!(release(backend, of(kind, keys[2], THEIRS)).await, Released::Freed, "and nobody else's");
        for key in keys {
            free(backend, key).await;
        }
    }
}
