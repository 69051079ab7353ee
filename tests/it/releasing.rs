//! The time that a release may take, and connections that were closed before it.

use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, LostReason};

use crate::calls::{Call, FOR_EVER, connect, redis_key, warm_up};
use harness::proxy::{Proxy, Way};
use harness::server::Server;

/// Cuts the link of a manager that holds a lock, so that its release has to connect and can't, and returns how long the
/// body's result took to come.
async fn release_behind_a_cut(link: &Proxy, manager: &LockManager, ttl: Duration) -> Duration {
    warm_up(manager).await;
    let call = Call::holding_to_return(manager, "k", ttl, Ok(7)).await;
    link.blackhole();
    link.reset();
    // The client notices the reset, or has to find out; both are well.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begin = Instant::now();
    // Over its end or not, the lease is no reason to wait.
    let _ = call.finished().await;
    begin.elapsed()
}

#[tokio::test]
async fn a_release_that_has_to_connect_first_is_bounded_by_the_command_timeout() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let patient = LockManager::builder().url(link.url()).connect_timeout(Duration::from_secs(20));
    let manager = patient.command_timeout(Duration::from_millis(200)).build().await.unwrap();
    let took = release_behind_a_cut(&link, &manager, FOR_EVER).await;
    assert!(took < Duration::from_secs(5), "the result was delayed by {took:?}; the command timeout is 200 ms");
}

#[tokio::test]
async fn a_release_never_outlasts_the_lease() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let patient = LockManager::builder().url(link.url()).connect_timeout(Duration::from_secs(20));
    let manager = patient.command_timeout(Duration::from_secs(20)).build().await.unwrap();
    let took = release_behind_a_cut(&link, &manager, Duration::from_millis(900)).await;
    assert!(took < Duration::from_secs(5), "the result was delayed by {took:?}; the ttl is 900 ms");
}

/// Both sendings of a release share one timeout, also where the server had forgotten the script.
#[tokio::test]
async fn a_release_by_source_takes_no_second_timeout() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let builder = LockManager::builder().url(link.url()).command_timeout(Duration::from_secs(4));
    let manager = builder.build().await.unwrap();
    warm_up(&manager).await;
    let call = Call::holding_to_return(&manager, "k", FOR_EVER, Ok(7)).await;
    server.flush_scripts().await;
    link.delay(Way::Replies, Duration::from_secs(3));
    let begin = Instant::now();
    assert_eq!(call.finished().await.unwrap(), 7);
    let took = begin.elapsed();
    assert!(took < Duration::from_millis(5_500), "the release took {took:?}; the command timeout is 4 s");
}

/// A connection that the server closed while it was idle is no failed release, as it is no failed acquire. Over RESP3 the
/// client is told of the end; over RESP2 the first command finds out.
#[tokio::test]
async fn a_connection_that_was_closed_while_idle_costs_no_release() {
    let server = Server::start().await;
    for query in ["", "?protocol=resp2"] {
        let manager = connect(&format!("{}/{query}", server.url())).await;
        for _ in 0..3 {
            let guard = manager.lock("k").ttl(FOR_EVER).acquire().await.expect("the acquire connects anew");
            server.kill_clients("normal").await;
            let released = guard.release().await;
            assert!(released.is_ok() && !server.exists(&redis_key("k")).await, "{query}: {released:?}");
        }
    }
}

/// Whoever has the lock by now keeps it, though the lease said that it was still ours.
#[tokio::test]
async fn a_release_leaves_alone_what_somebody_else_has_taken_since() {
    let server = Server::start().await;
    let manager = LockManager::connect(&server.url()).await.unwrap();
    for theirs in
        ["theirs", "0f8fad5b-d9cb-469f-a165-70867728950e/other/31/", "0f8fad5b-d9cb-469f-a165-70867728950e/other/31/+"]
    {
        let guard = manager.lock("k").ttl(FOR_EVER).acquire().await.unwrap();
        server.set_for(&redis_key("k"), theirs, FOR_EVER).await;
        let error = guard.release().await.unwrap_err();
        assert!(matches!(error, LockError::Lost { reason: LostReason::Gone, .. }), "{error:?}");
        let value: String = server.query(redis::cmd("GET").arg(redis_key("k"))).await.unwrap();
        assert_eq!(value, theirs);
        server.del(&redis_key("k")).await;
    }
}
