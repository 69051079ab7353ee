//! The leases of those who share a lock: renewed, lost and ended each for itself.

use std::time::Duration;

use distlock::backend::{self, Acquired, Attempt, Entry, Released, Renewed};
use distlock::{LockError, LostReason, OnLost};

use redis::cmd;

use super::{Kind, LONG, has_shares, is_refused, line_of, mark_of, members, nothing_is_left, owned, shares, time};
use crate::calls::{Body, Call, FOR_EVER, Failure, brisk, connect, redis_key};
use harness::eventually::{eventually, soon};
use harness::faketime::FakeClock;
use harness::server::Server;

const SHARED: [Kind; 2] = [Kind::Read, Kind::Permits(3)];
/// Renewed every half second and more, which two slow cores get done in time.
const TTL: Duration = Duration::from_secs(2);

#[tokio::test]
async fn each_is_renewed_over_many_ttls() {
    let server = Server::start().await;
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    for kind in SHARED {
        let mut calls = Vec::new();
        for manager in [&one, &one, &other] {
            calls.push(Call::under(kind.lock(manager, "k").ttl(TTL)).await);
        }
        for _ in 0..5 {
            // When the first of them ends unless it is renewed. It is, so all of them have been by then.
            let first = time(&server).await + shares(&server, "k").await[0].remaining;
            eventually("the time", || async { time(&server).await > first }).await;
            let now = shares(&server, "k").await;
            assert_eq!(now.len(), 3, "{now:?}");
            is_refused(Kind::Write.lock(&one, "k")).await;
        }
        for call in calls {
            call.finished().await.unwrap();
        }
        assert_eq!(server.keys().await, [""; 0]);
    }
}

#[tokio::test]
async fn without_renewal_the_body_of_one_is_stopped_and_the_others_go_on() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    for kind in SHARED {
        let other = Call::under(kind.lock(&manager, "k").ttl(TTL)).await;
        let call = Call::under(kind.lock(&manager, "k").ttl(TTL).watchdog(false)).await;
        assert_eq!(call.ended().await.unwrap_err().lost(), LostReason::Expired);
        has_shares(&server, "k", 1).await;
        other.finished().await.unwrap();
        assert_eq!(server.keys().await, [""; 0]);
    }
}

#[tokio::test]
async fn a_share_that_is_taken_away_stops_its_own_body_alone() {
    let server = Server::start().await;
    let manager = owned(&server, "one").await;
    for kind in SHARED {
        let other = Call::under(kind.lock(&manager, "k").ttl(TTL)).await;
        let before = shares(&server, "k").await;
        let call = Call::under(kind.lock(&manager, "k").ttl(TTL)).await;
        let now = shares(&server, "k").await;
        let ours = now.iter().find(|share| share.member != before[0].member).unwrap();
        let (_, value) = ours.member.split_once(':').unwrap();
        let share = match kind {
            Kind::Permits(permits) => backend::Kind::Permits(permits),
            _ => backend::Kind::Read,
        };
        let entry = Entry::new("k", value, TTL, LONG).with_kind(share);
        assert_eq!(manager.backend().release(entry).await.unwrap(), Released::Freed);
        assert_eq!(call.ended().await.unwrap_err().lost(), LostReason::Gone);
        assert!(other.body.is_running());
        has_shares(&server, "k", 1).await;
        other.finished().await.unwrap();
        assert_eq!(server.keys().await, [""; 0]);
    }
}

#[tokio::test]
async fn a_deleted_or_replaced_key_stops_all_and_nobody_sets_it_again() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    for kind in SHARED {
        for replaced in [false, true] {
            let mut calls = Vec::new();
            for _ in 0..3 {
                calls.push(Call::under(kind.lock(&manager, "k").ttl(TTL)).await);
            }
            assert!(server.del(&redis_key("k")).await);
            if replaced {
                server.set_for(&redis_key("k"), "another/holder", FOR_EVER).await;
            }
            for call in calls {
                assert_eq!(call.ended().await.unwrap_err().lost(), LostReason::Gone);
            }
            let found = server.get(&redis_key("k")).await;
            assert_eq!(found.as_deref(), replaced.then_some("another/holder"), "what others have set was changed");
            assert_eq!(server.del(&redis_key("k")).await, replaced);
            assert_eq!(server.keys().await, [""; 0]);
        }
    }
}

#[tokio::test]
async fn a_body_that_is_to_finish_does_so_and_is_told_by_its_lease() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    for kind in SHARED {
        let body = Body::default();
        let request = kind.lock(&manager, "k").ttl(TTL).on_lost(OnLost::Finish);
        let call = tokio::spawn(request.run(body.clone().future(Ok::<_, Failure>(7))));
        body.runs().await;
        assert!(server.del(&redis_key("k")).await);
        // Others get in meanwhile, and its end leaves them alone.
        let other = kind.lock(&manager, "k").acquire().await.unwrap();
        // Longer than a ttl: long enough for its renewal to notice.
        tokio::time::sleep(TTL).await;
        assert!(body.is_running());
        body.finish();
        assert_eq!(soon("the call", call).await.unwrap().unwrap(), 7);
        assert_eq!(shares(&server, "k").await.len(), 1);
        other.release().await.unwrap();
        nothing_is_left(&server).await;
    }
}

