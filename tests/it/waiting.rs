//! Standing in line: order, hand-over, giving up, and what is left on the server.
//!
//! `faults` has the death of holders, waiters and servers, and lost messages; `neglect` the callers that nobody polls; `signs` how
//! a holder knows that others wait.

mod faults;
mod neglect;
mod signs;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager};
use redis::cmd;

use crate::calls::{Failure, connect, is_freed, redis_key, warm_up};
use harness::eventually::{eventually, soon};
use harness::process::{Child, emit};
use harness::server::Server;

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

/// When the first in line was last heard of.
async fn first_sign(server: &Server, key: &str) -> Option<String> {
    let line = format!("{}:line", redis_key(key));
    let first: Vec<String> = server
        .query(cmd("ZRANGE").arg(&line).arg(0).arg("+inf").arg("BYSCORE").arg("LIMIT").arg(0).arg(1))
        .await
        .unwrap();
    server.query(cmd("ZSCORE").arg(&line).arg(first.first()?.replacen('q', "s", 1))).await.unwrap()
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
    // Right after a sign of life it has nothing under way: who is dropped in the middle of a request leaves no place behind.
    for _ in 0..3 {
        let last = first_sign(&server, "k").await;
        eventually("a sign of life", || async { first_sign(&server, "k").await != last }).await;
    }
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
