//! Waiting beside callers that nobody polls, or that keep what they no longer have.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use super::{LONG, stand_in_line};
use crate::calls::{connect, redis_key};
use harness::eventually::{eventually, soon};
use harness::server::Server;

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
