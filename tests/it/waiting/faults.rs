//! Waiting while holders, waiters and servers die, stand still, or answer late.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use distlock::LockError;

use super::{A_GHOST, LONG, all, line_of, stand_in_line, waits};
use crate::calls::{Failure, connect, redis_key, warm_up};
use harness::eventually::{eventually, soon, within};
use harness::process::Child;
use harness::proxy::{Proxy, Way};
use harness::server::Server;

#[tokio::test]
async fn waiters_that_died_are_passed_over_whatever_their_number() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let guard = manager.lock("k").acquire().await.unwrap();
    let mut children = Vec::new();
    for number in 1..=5 {
        let child = Child::spawn("waiting: wait", &[&server.url(), "4"]).await;
        child.event("waits").await;
        stand_in_line(&server, "k", number).await;
        children.push(child);
    }
    // Killed.
    drop(children);
    let living = tokio::spawn(manager.lock("k").wait(LONG).acquire());
    stand_in_line(&server, "k", 6).await;
    guard.release().await.unwrap();
    let begin = Instant::now();
    let guard = soon("the living one", living).await.unwrap().unwrap();
    assert!(begin.elapsed() < A_GHOST, "{:?}", begin.elapsed());
    guard.release().await.unwrap();
    let forgotten = distlock::backend::FORGET + A_GHOST;
    within(forgotten, "the ghosts to be forgotten", || async { server.dbsize().await == 0 }).await;
}

#[tokio::test]
async fn the_first_in_line_gets_the_lock_when_its_holder_dies() {
    let server = Server::start().await;
    let holder = Child::spawn("waiting: wait", &[&server.url(), "1"]).await;
    holder.event("holds").await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for name in 0..4 {
        tasks.push(waits(&connect(&server.url()).await, name, &order));
        stand_in_line(&server, "k", u64::from(name) + 1).await;
    }
    drop(holder);
    all(tasks).await;
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
}

#[tokio::test]
async fn a_waiter_without_messages_still_gets_its_turn() {
    // A user who may not use channels: nothing is heard, and everything is found by asking.
    let rules = "locks on >password resetkeys ~lock:* resetchannels +@all";
    let server = Server::options().user(rules).start().await;
    let url = format!("redis://locks:password@{}", server.address());
    let (holder, manager) = (connect(&url).await, connect(&url).await);
    let guard = holder.lock("k").acquire().await.unwrap();
    let waiter = tokio::spawn(manager.lock("k").wait(LONG).acquire());
    stand_in_line(&server, "k", 1).await;
    guard.release().await.unwrap();
    let begin = Instant::now();
    let guard = soon("the waiter", waiter).await.unwrap().unwrap();
    assert!(begin.elapsed() < A_GHOST, "{:?}", begin.elapsed());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn lines_survive_that_all_connections_are_killed_again_and_again() {
    let server = Server::start().await;
    let holder = connect(&server.url()).await;
    let guard = holder.lock("k").acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for name in 0..4 {
        tasks.push(waits(&connect(&server.url()).await, name, &order));
        stand_in_line(&server, "k", u64::from(name) + 1).await;
    }
    for _ in 0..10 {
        server.kill_clients("pubsub").await;
        server.kill_clients("normal").await;
        // The pace of the fault.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    guard.release().await.unwrap();
    all(tasks).await;
    assert_eq!(order.lock().unwrap().len(), 4);
    eventually("nothing to be left", || async { server.dbsize().await == 0 }).await;
}

#[tokio::test]
async fn fifty_waiters_survive_a_server_that_stands_still() {
    let server = Server::start().await;
    let holder = connect(&server.url()).await;
    let guard = holder.lock("k").ttl(LONG).acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for name in 0..50 {
        let manager = if name % 10 == 0 { connect(&server.url()).await } else { holder.clone() };
        tasks.push(waits(&manager, name, &order));
    }
    stand_in_line(&server, "k", 6).await;
    server.freeze();
    // The fault: longer than a command may take, and than a waiter may be silent.
    tokio::time::sleep(Duration::from_secs(3)).await;
    server.thaw();
    guard.release().await.unwrap();
    all(tasks).await;
    assert_eq!(order.lock().unwrap().len(), 50);
    eventually("nothing to be left", || async { server.dbsize().await == 0 }).await;
}

#[tokio::test]
async fn waiters_get_their_turns_after_a_restart_of_the_server() {
    let server = Server::start().await;
    let holder = connect(&server.url()).await;
    let guard = holder.lock("k").acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for name in 0..5 {
        tasks.push(waits(&connect(&server.url()).await, name, &order));
        stand_in_line(&server, "k", u64::from(name) + 1).await;
    }
    // With the lock, the line is gone too: whoever asks first has it.
    server.restart().await;
    all(tasks).await;
    assert_eq!(order.lock().unwrap().len(), 5);
    drop(guard);
    eventually("nothing to be left", || async { server.dbsize().await == 0 }).await;
}

/// Whether the message comes or not, and whether it finds somebody who listens: the subscription is slowed down, so that
/// hand-overs fall between the first request and the time when it is there.
#[tokio::test]
async fn no_hand_over_is_missed_for_long_while_the_subscription_is_on_its_way() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let holder = connect(&server.url()).await;
    let mut longest = Duration::ZERO;
    for round in 0..40_u64 {
        // A manager of its own each time, which subscribes anew.
        let manager = connect(&proxy.url()).await;
        proxy.delay(Way::Replies, Duration::from_millis(round % 6));
        let guard = holder.lock("k").acquire().await.unwrap();
        let waiter = tokio::spawn(manager.lock("k").wait(LONG).acquire());
        stand_in_line(&server, "k", 1).await;
        // What is tried out: releases at all points of subscribing.
        tokio::time::sleep(Duration::from_millis(round / 6)).await;
        guard.release().await.unwrap();
        let begin = Instant::now();
        let guard = soon("the waiter", waiter).await.unwrap().unwrap();
        longest = longest.max(begin.elapsed());
        guard.release().await.unwrap();
        proxy.pass();
    }
    assert!(longest < A_GHOST, "{longest:?}");
}

#[tokio::test]
async fn a_late_request_of_one_that_gave_up_does_not_shorten_the_next_ones_lease() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let manager = connect(&proxy.url()).await;
    warm_up(&manager).await;
    proxy.delay(Way::Requests, Duration::from_millis(700));
    let short = manager.lock("k").ttl(Duration::from_millis(200)).wait(Duration::from_millis(1));
    assert!(short.acquire().await.is_err());
    proxy.pass();
    let guard = soon("the next", manager.lock("k").wait(LONG).acquire()).await.unwrap();
    // By then the late request has arrived.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(server.pttl(&redis_key("k")).await > 10_000, "the lease was shortened");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_wait_ends_in_time_where_the_server_does_not_answer() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let manager = connect(&proxy.url()).await;
    proxy.blackhole();
    let begin = Instant::now();
    let error = manager.lock("k").wait(Duration::from_millis(300)).acquire().await.unwrap_err();
    // A command may take a second, and to connect two.
    assert!(begin.elapsed() < Duration::from_millis(900), "{:?}: {error}", begin.elapsed());
    assert!(matches!(error, LockError::Backend { .. }) && error.is_transient(), "{error:?}");
}

