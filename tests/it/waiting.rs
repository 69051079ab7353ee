//! Standing in line: order, hand-over, the death of holders and waiters, lost messages, what is left on the server.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager};
use redis::cmd;

use crate::calls::{Failure, connect, is_freed, redis_key, warm_up};
use crate::harness::eventually::{eventually, soon, within};
use crate::harness::process::{Child, emit};
use crate::harness::proxy::{Proxy, Way};
use crate::harness::server::Server;

const LONG: Duration = Duration::from_secs(60);

/// For how long a waiter that is silent stands in the way: a second to be passed over, a second in which a lock that was
/// handed over to it can be claimed, and as much for two slow cores.
const A_GHOST: Duration = Duration::from_secs(4);

fn line_of(key: &str) -> String {
    format!("{}:line", redis_key(key))
}

async fn length(server: &Server, key: &str) -> u64 {
    server.query(cmd("ZCOUNT").arg(line_of(key)).arg(0).arg("+inf")).await.unwrap()
}

/// Returns once so many stand in the server's line.
async fn stand_in_line(server: &Server, key: &str, many: u64) {
    eventually("the line to form", || async { length(server, key).await == many }).await;
}

/// A call that waits, and notes its name when it has the lock.
fn waits(manager: &LockManager, name: u32, order: &Arc<Mutex<Vec<u32>>>) -> tokio::task::JoinHandle<()> {
    let (request, order) = (manager.lock("k").wait(LONG), order.clone());
    tokio::spawn(async move {
        let guard = request.acquire().await.unwrap();
        order.lock().unwrap().push(name);
        guard.release().await.unwrap();
    })
}

async fn all(tasks: Vec<tokio::task::JoinHandle<()>>) {
    for task in tasks {
        soon("a waiter to get its turn", task).await.unwrap();
    }
}

