//! The time that a release may take, and connections that were closed before it.

use std::time::{Duration, Instant};

use distlock::LockManager;

use crate::calls::{Body, FOR_EVER, Failure, connect, redis_key, warm_up};
use crate::harness::eventually::soon;
use crate::harness::proxy::{Proxy, Way};
use crate::harness::server::Server;

/// A release is bounded by the smaller of the command timeout and the remaining lease.
#[tokio::test]
async fn a_release_that_has_to_connect_first_is_bounded_by_the_command_timeout() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = LockManager::builder()
        .url(link.url())
        .command_timeout(Duration::from_millis(200))
        .connect_timeout(Duration::from_secs(10))
        .build()
        .await
        .unwrap();
    warm_up(&manager).await;
    let (body, theirs) = (Body::default(), manager.clone());
    let call = tokio::spawn({
        let body = body.clone();
        async move { theirs.lock("k").ttl(Duration::from_secs(30)).run(body.future(Ok::<_, Failure>(7))).await }
    });
    body.runs().await;
    link.blackhole();
    link.reset();
    tokio::time::sleep(Duration::from_millis(100)).await; // the client notices the reset
    let begin = Instant::now();
    body.finish();
    let outcome = soon("the call", call).await.unwrap();
    let took = begin.elapsed();
    assert_eq!(outcome.unwrap(), 7);
    assert!(took < Duration::from_secs(2), "the result was delayed by {took:?}; the command timeout is 200 ms");
}

/// The same with nothing but defaults and a server that stops answering.
#[tokio::test]
async fn a_release_never_outlasts_the_lease() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    warm_up(&manager).await;
    let (body, theirs) = (Body::default(), manager.clone());
    let ttl = Duration::from_millis(300);
    let call = tokio::spawn({
        let body = body.clone();
        async move { theirs.lock("k").ttl(ttl).watchdog(false).run(body.future(Ok::<_, Failure>(7))).await }
    });
    body.runs().await;
    link.blackhole();
    link.reset();
    tokio::time::sleep(Duration::from_millis(100)).await; // the client notices the reset
    let begin = Instant::now();
    body.finish();
    let outcome = soon("the call", call).await.unwrap();
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(1), "the result ({outcome:?}) was delayed by {took:?}; the ttl is {ttl:?}");
}

/// Both sendings of a release share one timeout, also where the server had forgotten the script.
#[tokio::test]
async fn a_release_by_source_takes_no_second_timeout() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    warm_up(&manager).await;
    // The command timeout is 1 s.
    let (body, theirs) = (Body::default(), manager.clone());
    let call = tokio::spawn({
        let body = body.clone();
        async move { theirs.lock("k").ttl(FOR_EVER).run(body.future(Ok::<_, Failure>(7))).await }
    });
    body.runs().await;
    server.flush_scripts().await;
    link.delay(Way::Replies, Duration::from_millis(900));
    let begin = Instant::now();
    body.finish();
    soon("the call", call).await.unwrap().unwrap();
    let took = begin.elapsed();
    assert!(took < Duration::from_millis(1500), "the release took {took:?}; the command timeout is 1 s");
}

/// A connection that the server closed while it was idle is no failed release, as it is no failed acquire. Over RESP3 the
/// client is told of the end; over RESP2 the first command finds out.
#[tokio::test]
async fn a_release_over_a_connection_that_was_closed_while_idle_succeeds_over_resp2_too() {
    let server = Server::start().await;
    let manager = connect(&format!("{}/?protocol=resp2", server.url())).await;
    for _ in 0..3 {
        let guard = manager.lock("k").ttl(FOR_EVER).acquire().await.expect("the acquire finds out and connects anew");
        server.kill_clients("normal").await;
        tokio::time::sleep(Duration::from_millis(100)).await; // the client could notice
        let released = guard.release().await;
        assert!(released.is_ok() && !server.exists(&redis_key("k")).await, "{released:?}");
    }
}