#[tokio::test]
async fn what_is_no_line_of_ours_does_not_keep_a_lock_from_being_freed() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let body = async {
        server.set(&line_of("k"), "something else").await;
        Ok::<_, Failure>(7)
    };
    assert_eq!(soon("the call", manager.lock("k").run(body)).await.unwrap(), 7);
    assert!(!server.exists(&redis_key("k")).await);
}

#[tokio::test]
async fn one_that_waits_behind_another_of_its_manager_is_told_of_an_outage() {
    let server = Server::start().await;
    let (holder, manager) = (connect(&server.url()).await, connect(&server.url()).await);
    let _guard = holder.lock("k").acquire().await.unwrap();
    let first = tokio::spawn(manager.lock("k").wait(LONG).acquire());
    stand_in_line(&server, "k", 1).await;
    server.kill();
    // Until the first has found out.
    let error = loop {
        let error = manager.lock("k").wait(Duration::from_millis(300)).acquire().await.unwrap_err();
        if !error.is_busy() {
            break error;
        }
    };
    assert!(matches!(error, LockError::Backend { .. }) && error.is_transient(), "{error:?}");
    first.abort();
}

/// As the time of one ends, the next has its turn for the rest of its own: next to nothing. That its only request was cut short says
/// nothing of the server.
#[tokio::test]
async fn who_has_its_turn_when_its_time_is_over_hears_of_the_holder_and_not_of_the_server() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let guard = connect(&server.url()).await.lock("k").ttl(LONG).acquire().await.unwrap();
    let manager = connect(&proxy.url()).await;
    warm_up(&manager).await;
    for way in [Way::Requests, Way::Replies] {
        proxy.delay(way, Duration::from_millis(10));
    }
    let mut waiters = Vec::new();
    for _ in 0..20 {
        waiters.push(tokio::spawn(manager.lock("k").wait(Duration::from_secs(2)).acquire()));
        // They come, and so give up, one after the other, faster than the server can be asked.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for waiter in waiters {
        let error = soon("a waiter to give up", waiter).await.unwrap().unwrap_err();
        assert!(error.is_busy(), "{error:?}");
    }
    guard.release().await.unwrap();
}