#[tokio::test]
async fn a_free_lock_is_taken_at_once_and_nothing_is_left_behind() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let guard = manager.lock("k").wait(LONG).acquire().await.unwrap();
    assert!(guard.lease().is_held());
    guard.release().await.unwrap();
    assert_eq!(server.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn managers_are_served_in_the_order_in_which_they_came() {
    let server = Server::start().await;
    let holder = connect(&server.url()).await;
    let guard = holder.lock("k").acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for name in 0..8 {
        let manager = connect(&server.url()).await;
        tasks.push(waits(&manager, name, &order));
        stand_in_line(&server, "k", u64::from(name) + 1).await;
    }
    guard.release().await.unwrap();
    all(tasks).await;
    assert_eq!(*order.lock().unwrap(), (0..8).collect::<Vec<_>>());
    is_freed(&server, "k").await;
    assert_eq!(server.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn callers_of_one_manager_stand_in_the_server_s_line_as_one_and_are_served_in_their_order() {
    let server = Server::start().await;
    let (holder, manager) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.lock("k").acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for name in 0..40 {
        tasks.push(waits(&manager, name, &order));
        tokio::task::yield_now().await;
    }
    stand_in_line(&server, "k", 1).await;
    guard.release().await.unwrap();
    all(tasks).await;
    assert_eq!(*order.lock().unwrap(), (0..40).collect::<Vec<_>>());
    is_freed(&server, "k").await;
    assert_eq!(server.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_waiter_that_gives_up_says_who_holds_the_lock_and_leaves_no_trace() {
    let server = Server::start().await;
    let (holder, manager) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.lock("k").acquire().await.unwrap();
    let begin = Instant::now();
    let error = manager.lock("k").wait(Duration::from_millis(500)).acquire().await.unwrap_err();
    let LockError::Busy { holder, remaining, attempts, waited, .. } = &error else { panic!("{error:?}") };
    assert!(holder.contains('/') && *remaining > Duration::from_secs(20) && *attempts >= 1, "{error}");
    assert!(*waited >= Duration::from_millis(500) && begin.elapsed() >= *waited, "{waited:?}");
    eventually("the line to be gone", || async { !server.exists(&line_of("k")).await }).await;
    guard.release().await.unwrap();
    assert_eq!(server.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn one_that_waits_behind_another_of_its_manager_is_told_who_holds_the_lock() {
    let server = Server::start().await;
    let (holder, manager) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.lock("k").acquire().await.unwrap();
    let first = tokio::spawn(manager.lock("k").wait(LONG).acquire());
    stand_in_line(&server, "k", 1).await;
    let error = manager.lock("k").wait(Duration::from_millis(300)).acquire().await.unwrap_err();
    let LockError::Busy { holder, remaining, .. } = &error else { panic!("{error:?}") };
    assert!(holder.contains('/') && *remaining > Duration::from_secs(20), "{error}");
    guard.release().await.unwrap();
    let ours = soon("the first to get it", first).await.unwrap().unwrap();
    let error = manager.lock("k").wait(Duration::from_millis(300)).acquire().await.unwrap_err();
    assert!(error.is_busy() && error.to_string().contains(holder.as_str()), "{error}");
    ours.release().await.unwrap();
}

#[tokio::test]
async fn the_next_of_its_manager_takes_the_place_of_one_that_gives_up() {
    let server = Server::start().await;
    let holder = connect(&server.url()).await;
    let guard = holder.lock("k").acquire().await.unwrap();
    let (early, late) = (connect(&server.url()).await, connect(&server.url()).await);
    let order = Arc::new(Mutex::new(Vec::new()));
    let gives_up = tokio::spawn(early.lock("k").wait(LONG).acquire());
    stand_in_line(&server, "k", 1).await;
    let second = waits(&early, 1, &order);
    tokio::task::yield_now().await;
    let third = waits(&late, 2, &order);
    stand_in_line(&server, "k", 2).await;
    gives_up.abort();
    // The new first gives its sign of life in the old one's place.
    eventually("the place to be taken over", || async { length(&server, "k").await == 2 }).await;
    guard.release().await.unwrap();
    all(vec![second, third]).await;
    assert_eq!(*order.lock().unwrap(), [1, 2]);
}

#[tokio::test]
async fn retry_and_wait_together_end_with_whichever_ends_first() {
    let server = Server::start().await;
    let (holder, manager) = (connect(&server.url()).await, connect(&server.url()).await);
    let _guard = holder.lock("k").acquire().await.unwrap();
    let begin = Instant::now();
    let error = manager.lock("k").wait(LONG).retry(1).acquire().await.unwrap_err();
    assert!(error.is_busy() && begin.elapsed() < LONG / 2, "the tries end first: {error}");
    let error = manager.lock("k").wait(Duration::from_millis(50)).retry(u32::MAX).acquire().await.unwrap_err();
    assert!(error.is_busy() && begin.elapsed() < LONG / 2, "the wait ends first: {error}");
}

/// A role: waits for the lock with so many tasks, and says so when one has it.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn wait_in_a_child(arguments: &[&str]) {
    let [url, tasks] = arguments[..] else { panic!("{arguments:?}") };
    let manager = connect(url).await;
    let tasks: Vec<_> = (0..tasks.parse().unwrap())
        .map(|_| {
            let request = manager.lock("k").ttl(Duration::from_secs(3)).wait(LONG);
            tokio::spawn(async move {
                let guard = request.acquire().await.unwrap();
                emit("holds", guard.lease().token());
                // As long as this process lives.
                std::future::pending::<()>().await;
            })
        })
        .collect();
    emit("waits", "");
    for task in tasks {
        task.await.unwrap();
    }
}

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

#[tokio::test]
async fn a_waiter_that_is_dropped_at_any_point_leaves_no_trace() {
    let server = Server::start().await;
    let (holder, manager) = (connect(&server.url()).await, connect(&server.url()).await);
    warm_up(&manager).await;
    for step in 0..100 {
        let guard = holder.lock("k").acquire().await.unwrap();
        let waiter = tokio::spawn(manager.lock("k").wait(LONG).acquire());
        let release = tokio::spawn(guard.release());
        // The time of the drop is what is tried out.
        tokio::time::sleep(Duration::from_micros(40 * step)).await;
        waiter.abort();
        drop(waiter.await);
        release.await.unwrap().unwrap();
        eventually("nothing to be left", || async { server.dbsize().await == 0 }).await;
    }
}

#[tokio::test]
async fn a_waiter_ends_at_once_when_its_manager_shuts_down() {
    let server = Server::start().await;
    let (holder, manager) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.lock("k").acquire().await.unwrap();
    let waiters: Vec<_> = (0..3).map(|_| tokio::spawn(manager.lock("k").wait(LONG).acquire())).collect();
    stand_in_line(&server, "k", 1).await;
    manager.shutdown(LONG).await;
    for waiter in waiters {
        let outcome = soon("a waiter to end", waiter).await.unwrap();
        assert!(matches!(outcome, Err(LockError::ShuttingDown)), "{outcome:?}");
    }
    guard.release().await.unwrap();
    assert_eq!(server.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_lock_that_is_passed_on_within_a_process_is_renewed_and_has_a_token_of_its_own_each_time() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let mut tokens = Vec::new();
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            let request = manager.lock("k").ttl(Duration::from_millis(900)).wait(LONG).fencing_token(true);
            tokio::spawn(async move {
                let guard = request.acquire().await.unwrap();
                let lease = guard.lease().clone();
                let body = async {
                    // Longer than the ttl: only renewals keep it.
                    tokio::time::sleep(Duration::from_millis(1_200)).await;
                    lease.ensure_held()
                };
                body.await.unwrap();
                let seen = (lease.token().to_owned(), lease.fencing_token().unwrap());
                guard.release().await.unwrap();
                seen
            })
        })
        .collect();
    for task in tasks {
        tokens.push(soon("a turn", task).await.unwrap());
    }
    for pair in tokens.windows(2) {
        assert!(pair[0].0 != pair[1].0 && pair[0].1 < pair[1].1, "{pair:?}");
    }
    is_freed(&server, "k").await;
}

#[tokio::test]
async fn a_body_that_waited_is_stopped_when_its_lock_is_taken_away() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let first = tokio::spawn(manager.lock("k").wait(LONG).acquire());
    let guard = soon("the first", first).await.unwrap().unwrap();
    let request = manager.lock("k").ttl(Duration::from_millis(600)).wait(LONG);
    let second = tokio::spawn(request.run(std::future::pending::<Result<(), Failure>>()));
    guard.release().await.unwrap();
    eventually("the second to hold it", || async { server.pttl(&redis_key("k")).await.clamp(0, 600) > 0 }).await;
    assert!(server.del(&redis_key("k")).await);
    let outcome = soon("the body to be stopped", second).await.unwrap();
    assert!(matches!(outcome, Err(Failure::Lock(LockError::Lost { .. }))), "{outcome:?}");
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

/// A role: locks many keys once each, and says how large the process is after a tenth of them and at the end.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn lock_many_keys(arguments: &[&str]) {
    let [url, count] = arguments[..] else { panic!("{arguments:?}") };
    let (manager, count): (_, u64) = (connect(url).await, count.parse().unwrap());
    let next = AtomicU64::new(0);
    let until = |end: u64| {
        let (manager, next) = (&manager, &next);
        async move {
            loop {
                let key = next.fetch_add(1, Ordering::Relaxed);
                if key >= end {
                    return;
                }
                let request = manager.lock(format!("many:{key}"));
                let request = if key % 2 == 0 { request.wait(LONG) } else { request };
                request.run(async { Ok::<_, Failure>(()) }).await.unwrap();
            }
        }
    };
    let in_parallel = async |end: u64| {
        next.store(next.load(Ordering::Relaxed).min(end), Ordering::Relaxed);
        tokio::join!(until(end), until(end), until(end), until(end), until(end), until(end), until(end), until(end));
        emit("pages", std::fs::read_to_string("/proc/self/statm").unwrap());
    };
    in_parallel(count / 10).await;
    next.store(count / 10, Ordering::Relaxed);
    in_parallel(count).await;
}

#[tokio::test]
async fn two_hundred_thousand_keys_leave_nothing_on_the_server_nor_in_the_client() {
    let server = Server::start().await;
    let child = Child::spawn("waiting: lock many keys", &[&server.url(), "200000"]).await;
    let resident = async || {
        let pages = child.event_within(5 * LONG, "pages").await;
        pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
    };
    let (early, late) = (resident().await, resident().await);
    assert!(late < early + early / 4, "{early} pages after a tenth of the keys, {late} after all of them");
    assert_eq!(server.dbsize().await, 0);
}

#[tokio::test]
async fn a_blocked_runtime_keeps_nobody_of_another_one_waiting() {
    let server = Server::start().await;
    let (holder, manager) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.lock("k").acquire().await.unwrap();
    let (theirs, (unblock, blocked)) = (manager.clone(), std::sync::mpsc::channel::<()>());
    let (block, is_to_block) = tokio::sync::oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let waiter = tokio::spawn(theirs.lock("k").wait(LONG).acquire());
            is_to_block.await.unwrap();
            blocked.recv().unwrap();
            waiter.await.unwrap().unwrap().release().await.unwrap();
        });
    });
    stand_in_line(&server, "k", 1).await;
    block.send(()).unwrap();
    let waiter = tokio::spawn(manager.lock("k").wait(LONG).acquire());
    stand_in_line(&server, "k", 2).await;
    guard.release().await.unwrap();
    soon("the one that can run", waiter).await.unwrap().unwrap().release().await.unwrap();
    unblock.send(()).unwrap();
    soon("the other one", tokio::task::spawn_blocking(move || thread.join().unwrap())).await.unwrap();
    eventually("nothing to be left", || async { server.dbsize().await == 0 }).await;
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
async fn a_waiter_that_nobody_polls_keeps_no_other_of_its_manager_waiting() {
    let server = Server::start().await;
    let (holder, manager) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.lock("k").acquire().await.unwrap();
    let mut first = Box::pin(manager.lock("k").wait(LONG).acquire());
    let stands = stand_in_line(&server, "k", 1);
    tokio::select! { _ = &mut first => unreachable!(), () = stands => {} }
    guard.release().await.unwrap();
    let guard = soon("the one behind it", manager.lock("k").wait(LONG).acquire()).await.unwrap();
    guard.release().await.unwrap();
    soon("the first, polled again", first).await.unwrap().release().await.unwrap();
    eventually("nothing to be left", || async { server.dbsize().await == 0 }).await;
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

/// Polls a future once.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) {
    std::future::poll_fn(|cx| {
        let _ = future.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
}

#[tokio::test]
async fn what_a_dropped_call_was_about_to_set_is_freed_though_the_next_one_is_not_polled() {
    let server = Server::start().await;
    let (manager, another) = (connect(&server.url()).await, connect(&server.url()).await);
    // The server knows the scripts from then on, so that one poll is enough to have the lock.
    manager.lock("k").wait(LONG).acquire().await.unwrap().release().await.unwrap();
    let mut first = Box::pin(manager.lock("k").wait(LONG).acquire());
    let mut second = Box::pin(manager.lock("k").wait(LONG).acquire());
    poll_once(first.as_mut()).await;
    poll_once(second.as_mut()).await;
    eventually("the request to arrive", || async { server.exists(&redis_key("k")).await }).await;
    drop(first);
    soon("another manager", another.lock("k").wait(LONG).acquire()).await.unwrap().release().await.unwrap();
    soon("the second, polled again", second).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_guard_of_a_lost_lock_keeps_no_caller_of_its_manager_waiting() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let request = manager.lock("k").ttl(Duration::from_millis(300)).watchdog(false).wait(LONG);
    let lost = request.acquire().await.unwrap();
    lost.lease().lost().await;
    soon("the next", manager.lock("k").wait(LONG).acquire()).await.unwrap().release().await.unwrap();
    drop(lost);
}

#[tokio::test]
async fn short_waits_pass_by_a_waiter_that_nobody_polls_too() {
    let server = Server::start().await;
    let (holder, manager) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.lock("k").acquire().await.unwrap();
    let mut stuck = Box::pin(manager.lock("k").wait(LONG).acquire());
    let stands = stand_in_line(&server, "k", 1);
    tokio::select! { _ = &mut stuck => unreachable!(), () = stands => {} }
    guard.release().await.unwrap();
    let short = async || manager.lock("k").wait(Duration::from_millis(300)).acquire().await;
    eventually("a short wait to succeed", || async {
        match short().await {
            Ok(guard) => guard.release().await.is_ok(),
            Err(_) => false,
        }
    })
    .await;
}
