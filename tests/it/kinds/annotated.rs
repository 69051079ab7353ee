//! The attribute's `mode` and `permits`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use distlock::{FencingToken, LockError, distributed_lock};
use tokio::sync::Barrier;

use super::{Kind, members, nothing_is_left, owned, shares};
use crate::calls::{Body, Call, Failure, asked, connect, redis_key, warm_up};
use harness::eventually::soon;
use harness::server::Server;

#[distributed_lock(key = "prices:<shop>", mode = read, ttl = "10m", wait = "10m")]
async fn price(shop: u64) -> Result<u64, Failure> {
    Ok(shop)
}

#[distributed_lock(key = "prices:<shop>", mode = write, ttl = "10m", wait = "10m", fencing_token = token)]
async fn import(shop: u64) -> Result<FencingToken, Failure> {
    // Its own readers pass under it.
    assert_eq!(price(shop).await?, shop);
    Ok(token)
}

#[distributed_lock(key = "prices:<shop>", mode = read, ttl = "10m")]
async fn upgrade(shop: u64, both: &Barrier) -> Result<FencingToken, Failure> {
    price(shop).await?;
    both.wait().await;
    let outcome = import(shop).await;
    both.wait().await;
    outcome
}

#[distributed_lock(key = "prices:<shop>", ttl = "10m")]
async fn plain(shop: u64) -> Result<u64, Failure> {
    price(shop).await
}

#[distributed_lock(key = "prices:<shop>", mode = read)]
async fn read_while(shop: u64, body: Body) -> Result<(), Failure> {
    body.future(Ok(())).await
}

#[distributed_lock(key = "geocoder", global, permits = 2)]
async fn locate(body: Body) -> Result<(), Failure> {
    body.future(Ok(())).await
}

#[distributed_lock(key = "geocoder", global, permits = permits)]
async fn locate_among(permits: u32, runs: &AtomicUsize) -> Result<(), Failure> {
    runs.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

#[distributed_lock(keys = ["account:<from>", "account:<to>"], mode = read)]
async fn sum(from: u64, to: u64, body: Body) -> Result<(), Failure> {
    body.future(Ok(())).await
}

/// B08: one attribute in the other. `price` and `import` would wait for ten minutes.
#[tokio::test]
async fn an_annotated_upgrade_is_refused_at_once_and_two_at_once_both_end() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let both = Arc::new(Barrier::new(2));
    let tasks = [(); 2].map(|()| {
        let (manager, both) = (manager.clone(), both.clone());
        tokio::spawn(async move { manager.scope(upgrade(7, &both)).await })
    });
    for task in tasks {
        let outcome = soon("both", task).await.unwrap();
        let Err(Failure::Lock(error)) = outcome else { panic!("{outcome:?}") };
        assert!(matches!(error, LockError::UpgradeNotSupported { .. }), "{error:?}");
        assert!(error.to_string().contains("`prices:7`"), "{error}");
    }
    assert_eq!(server.keys().await, [""; 0]);
}

#[tokio::test]
async fn annotated_readers_pass_under_writers_without_a_word_to_the_server() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    warm_up(&manager).await;
    let first = soon("a writer", manager.scope(import(7))).await.unwrap();
    assert!(soon("another writer", manager.scope(import(7))).await.unwrap() > first);
    let monitor = server.monitor().await;
    assert_eq!(soon("a plain one", manager.scope(plain(7))).await.unwrap(), 7);
    let sent = asked(&monitor, "prices:7").await;
    assert_eq!(sent.len(), 2, "one acquire and one release: {sent:#?}");
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn annotated_functions_share_as_their_mode_and_permits_say() {
    let server = Server::start().await;
    let (one, other) = (owned(&server, "one").await, owned(&server, "other").await);
    let mut calls = Vec::new();
    for manager in [&one, &other] {
        let body = Body::default();
        calls.push(Call::of(body.clone(), tokio::spawn(manager.scope(read_while(1, body)))).await);
        let body = Body::default();
        calls.push(Call::of(body.clone(), tokio::spawn(manager.scope(locate(body)))).await);
        let body = Body::default();
        calls.push(Call::of(body.clone(), tokio::spawn(manager.scope(sum(1, 2, body)))).await);
    }
    for key in ["prices:1", "geocoder", "account:1", "account:2"] {
        assert_eq!(shares(&server, key).await.len(), 2, "{key}");
    }
    assert!(members(&server, "geocoder").await.iter().all(|member| member.starts_with("p2:")));
    let Err(Failure::Lock(error)) = other.scope(plain(1)).await else { panic!("beside readers") };
    assert!(error.is_busy(), "{error:?}");
    let runs = AtomicUsize::new(0);
    for (permits, passes) in [(2, false), (3, false), (10_000, false)] {
        let outcome = other.scope(locate_among(permits, &runs)).await;
        assert_eq!(outcome.is_ok(), passes, "{permits}: {outcome:?}");
    }
    for (permits, told) in [(0, "from 1 to 10000"), (10_001, "from 1 to 10000")] {
        let Err(Failure::Lock(error)) = other.scope(locate_among(permits, &runs)).await else { panic!("{permits}") };
        assert!(matches!(error, LockError::InvalidOption { option: "permits", .. }), "{error:?}");
        assert!(error.to_string().contains(told), "{error}");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 0, "a body ran without its permit");
    for call in calls {
        call.finished().await.unwrap();
    }
    other.scope(locate_among(1, &runs)).await.unwrap();
    assert_eq!(server.keys().await, [""; 0]);
    // What the attribute and the API by hand ask for is the same lock.
    let guard = Kind::Write.lock(&one, "geocoder").acquire().await.unwrap();
    assert!(other.scope(locate_among(1, &runs)).await.is_err());
    guard.release().await.unwrap();
    assert!(!server.exists(&redis_key("geocoder")).await);
}
