//! A shutdown that comes while a call is acquiring.

use std::time::Duration;

use crate::calls::{Body, Failure, connect, redis_key, warm_up};
use crate::harness::eventually::{eventually, soon};
use crate::harness::proxy::{Proxy, Way};
use crate::harness::server::Server;

/// `shutdown` must stop a call whose acquire was in flight when the deadline passed.
#[tokio::test]
async fn a_shutdown_stops_a_call_that_was_acquiring() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    warm_up(&manager).await;
    link.delay(Way::Replies, Duration::from_millis(300));
    let body = Body::default();
    let call =
        tokio::spawn(manager.lock("k").ttl(Duration::from_secs(30)).run(body.clone().future(Ok::<_, Failure>(()))));
    eventually("the SET", || async { server.exists(&redis_key("k")).await }).await;
    soon("the shutdown", manager.shutdown(Duration::ZERO)).await;
    let running = body.is_running();
    let key = server.exists(&redis_key("k")).await;
    body.finish();
    let outcome = soon("the call", call).await.unwrap();
    assert!(!running, "the body runs after the shutdown has returned; the call then ended with {outcome:?}");
    assert!(!key, "the key is still held after the shutdown");
}

/// The same with a guard: it must not be handed out, alive and renewed, by a manager that has shut down.
#[tokio::test]
async fn a_shutdown_frees_the_lock_of_an_acquire_that_was_in_flight() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    warm_up(&manager).await;
    link.delay(Way::Replies, Duration::from_millis(300));
    let ttl = Duration::from_secs(2);
    let call = tokio::spawn(manager.lock("k").ttl(ttl).acquire());
    eventually("the SET", || async { server.exists(&redis_key("k")).await }).await;
    soon("the shutdown", manager.shutdown(Duration::ZERO)).await;
    let outcome = soon("the call", call).await.unwrap();
    // Two ttls: only a renewed lock is still there.
    tokio::time::sleep(ttl * 2).await;
    assert!(!server.exists(&redis_key("k")).await, "renewed after the shutdown: {outcome:?}");
}
