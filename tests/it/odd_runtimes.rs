//! Runtimes that have ended, are not driven, or are not there; calls that move between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use distlock::LockManager;
use tokio::runtime::Builder;

use crate::calls::{FOR_EVER, Failure, connect, redis_key, sees_renewals, warm_up};
use harness::eventually::eventually;
use harness::proxy::{Proxy, Way};
use harness::server::Server;

/// A call made in the context of a runtime that has ended must fail, and not hang; least of all with a lock taken that
/// the watchdog and all other runtimes need.
#[test]
fn a_call_on_a_runtime_that_has_ended_fails_and_hangs_nobody() {
    let outer = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = outer.block_on(Server::start());
    let manager = outer.block_on(connect(&server.url()));
    let ttl = Duration::from_millis(900);
    // A body that waits: nobody but the watchdog wakes it.
    let call = outer.spawn(manager.lock("other").ttl(ttl).run(std::future::pending::<Result<(), Failure>>()));
    outer.block_on(sees_renewals(&server, "other", 2));
    let ended = Builder::new_current_thread().enable_all().build().unwrap();
    let handle = ended.handle().clone();
    drop(ended);
    let theirs = manager.clone();
    let thread = std::thread::spawn(move || {
        let _inside = handle.enter();
        let mut call = Box::pin(theirs.lock("k").acquire());
        let _ = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    });
    std::thread::sleep(Duration::from_secs(3)); // more than three ttls: the other lock lives by its renewals
    let hangs = !thread.is_finished();
    let other = outer.block_on(async { server.exists(&redis_key("other")).await });
    let stopped = call.is_finished();
    // A thread that hangs would keep the runtime from ending.
    outer.shutdown_background();
    assert!(!hangs, "the first poll of a call hangs for ever; another lock: key held {other}, call stopped {stopped}");
    assert!(other, "the other lock was not renewed meanwhile");
}

