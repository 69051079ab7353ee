//! Shutdowns that come while a call is acquiring, and managers that are gone.

use std::time::{Duration, Instant};

use crate::calls::{Body, FOR_EVER, Failure, connect, redis_key, warm_up};
use harness::eventually::{eventually, soon, within};
use harness::proxy::{Proxy, Way};
use harness::server::Server;

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

/// An idle connection that the server has closed leaves a stray that is looked after for its whole ttl, which a shutdown
/// waits for until its patience ends.
#[tokio::test]
async fn a_shutdown_is_quick_after_an_idle_connection_was_closed() {
    let server = Server::start().await;
    let manager = connect(&format!("{}?protocol=resp2", server.url())).await;
    warm_up(&manager).await;
    server.kill_clients("normal").await;
    manager.lock("k").ttl(FOR_EVER).acquire().await.unwrap().release().await.unwrap();
    let begin = Instant::now();
    manager.shutdown(Duration::ZERO).await;
    let took = begin.elapsed();
    assert!(took < Duration::from_millis(900), "with nothing held on a sound server, the shutdown took {took:?}");
}

/// Connections of managers that are gone are closed, also after faults.
#[tokio::test]
async fn dropped_managers_leave_no_connections() {
    let server = Server::start().await;
    for round in 0..10 {
        let manager = connect(&server.url()).await;
        manager.lock("k").acquire().await.unwrap().release().await.unwrap();
        if round % 2 == 0 {
            server.kill_clients("normal").await;
            manager.lock("k").ttl(Duration::from_millis(500)).acquire().await.unwrap().release().await.unwrap();
        }
    }
    eventually("all connections to be closed", async || connected_clients(&server).await <= 1).await;
}

/// What may still arrive after a request that met a connection at its end is not looked for as long as the ttl lasts.
#[tokio::test]
async fn a_dropped_manager_is_gone_soon_after_an_idle_connection_was_closed() {
    let server = Server::start().await;
    let manager = connect(&format!("{}?protocol=resp2", server.url())).await;
    warm_up(&manager).await;
    server.kill_clients("normal").await;
    manager.lock("k").ttl(FOR_EVER).acquire().await.unwrap().release().await.unwrap();
    drop(manager);
    // Ten seconds are what it takes its time for.
    let gone = async || connected_clients(&server).await <= 1;
    within(Duration::from_secs(40), "the dropped manager's connections to be closed", gone).await;
}

async fn connected_clients(server: &Server) -> u32 {
    let info = server.info("clients").await.unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("connected_clients:"));
    line.unwrap().trim().parse().unwrap()
}
