//! However a call ends, its key is freed and nothing renews it any more.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, LostReason, OnLost, distributed_lock};

use crate::calls::{Body, Call, FOR_EVER, Failure, asked, connect, is_freed, redis_key, warm_up};
use harness::eventually::{eventually, soon};
use harness::proxy::{Proxy, Way};
use harness::server::Server;

#[distributed_lock(key = "exit:<exit>", ttl = "10m")]
async fn leave_by(exit: u32) -> Result<u32, Failure> {
    match exit {
        1 => return Ok(1),
        2 => return Err(Failure::Body("returned")),
        3 => {
            Err(Failure::Body("by the question mark"))?;
        }
        4 => loop {
            for number in 0.. {
                if number == 4 {
                    return Ok(number);
                }
            }
        },
        5 => {
            let inner = async {
                if exit == 5 {
                    return Ok::<u32, Failure>(50);
                }
                Ok(0)
            };
            assert_eq!(inner.await?, 50, "the return of an inner block is its own");
            return Ok(5);
        }
        6 => {
            let broken = 'out: {
                if exit == 6 {
                    break 'out 6;
                }
                0
            };
            return Ok(broken);
        }
        7 => {
            tokio::task::yield_now().await;
            let parsed: u32 = "x".parse().map_err(|_| Failure::Body("converted"))?;
            return Ok(parsed);
        }
        _ => {}
    }
    Ok(exit)
}

#[tokio::test]
async fn every_exit_of_a_body_releases_exactly_once_before_the_caller_goes_on() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    warm_up(&manager).await;
    let monitor = server.monitor().await;
    for exit in 1..=8 {
        let outcome = manager.scope(leave_by(exit)).await;
        let key = format!("exit:{exit}");
        assert!(!server.exists(&redis_key(&key)).await, "exit {exit}: the key outlives the call");
        match exit {
            2 | 3 | 7 => assert!(matches!(outcome, Err(Failure::Body(_))), "exit {exit}: {outcome:?}"),
            _ => assert_eq!(outcome.unwrap(), exit),
        }
        let mut commands = asked(&monitor, &key).await;
        // Ours, which looked for the key.
        commands.retain(|line| !line.to_lowercase().contains("\"exists\""));
        assert_eq!(commands.len(), 2, "exit {exit}: one command to acquire and one to release: {commands:?}");
    }
}

/// The key is deleted behind the holder, and no renewal comes before the end: only the release can notice.
async fn finds_at_the_release_that_it_was_lost(on_lost: OnLost, outcome: Result<u8, Failure>) -> Result<u8, Failure> {
    let server = Server::start().await;
    let (manager, body) = (connect(&server.url()).await, Body::default());
    let request = manager.lock("k").ttl(FOR_EVER).on_lost(on_lost);
    let call = tokio::spawn(request.run(body.clone().future(outcome)));
    body.runs().await;
    server.del(&redis_key("k")).await;
    body.finish();
    soon("the call to end", call).await.unwrap()
}

#[tokio::test]
async fn a_good_result_becomes_lost_when_the_release_finds_the_lock_gone() {
    let failure = finds_at_the_release_that_it_was_lost(OnLost::Cancel, Ok(7)).await.unwrap_err();
    assert_eq!(failure.lost(), LostReason::Gone);
}

#[tokio::test]
async fn a_good_result_stays_where_the_body_was_to_be_finished() {
    assert_eq!(finds_at_the_release_that_it_was_lost(OnLost::Finish, Ok(7)).await.unwrap(), 7);
}

#[tokio::test]
async fn the_bodys_own_error_stays_when_the_release_finds_the_lock_gone() {
    let outcome = finds_at_the_release_that_it_was_lost(OnLost::Cancel, Err(Failure::Body("mine"))).await;
    assert!(matches!(outcome, Err(Failure::Body("mine"))), "{outcome:?}");
}

struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("in a drop");
    }
}

#[distributed_lock(key = "panic:<place>", ttl = "10m")]
async fn panic_in(place: &str) -> Result<(), Failure> {
    match place {
        "before the first await" => panic!("before the first await"),
        "after an await" => {
            tokio::task::yield_now().await;
            panic!("after an await");
        }
        "in a nested call" => Box::pin(panic_in("after an await")).await,
        "in a drop" => {
            let _panics = PanicsInDrop;
            tokio::task::yield_now().await;
            Ok(())
        }
        _ => Ok(()),
    }
}

#[tokio::test]
async fn a_panic_reaches_the_caller_as_it_is_and_frees_the_key() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let expected = [
        ("before the first await", "before the first await"),
        ("after an await", "after an await"),
        ("in a nested call", "after an await"),
        ("in a drop", "in a drop"),
    ];
    for (place, payload) in expected {
        // The second time shows that the first left nothing poisoned.
        for _ in 0..2 {
            let call = tokio::spawn(manager.scope(panic_in(place)));
            let panic = soon("the call to end", call).await.unwrap_err().into_panic();
            assert_eq!(panic.downcast_ref::<&str>(), Some(&payload), "{place}");
            // By its guard, which the watchdog frees; the ttl is ten minutes.
            is_freed(&server, &format!("panic:{place}")).await;
        }
    }
    assert_eq!(server.dbsize().await, 0);
}