/// The same in an ordinary program, without a handle of an ended runtime: runtimes that come, are used and end (as each
/// `#[tokio::test]` has its own) while calls are being made on them.
#[test]
fn runtimes_that_end_while_calls_are_made_on_them_do_end() {
    const ROUNDS: usize = 300;
    let outer = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = outer.block_on(Server::start());
    let manager = outer.block_on(connect(&server.url()));
    let done = Arc::new(AtomicUsize::new(0));
    let (counter, theirs) = (done.clone(), manager.clone());
    std::thread::spawn(move || {
        for round in 0..ROUNDS {
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            for number in 0..8 {
                let manager = theirs.clone();
                runtime.spawn(async move {
                    for _ in 0..number * 3 {
                        tokio::task::yield_now().await;
                    }
                    let _ = manager.lock(format!("{round}-{number}")).acquire().await;
                });
            }
            std::thread::sleep(Duration::from_micros(round as u64 % 60)); // the end comes at different points
            drop(runtime);
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    let mut last = (Instant::now(), 0);
    while last.1 < ROUNDS && last.0.elapsed() < Duration::from_secs(15) {
        std::thread::sleep(Duration::from_millis(50)); // between two looks
        let now = done.load(Ordering::SeqCst);
        if now != last.1 {
            last = (Instant::now(), now);
        }
    }
    // On a thread of its own, since it may hang.
    let elsewhere = std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(manager.lock("elsewhere").acquire()).map(drop)
    });
    std::thread::sleep(Duration::from_secs(5)); // more than all timeouts of a call
    let others_hang = !elsewhere.is_finished();
    outer.shutdown_background();
    assert_eq!(last.1, ROUNDS, "the drop of a runtime hangs for ever; calls on other runtimes hang too: {others_hang}");
}

/// A call that was dropped by a runtime that is not driven afterwards (a synchronous facade with a `block_on` per call).
#[test]
fn a_call_dropped_at_the_end_of_a_block_on_is_freed_about_a_round_trip_later() {
    let outer = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = outer.block_on(Server::start());
    let link = outer.block_on(Proxy::start(&server));
    let (url, proxy) = (link.url(), &link);
    let facade = Builder::new_current_thread().enable_all().build().unwrap();
    let manager = facade.block_on(connect(&url));
    facade.block_on(warm_up(&manager));
    proxy.delay(Way::Replies, Duration::from_millis(50));
    let dropped = facade.block_on(async {
        tokio::time::timeout(Duration::from_millis(25), manager.lock("k").ttl(FOR_EVER).acquire()).await.is_err()
    });
    assert!(dropped);
    let took = outer.block_on(eventually("the key to be freed", || async { !server.exists(&redis_key("k")).await }));
    assert!(took < Duration::from_secs(1), "freed after {took:?}");
}

/// A future that goes on in another runtime than the one it began in, which has ended: no panic of the library's.
#[test]
fn a_call_that_moves_to_another_runtime_while_it_waits_does_not_panic() {
    let manager = LockManager::in_memory();
    let first = Builder::new_current_thread().enable_all().build().unwrap();
    let guard = first.block_on(manager.lock("k").acquire()).unwrap();
    let mut call = Box::pin(manager.lock("k").retry(100).acquire());
    first.block_on(async {
        std::future::poll_fn(|context| std::task::Poll::Ready(call.as_mut().poll(context).is_pending())).await
    });
    drop(first);
    let second = std::thread::spawn(move || {
        let second = Builder::new_current_thread().enable_all().build().unwrap();
        second.block_on(async {
            drop(guard);
            tokio::time::timeout(Duration::from_secs(10), call).await.map(|granted| granted.map(drop))
        })
    });
    let outcome = second.join();
    assert!(matches!(outcome, Ok(Ok(Ok(())))), "{outcome:?}");
}

/// The memory backend needs no runtime; then neither a retry nor a shutdown may panic for want of one.
#[test]
fn a_busy_lock_outside_of_a_runtime_does_not_panic() {
    let (manager, other) = (LockManager::in_memory(), LockManager::in_memory());
    let outcome = std::thread::spawn(move || {
        let mut context = Context::from_waker(Waker::noop());
        let mut first = Box::pin(manager.lock("k").acquire());
        let std::task::Poll::Ready(Ok(guard)) = first.as_mut().poll(&mut context) else { panic!("not granted") };
        let mut second = Box::pin(manager.lock("k").retry(3).acquire());
        let _ = second.as_mut().poll(&mut context);
        drop(guard);
    })
    .join();
    let shutdown = std::thread::spawn(move || {
        let _ = Box::pin(other.shutdown(Duration::ZERO)).as_mut().poll(&mut Context::from_waker(Waker::noop()));
    })
    .join();
    assert!(
        outcome.is_ok() && shutdown.is_ok(),
        "retry panicked: {}, shutdown panicked: {}",
        outcome.is_err(),
        shutdown.is_err()
    );
}

/// Of two threads of a runtime that make its slot at once, one loses, and what it made is dropped: that must not take
/// the winner's slot away.
#[tokio::test]
async fn the_first_calls_of_another_runtime_may_come_at_once() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    warm_up(&manager).await;
    let (mut failed, mut most, mut rounds_with_more) = (Vec::new(), 0, 0);
    for round in 0..20 {
        let before = server.connections_received().await;
        let theirs = manager.clone();
        let (errors, runtime) = tokio::task::spawn_blocking(move || {
            let runtime = Builder::new_multi_thread().worker_threads(8).enable_all().build().unwrap();
            let errors = std::thread::scope(|_| {
                runtime.block_on(async {
                    let barrier = Arc::new(std::sync::Barrier::new(8));
                    let mut calls = tokio::task::JoinSet::new();
                    for number in 0..8 {
                        let (manager, barrier) = (theirs.clone(), barrier.clone());
                        calls.spawn(async move {
                            // All at once, one on each thread.
                            barrier.wait();
                            match manager.lock(format!("{round}/{number}")).acquire().await {
                                Ok(guard) => guard.release().await.err(),
                                Err(error) => Some(error),
                            }
                        });
                    }
                    calls.join_all().await.into_iter().flatten().map(|error| error.to_string()).collect::<Vec<_>>()
                })
            });
            (errors, runtime)
        })
        .await
        .unwrap();
        // Each look of ours is a connection too: the one of the first look is counted in it, the one of the second as well.
        let made = server.connections_received().await - before - 1;
        most = most.max(made);
        rounds_with_more += u32::from(made > 1);
        failed.extend(errors);
        tokio::task::spawn_blocking(move || drop(runtime)).await.unwrap();
    }
    assert!(failed.is_empty(), "{} calls of 160 failed on a sound server: {}", failed.len(), failed[0]);
    assert_eq!(rounds_with_more, 0, "up to {most} connections for one runtime");
}

/// Runtimes that end leave no connection.
#[tokio::test]
async fn runtimes_that_end_leave_no_connections() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    for round in 0..40 {
        let theirs = manager.clone();
        tokio::task::spawn_blocking(move || {
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            for number in 0..4 {
                let request = theirs.lock(format!("{round}/{number}"));
                runtime.spawn(async move { drop(request.acquire().await) });
            }
            std::thread::sleep(Duration::from_micros(round * 50)); // runtimes that end at every point of connecting
            runtime.shutdown_background();
        })
        .await
        .unwrap();
    }
    let clients = async || {
        let info = server.info("clients").await.unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("connected_clients:").map(str::to_owned)).unwrap();
        line.parse::<u32>().unwrap()
    };
    eventually("all but three connections to be closed", async || clients().await <= 3).await;
    eventually("all keys to be freed", async || server.dbsize().await == 0).await;
}