#[tokio::test]
async fn a_stuck_body_is_stopped_after_its_longest_hold_and_the_others_go_on() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    for kind in SHARED {
        let other = Call::under(kind.lock(&manager, "k").ttl(TTL)).await;
        let request = kind.lock(&manager, "k").ttl(TTL).max_hold(2 * TTL);
        let outcome = soon("the call", request.run(std::future::pending::<Result<(), Failure>>())).await;
        let Err(Failure::Lock(LockError::Lost { reason, held_for, .. })) = outcome else { panic!("{outcome:?}") };
        assert_eq!(reason, LostReason::HeldTooLong);
        assert!(held_for + Duration::from_millis(100) >= 2 * TTL, "stopped after {held_for:?} already");
        has_shares(&server, "k", 1).await;
        other.finished().await.unwrap();
        nothing_is_left(&server).await;
    }
}

#[tokio::test]
async fn guards_that_are_dropped_free_their_own_shares() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    for kind in SHARED {
        let kept = kind.lock(&manager, "k").ttl(FOR_EVER).acquire().await.unwrap();
        for _ in 0..3 {
            drop(kind.lock(&manager, "k").ttl(FOR_EVER).acquire().await.unwrap());
            has_shares(&server, "k", 1).await;
        }
        kept.lease().ensure_held().unwrap();
        // On a thread without a runtime.
        std::thread::spawn(move || drop(kept)).join().unwrap();
        nothing_is_left(&server).await;
    }
}

#[tokio::test]
async fn a_shutdown_frees_all_that_its_manager_holds_and_nothing_else() {
    let server = Server::start().await;
    let (closing, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let kept = Kind::Read.lock(&other, "r").acquire().await.unwrap();
    let mut calls = Vec::new();
    for (key, kind) in [("r", Kind::Read), ("r", Kind::Read), ("p", Kind::Permits(3)), ("p", Kind::Permits(3))] {
        calls.push(Call::under(kind.lock(&closing, key).ttl(FOR_EVER)).await);
    }
    // One that waits, and one that tries, to write.
    let waiting = [
        tokio::spawn(Kind::Write.lock(&closing, "r").wait(LONG).acquire()),
        tokio::spawn(Kind::Write.lock(&closing, "p").retry(u32::MAX).acquire()),
    ];
    super::stand_in_line(&server, "r", 1).await;
    eventually("the mark", || async { server.exists(&mark_of("p")).await }).await;
    soon("the shutdown", closing.shutdown(Duration::ZERO)).await;
    for call in calls {
        assert_eq!(call.ended().await.unwrap_err().lost(), LostReason::Shutdown);
    }
    for waiting in waiting {
        let outcome = soon("the wait to end", waiting).await.unwrap();
        assert!(matches!(outcome, Err(LockError::ShuttingDown)), "{outcome:?}");
    }
    assert_eq!(shares(&server, "r").await.len(), 1);
    kept.lease().ensure_held().unwrap();
    kept.release().await.unwrap();
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn what_is_renewed_after_the_server_s_clock_was_set_back_lasts_for_its_ttl() {
    let clock = FakeClock::new();
    let server = Server::options().clock(&clock).start().await;
    let manager = owned(&server, "one").await;
    for (hours, kind) in (1..).zip([backend::Kind::Exclusive, backend::Kind::Read, backend::Kind::Permits(2)]) {
        let value = "00000000-0000-4000-8000-000000000000/another";
        let entry = Entry::new("k", value, TTL, LONG).with_kind(kind);
        let granted = manager.backend().acquire(entry, Attempt::First, &mut None).await.unwrap();
        assert_eq!(granted, Acquired::Granted(None));
        clock.jump_to(-3_600 * hours);
        assert_eq!(manager.backend().renew(&[entry]).await.remove(0).unwrap(), Renewed::Extended, "{kind:?}");
        // By the old clock it would last for an hour.
        let request = Kind::Write.lock(&manager, "k").retry(u32::MAX).backoff(brisk());
        soon("its end", request.acquire()).await.unwrap().release().await.unwrap();
        nothing_is_left(&server).await;
    }
}

/// A place or a mark that a release finds beside the lock is not the lock.
#[tokio::test]
async fn a_lock_that_is_gone_is_lost_though_its_release_gives_up_a_mark() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    for kind in [Kind::Write, Kind::Read, Kind::Permits(3)] {
        let guard = kind.lock(&manager, "k").ttl(FOR_EVER).wait(LONG).acquire().await.unwrap();
        let value = match kind {
            Kind::Write => format!(":{}", server.get(&redis_key("k")).await.unwrap()),
            _ => members(&server, "k").await.remove(0),
        };
        // As a request does that comes late, beside somebody who has died in the line.
        let ends = u64::try_from(time(&server).await).unwrap() + 60_000;
        server.query::<()>(cmd("ZADD").arg(mark_of("k")).arg(ends).arg(&value)).await.unwrap();
        server
            .query::<()>(cmd("ZADD").arg(line_of("k")).arg(1).arg(format!("q{}:dead", "d".repeat(32))))
            .await
            .unwrap();
        server.del(&redis_key("k")).await;
        let released = guard.release().await;
        assert!(matches!(&released, Err(LockError::Lost { reason: LostReason::Gone, .. })), "{kind:?}: {released:?}");
        assert!(!server.exists(&mark_of("k")).await, "{kind:?}: the mark is given up");
        server.del(&line_of("k")).await;
        nothing_is_left(&server).await;
    }
}
