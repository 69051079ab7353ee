//! So many holders at once.

use std::sync::Mutex;
use std::time::Duration;

use distlock::LostReason;

use super::{Kind, LONG, has_shares, is_refused, members, nothing_is_left, owned, shares};
use crate::calls::{FOR_EVER, brisk, redis_key};
use harness::eventually::{eventually, within};
use harness::faketime::FakeClock;
use harness::process::Child;
use harness::server::Server;

#[tokio::test]
async fn so_many_hold_a_lock_at_once_and_no_more() {
    let server = Server::start().await;
    let (one, other) = (owned(&server, "one").await, owned(&server, "other").await);
    let permit = |manager| Kind::Permits(3).lock(manager, "k").ttl(LONG).acquire();
    let mut guards = Vec::new();
    for manager in [&one, &other, &other] {
        guards.push(permit(manager).await.unwrap());
    }
    for _ in 0..2 {
        let told = is_refused(Kind::Permits(3).lock(&one, "k")).await;
        assert!(told.ends_with(" and 2 others"), "{told}");
        let held = members(&server, "k").await;
        assert_eq!(held.len(), 3);
        assert!(held.iter().all(|member| member.starts_with("p3:")), "{held:?}");
        guards.remove(0).release().await.unwrap();
        guards.push(permit(&one).await.unwrap());
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(server.keys().await, [""; 0]);
}

#[tokio::test]
async fn one_permit_is_a_lock_of_its_own_kind() {
    let server = Server::start().await;
    let (one, other) = (owned(&server, "one").await, owned(&server, "other").await);
    let guard = Kind::Permits(1).lock(&one, "k").acquire().await.unwrap();
    for kind in [Kind::Permits(1), Kind::Permits(2), Kind::Read, Kind::Write, Kind::Plain] {
        let expected = if kind == Kind::Permits(2) { "one, who asked for permits = 1" } else { "one" };
        assert_eq!(is_refused(kind.lock(&other, "k")).await, expected, "{kind:?}");
    }
    guard.release().await.unwrap();
    assert_eq!(server.keys().await, [""; 0]);
}

#[tokio::test]
async fn of_those_who_disagree_the_smallest_number_counts() {
    let server = Server::start().await;
    let manager = owned(&server, "one").await;
    // The numbers of those who hold, the one of who asks, and whether it gets a permit.
    let table: [(&[u32], u32, bool); 10] = [
        (&[5, 5], 5, true),
        (&[5, 5], 3, true),
        (&[5, 5], 2, false),
        (&[5, 5], 1, false),
        (&[2], 5, true),
        (&[2, 5], 5, false),
        (&[5, 2], 10_000, false),
        (&[10_000], 1, false),
        (&[1], 10_000, false),
        (&[10_000, 3], 9_999, true),
    ];
    for (held, asked, expected) in table {
        let mut guards = Vec::new();
        for permits in held {
            guards.push(Kind::Permits(*permits).lock(&manager, "k").acquire().await.unwrap());
        }
        let outcome = Kind::Permits(asked).lock(&manager, "k").acquire().await;
        assert_eq!(outcome.is_ok(), expected, "{asked} beside {held:?}: {outcome:?}");
        guards.extend(outcome);
        for guard in guards {
            guard.release().await.unwrap();
        }
        assert_eq!(server.keys().await, [""; 0], "left after {asked} beside {held:?}");
    }
}

#[tokio::test]
async fn a_small_number_counts_for_as_long_as_somebody_holds_it() {
    let server = Server::start().await;
    let manager = owned(&server, "one").await;
    let permit = |permits: u32| Kind::Permits(permits).lock(&manager, "k");
    let small = permit(2).acquire().await.unwrap();
    let another_small = permit(2).acquire().await.unwrap();
    is_refused(permit(3)).await;
    small.release().await.unwrap();
    let large = permit(3).acquire().await.unwrap();
    // There is still one who was promised no more than another one.
    is_refused(permit(3)).await;
    another_small.release().await.unwrap();
    let more = [permit(3).acquire().await.unwrap(), permit(3).acquire().await.unwrap()];
    is_refused(permit(3)).await;
    // Nor does a number count whose holder is dead.
    for guard in more {
        guard.release().await.unwrap();
    }
    let dead = permit(2).ttl(Duration::from_secs(3)).watchdog(false).acquire().await.unwrap();
    is_refused(permit(3)).await;
    let late = permit(3).retry(u32::MAX).backoff(brisk()).acquire().await.unwrap();
    let last = permit(3).acquire().await.unwrap();
    assert_eq!(shares(&server, "k").await.len(), 3);
    drop((dead, late, last, large));
    nothing_is_left(&server).await;
}

/// B21: a process with two of three permits is killed.
#[tokio::test]
async fn permits_of_a_dead_process_come_back_after_its_ttl() {
    let server = Server::start().await;
    let manager = owned(&server, "living").await;
    let permit = || Kind::Permits(3).lock(&manager, "k");
    let child = Child::spawn("kinds: hold and tell", &[&server.url(), "k", "3", "4000", "2"]).await;
    for _ in 0..2 {
        child.event("holds").await;
    }
    let ours = permit().acquire().await.unwrap();
    child.kill();
    is_refused(permit()).await;
    let taken = Mutex::new(Vec::new());
    let take = || async {
        match permit().acquire().await {
            Ok(guard) => {
                taken.lock().unwrap().push(guard);
                true
            }
            Err(_) => false,
        }
    };
    // One ttl, and what a crowded machine takes for a few commands.
    within(Duration::from_secs(4 + 5), "the dead one's permits", take).await;
    within(Duration::from_secs(5), "both of them", take).await;
    is_refused(permit()).await;
    assert_eq!(shares(&server, "k").await.len(), 3);
    ours.lease().ensure_held().unwrap();
}

/// B21: a process with two of three permits stands still for longer than its leases last, and then goes on.
#[tokio::test]
async fn a_process_that_comes_back_takes_nothing_from_those_who_have_its_permits_now() {
    let server = Server::start().await;
    let manager = owned(&server, "living").await;
    let permit = || Kind::Permits(3).lock(&manager, "k").ttl(FOR_EVER);
    let child = Child::spawn("kinds: hold and tell", &[&server.url(), "k", "3", "1000", "2"]).await;
    for _ in 0..2 {
        child.event("holds").await;
    }
    let mut guards = vec![permit().acquire().await.unwrap()];
    child.stop();
    for _ in 0..2 {
        guards.push(permit().retry(u32::MAX).backoff(brisk()).acquire().await.unwrap());
    }
    let tokens = || async {
        let mut tokens = members(&server, "k").await;
        tokens.sort();
        tokens
    };
    let before = tokens().await;
    assert_eq!(before.len(), 3, "{before:?}");
    let monitor = server.monitor().await;
    child.cont();
    for _ in 0..2 {
        let reason = child.event("lost").await;
        let expected = [LostReason::Expired, LostReason::Gone].map(|reason| format!("{reason:?}"));
        assert!(expected.contains(&reason), "{reason}");
    }
    child.event("done").await;
    assert_eq!(tokens().await, before, "the returning process has changed who holds the permits");
    let lines = monitor.lines_with(&[&redis_key("k"), " lua]", "\"zadd\""]).await;
    assert!(lines.is_empty(), "something was renewed or set: {lines:#?}");
    is_refused(permit()).await;
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(server.keys().await, [""; 0]);
}

/// What stands on the server goes by the server's clock alone.
#[tokio::test]
async fn a_client_whose_clock_is_wrong_holds_a_permit_for_as_long_as_any_other() {
    let server = Server::start().await;
    let manager = owned(&server, "living").await;
    let clock = FakeClock::new();
    let environment = clock.environment();
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    for (hours, kind) in [(1, "read"), (-1, "read"), (1, "2"), (-1, "2")] {
        clock.jump_to(3_600 * hours);
        let arguments = [&server.url(), "k", kind, "3000", "1"];
        let child = Child::spawn_with("kinds: hold and tell", &arguments, &environment).await;
        child.event("holds").await;
        has_shares(&server, "k", 1).await;
        let first = shares(&server, "k").await;
        assert!(first.iter().all(|share| share.remaining <= 3_000), "{first:?} by a clock {hours} h off");
        // Other clients let it live, and renewals go by the same clock.
        is_refused(Kind::Plain.lock(&manager, "k")).await;
        let expires = async || super::time(&server).await + shares(&server, "k").await[0].remaining;
        let before = expires().await;
        eventually("a renewal", || async { expires().await > before + 200 }).await;
        child.kill();
        // One ttl, and what a crowded machine takes for a few commands. Not until the share has expired, but until nothing
        // stands there: a name lives one millisecond longer than what expires with it.
        let gone = || async { !server.exists(&redis_key("k")).await };
        within(Duration::from_secs(3 + 5), "the dead one's share to end", gone).await;
        Kind::Plain.lock(&manager, "k").acquire().await.unwrap().release().await.unwrap();
    }
}