#[distributed_lock(key = format!("panic:{}", no_key()), ttl = "10m")]
async fn panic_in_the_key() -> Result<(), Failure> {
    Ok(())
}

fn no_key() -> u32 {
    panic!("in the key")
}

#[tokio::test]
async fn a_panic_in_the_key_comes_before_anything_is_sent() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let monitor = server.monitor().await;
    let call = tokio::spawn(manager.scope(panic_in_the_key()));
    let panic = soon("the call to end", call).await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"in the key"));
    assert!(monitor.lines_with(&["lock:"]).await.is_empty(), "something was sent");
}

#[tokio::test]
async fn a_call_that_is_never_polled_sends_nothing() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let monitor = server.monitor().await;
    drop(manager.lock("k").run(async { Ok::<_, Failure>(()) }));
    drop(manager.lock("k").acquire());
    drop(manager.scope(leave_by(1)));
    assert!(monitor.lines_with(&["lock:"]).await.is_empty(), "something was sent");
}

/// Polls a future until a time has passed, and drops it. Finer than a timer, whose steps are milliseconds.
pub(crate) async fn dropped_after<F: Future>(time: Duration, future: F) {
    let (begin, mut future) = (Instant::now(), pin!(future));
    while begin.elapsed() < time {
        let ended = poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready()));
        if ended.await {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Drops `call` after 0 to 20 ms in steps of 50 microseconds, on a link that takes 2 ms there and back, and requires that
/// no key stays.
pub(crate) async fn dropped_at_any_point<F: Future>(call: impl Fn(LockManager, String) -> F) {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    link.delay(Way::Requests, Duration::from_millis(1));
    link.delay(Way::Replies, Duration::from_millis(1));
    for step in 0..400 {
        let time = Duration::from_micros(50) * step;
        dropped_after(time, call(manager.clone(), format!("{step}"))).await;
        if step % 20 == 19 {
            let left = async || server.keys().await;
            let what = format!("the keys of calls dropped up to {time:?} to be freed");
            eventually(&what, async || left().await.is_empty()).await;
        }
    }
}

/// The ttl is ten minutes: what is free was freed.
async fn run_for_a_while(manager: LockManager, key: String) -> Result<(), Failure> {
    let body = async {
        tokio::time::sleep(Duration::from_millis(8)).await; // drops fall into it as well as before and behind it
        Ok::<_, Failure>(())
    };
    manager.lock(key).ttl(FOR_EVER).run(body).await
}

async fn hold_a_guard_for_a_while(manager: LockManager, key: String) -> Result<(), LockError> {
    let guard = manager.lock(key).ttl(FOR_EVER).acquire().await?;
    // As above.
    tokio::time::sleep(Duration::from_millis(8)).await;
    guard.release().await
}

#[distributed_lock(key = "annotated:<key>", ttl = "10m")]
async fn annotated_for_a_while(key: String) -> Result<(), Failure> {
    // As above.
    tokio::time::sleep(Duration::from_millis(8)).await;
    Ok(())
}

#[tokio::test]
async fn a_run_that_is_dropped_at_any_point_leaves_no_key() {
    dropped_at_any_point(run_for_a_while).await;
}

#[tokio::test]
async fn an_acquire_that_is_dropped_at_any_point_leaves_no_key() {
    dropped_at_any_point(hold_a_guard_for_a_while).await;
}

#[tokio::test]
async fn an_annotated_call_that_is_dropped_at_any_point_leaves_no_key() {
    dropped_at_any_point(|manager, key| async move { manager.scope(annotated_for_a_while(key)).await }).await;
}

/// The waiter is dropped while it waits between two tries, and then the lock comes free.
#[tokio::test]
async fn a_wait_that_is_dropped_leaves_no_key() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let held = Call::holding(&manager, "k", FOR_EVER).await;
    for micros in (0..60_000).step_by(1_000) {
        let request = manager.lock("k").ttl(FOR_EVER).retry(u32::MAX);
        dropped_after(Duration::from_micros(micros), request.acquire()).await;
    }
    held.finished().await.unwrap();
    is_freed(&server, "k").await;
}

#[tokio::test]
async fn a_shutdown_ends_waits_lets_bodies_finish_stops_the_rest_and_frees_every_key() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let quick = Call::holding(&manager, "quick", FOR_EVER).await;
    let endless = Call::holding(&manager, "endless", FOR_EVER).await;
    let request = manager.lock("quick").retry(u32::MAX);
    let waiting = tokio::spawn(request.acquire());
    let closing = {
        let manager = manager.clone();
        // Long enough for the quick body, which is let go below, on any machine.
        tokio::spawn(async move { manager.shutdown(Duration::from_secs(3)).await })
    };
    let refused = soon("the wait to end", waiting).await.unwrap();
    assert!(matches!(refused, Err(LockError::ShuttingDown)), "{refused:?}");
    assert!(matches!(manager.lock("new").acquire().await, Err(LockError::ShuttingDown)));
    quick.finished().await.unwrap();
    assert_eq!(endless.ended().await.unwrap_err().lost(), LostReason::Shutdown);
    soon("the shutdown to end", closing).await.unwrap();
    assert_eq!(server.keys().await, Vec::<String>::new());
}
