//! Those who hold, wait or come back, and are dead or stand still meanwhile.

use std::time::Duration;

use distlock::LostReason;

use super::{Kind, LONG, has_shares, is_refused, members, nothing_is_left, owned, stand_in_line};
use crate::calls::{FOR_EVER, brisk, connect, redis_key};
use harness::eventually::{soon, within};
use harness::process::Child;
use harness::server::Server;

/// For how long a waiter that is silent stands in the way: a second to be passed over, a second in which what was handed over
/// to it can be claimed, and as much for two slow cores.
const A_GHOST: Duration = Duration::from_secs(6);

#[tokio::test]
async fn the_permit_of_a_dead_holder_is_the_first_waiter_s_though_others_hold_on() {
    let server = Server::start().await;
    let managers = [connect(&server.url()).await, connect(&server.url()).await, connect(&server.url()).await];
    let permit = |at: usize| Kind::Permits(2).lock(&managers[at], "k");
    let kept = permit(0).ttl(FOR_EVER).acquire().await.unwrap();
    let dead = permit(0).ttl(Duration::from_secs(3)).watchdog(false).acquire().await.unwrap();
    let first = tokio::spawn(permit(1).wait(LONG).acquire());
    stand_in_line(&server, "k", 1).await;
    let second = tokio::spawn(permit(2).wait(LONG).acquire());
    stand_in_line(&server, "k", 2).await;
    let guard = soon("the first", first).await.unwrap().unwrap();
    assert!(!dead.lease().is_held(), "its lease was not over");
    assert!(!second.is_finished());
    kept.lease().ensure_held().unwrap();
    guard.release().await.unwrap();
    soon("the second", second).await.unwrap().unwrap().release().await.unwrap();
    kept.release().await.unwrap();
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_writer_in_line_gets_in_when_the_last_of_dead_readers_leases_is_over() {
    let server = Server::start().await;
    let (readers, writer) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut dead = Vec::new();
    for seconds in [1, 4, 2] {
        let request = Kind::Read.lock(&readers, "k").ttl(Duration::from_secs(seconds)).watchdog(false);
        dead.push(request.acquire().await.unwrap());
    }
    let guard = soon("the writer", Kind::Write.lock(&writer, "k").wait(LONG).acquire()).await.unwrap();
    assert!(dead.iter().all(|guard| !guard.lease().is_held()), "a lease was not over");
    guard.release().await.unwrap();
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn readers_behind_a_writer_that_died_in_line_join_those_who_hold() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let reader = Kind::Read.lock(&manager, "k").ttl(FOR_EVER).acquire().await.unwrap();
    let child = Child::spawn("kinds: wait to write", &[&server.url(), "k", "wait"]).await;
    child.event("asks").await;
    stand_in_line(&server, "k", 1).await;
    let mut late = Vec::new();
    for number in 0..3 {
        late.push(tokio::spawn(Kind::Read.lock(&connect(&server.url()).await, "k").wait(LONG).acquire()));
        stand_in_line(&server, "k", number + 2).await;
    }
    assert!(late.iter().all(|late| !late.is_finished()));
    child.kill();
    let joined = || async { late.iter().all(tokio::task::JoinHandle::is_finished) };
    within(A_GHOST, "the readers", joined).await;
    reader.lease().ensure_held().unwrap();
    for late in late {
        late.await.unwrap().unwrap().release().await.unwrap();
    }
    reader.release().await.unwrap();
}

/// It is handed the lock and does nothing with it.
#[tokio::test]
async fn one_that_nobody_polls_keeps_nobody_behind_it_waiting() {
    let server = Server::start().await;
    let managers = [connect(&server.url()).await, connect(&server.url()).await, connect(&server.url()).await];
    for (stuck, behind) in [(Kind::Read, Kind::Write), (Kind::Permits(1), Kind::Permits(1)), (Kind::Write, Kind::Read)]
    {
        let held = Kind::Plain.lock(&managers[0], "k").acquire().await.unwrap();
        let mut first = Box::pin(stuck.lock(&managers[1], "k").wait(LONG).acquire());
        let stands = stand_in_line(&server, "k", 1);
        tokio::select! { _ = &mut first => unreachable!(), () = stands => {} }
        let second = tokio::spawn(behind.lock(&managers[2], "k").wait(LONG).acquire());
        stand_in_line(&server, "k", 2).await;
        held.release().await.unwrap();
        let guard = soon("the second", second).await.unwrap().unwrap();
        guard.release().await.unwrap();
        soon("the first, polled again", first).await.unwrap().release().await.unwrap();
        nothing_is_left(&server).await;
    }
}

/// What B21 has for permits.
#[tokio::test]
async fn a_reader_that_stood_still_takes_nothing_from_the_writer_that_came_after_it() {
    let server = Server::start().await;
    let manager = owned(&server, "living").await;
    let child = Child::spawn("kinds: hold and tell", &[&server.url(), "k", "read", "1000", "3"]).await;
    for _ in 0..3 {
        child.event("holds").await;
    }
    has_shares(&server, "k", 3).await;
    child.stop();
    let request = Kind::Write.lock(&manager, "k").ttl(FOR_EVER).retry(u32::MAX).backoff(brisk());
    let writer = soon("the writer", request.acquire()).await.unwrap();
    let before = server.get(&redis_key("k")).await;
    let monitor = server.monitor().await;
    child.cont();
    for _ in 0..3 {
        let reason = child.event("lost").await;
        let expected = [LostReason::Expired, LostReason::Gone].map(|reason| format!("{reason:?}"));
        assert!(expected.contains(&reason), "{reason}");
    }
    child.event("done").await;
    assert_eq!(server.get(&redis_key("k")).await, before);
    for command in ["\"zadd\"", "\"set\"", "\"del\"", "\"pexpire\""] {
        let lines = monitor.lines_with(&[&redis_key("k"), " lua]", command]).await;
        assert!(lines.is_empty(), "something was changed: {lines:#?}");
    }
    writer.release().await.unwrap();
    nothing_is_left(&server).await;
}

/// The same where other readers go on: its share must not come back.
#[tokio::test]
async fn a_reader_that_stood_still_does_not_come_back_among_other_readers() {
    let server = Server::start().await;
    let manager = owned(&server, "living").await;
    let reader = Kind::Read.lock(&manager, "k").ttl(Duration::from_secs(2)).acquire().await.unwrap();
    let child = Child::spawn("kinds: hold and tell", &[&server.url(), "k", "read", "1000", "2"]).await;
    for _ in 0..2 {
        child.event("holds").await;
    }
    child.stop();
    has_shares(&server, "k", 1).await;
    child.cont();
    for _ in 0..2 {
        child.event("lost").await;
    }
    child.event("done").await;
    assert_eq!(members(&server, "k").await, [format!("r:{}/living", reader.lease().token())]);
    reader.lease().ensure_held().unwrap();
    assert_eq!(is_refused(Kind::Plain.lock(&manager, "k")).await, "living");
    reader.release().await.unwrap();
    nothing_is_left(&server).await;
}
