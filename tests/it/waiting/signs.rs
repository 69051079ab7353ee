//! How a holder that has not waited knows that others do: their sign is in its value, as long as somebody stands in the line.

use std::time::Duration;

use distlock::LockError;
use redis::cmd;

use super::{LONG, stand_in_line};
use crate::calls::{FOR_EVER, connect, redis_key};
use harness::eventually::eventually;
use harness::proxy::{Proxy, Trip};
use harness::server::Server;

async fn value(server: &Server, key: &str) -> String {
    server.query::<Option<String>>(cmd("GET").arg(redis_key(key))).await.unwrap().unwrap_or_default()
}

async fn is_signed(server: &Server, key: &str) {
    eventually("the value to say that others wait", || async { value(server, key).await.ends_with("/+") }).await;
}

#[tokio::test]
async fn a_lock_goes_straight_from_one_that_has_not_waited_to_one_that_does() {
    let server = Server::start().await;
    let (holder, waiter) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.lock("k").acquire().await.unwrap();
    assert!(value(&server, "k").await.ends_with('/'), "nobody waits");
    let waits = tokio::spawn(waiter.lock("k").wait(LONG).acquire());
    is_signed(&server, "k").await;
    let token = guard.lease().token().to_owned();
    guard.release().await.unwrap();
    let now = value(&server, "k").await;
    assert!(!now.is_empty() && !now.starts_with(&token), "there was no moment in which the lock was free: `{now}`");
    waits.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(server.keys().await, Vec::<String>::new());
}

/// One renewal of a lock by itself, and one of two in one command.
#[tokio::test]
async fn locks_that_others_wait_for_are_renewed() {
    let ttl = Duration::from_millis(900);
    let server = Server::start().await;
    let (holder, waiter) = (connect(&server.url()).await, connect(&server.url()).await);
    for keys in [&["a"][..], &["b", "c"]] {
        let mut guards = Vec::new();
        for key in keys {
            guards.push(holder.lock(*key).ttl(ttl).acquire().await.unwrap());
        }
        let waits: Vec<_> = keys.iter().map(|key| tokio::spawn(waiter.lock(*key).wait(LONG).acquire())).collect();
        for key in keys {
            is_signed(&server, key).await;
        }
        // Time is what is tested here: three leases pass.
        tokio::time::sleep(ttl * 3).await;
        for guard in guards {
            guard.lease().ensure_held().unwrap();
            guard.release().await.unwrap();
        }
        for wait in waits {
            wait.await.unwrap().unwrap().release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_try_whose_answer_was_lost_knows_its_own_lock_though_others_wait_for_it() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let (holder, waiter) = (connect(&link.url()).await, connect(&server.url()).await);
    link.arm(&redis_key("k"), 0, Trip::LoseReply(Duration::from_secs(1)));
    let tries = tokio::spawn(holder.lock("k").ttl(FOR_EVER).retry(10).acquire());
    eventually("the lock to be set", || async { server.exists(&redis_key("k")).await }).await;
    let waits = tokio::spawn(waiter.lock("k").wait(LONG).acquire());
    let guard = tries.await.unwrap().unwrap();
    is_signed(&server, "k").await;
    guard.release().await.unwrap();
    waits.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn who_is_told_of_the_holder_is_not_told_of_the_sign() {
    let server = Server::start().await;
    let (holder, waiter) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.lock("k").acquire().await.unwrap();
    let unsigned = waiter.lock("k").acquire().await.unwrap_err();
    let waits = tokio::spawn(waiter.lock("k").wait(LONG).acquire());
    is_signed(&server, "k").await;
    let signed = waiter.lock("k").acquire().await.unwrap_err();
    let (LockError::Busy { holder: before, .. }, LockError::Busy { holder: after, .. }) = (&unsigned, &signed) else {
        panic!("{unsigned:?} {signed:?}")
    };
    assert_eq!(before, after);
    assert!(before.ends_with(|last: char| last.is_ascii_digit()), "`{before}` is a host and a process");
    guard.release().await.unwrap();
    waits.await.unwrap().unwrap().release().await.unwrap();
}

/// A program in another language sets `<token>/<owner>`, and compares with that when it gives the lock back.
#[tokio::test]
async fn the_value_of_another_program_stays_as_it_is() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let theirs = "0f8fad5b-d9cb-469f-a165-70867728950e/python/31";
    server.query::<()>(cmd("SET").arg(redis_key("k")).arg(theirs).arg("PX").arg(60_000)).await.unwrap();
    let waits = tokio::spawn(manager.lock("k").wait(LONG).acquire());
    stand_in_line(&server, "k", 1).await;
    assert_eq!(value(&server, "k").await, theirs);
    server.query::<()>(cmd("DEL").arg(redis_key("k"))).await.unwrap();
    waits.await.unwrap().unwrap().release().await.unwrap();
}

/// One that takes a lock between the end of a lease and the next sign of life of who waits does not keep it from that.
#[tokio::test]
async fn one_that_barges_in_when_a_lease_ends_does_not_pass_over_who_waits() {
    let server = Server::start().await;
    let (holder, waiter) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.lock("k").acquire().await.unwrap();
    let waits = tokio::spawn(waiter.lock("k").wait(LONG).acquire());
    is_signed(&server, "k").await;
    server.query::<()>(cmd("DEL").arg(redis_key("k"))).await.unwrap();
    let barger = tokio::spawn(async move {
        loop {
            if let Ok(guard) = holder.lock("k").acquire().await {
                guard.release().await.unwrap();
            }
            tokio::task::yield_now().await;
        }
    });
    waits.await.unwrap().unwrap().release().await.unwrap();
    barger.abort();
    drop(guard);
}
