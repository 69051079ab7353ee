//! Connections that break, get stuck, are slow to make, or lead to a server that is none to ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use distlock::{Backoff, LockManager};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::calls::{FOR_EVER, connect, redis_key, sees_renewals, warm_up};
use harness::eventually::eventually;
use harness::proxy::{Proxy, Trip};
use harness::server::Server;

/// A proxy whose client side breaks while the first lock's SET is on its way; the SET arrives 300 ms later.
async fn proxy_that_breaks_and_delivers_late(server: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let broken = Arc::new(AtomicBool::new(false));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (server, broken) = (server.clone(), broken.clone());
            tokio::spawn(async move {
                let server = TcpStream::connect(server).await.unwrap();
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                let replies = tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
                let mut buffer = vec![0; 16 * 1024];
                loop {
                    let Ok(length) = from_client.read(&mut buffer).await else { return };
                    if length == 0 {
                        return;
                    }
                    let text = String::from_utf8_lossy(&buffer[..length]).to_string();
                    if text.contains("SET") && text.contains("{late}") && !broken.swap(true, Ordering::SeqCst) {
                        replies.abort();
                        let _ = replies.await;
                        drop(from_client);
                        // The request is late: that is the fault.
                        tokio::time::sleep(Duration::from_millis(300)).await;
                        to_server.write_all(&buffer[..length]).await.unwrap();
                        // The connection to the server stays open for longer than the server needs.
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        return;
                    }
                    to_server.write_all(&buffer[..length]).await.unwrap();
                }
            });
        }
    });
    format!("redis://{address}")
}

#[tokio::test]
async fn a_set_that_lands_after_its_connection_broke_is_freed() {
    let server = Server::start().await;
    let url = proxy_that_breaks_and_delivers_late(server.address()).await;
    let manager = connect(&url).await;
    warm_up(&manager).await;
    let guard = manager.lock("late").ttl(FOR_EVER).acquire().await.expect("the second sending is granted");
    guard.release().await.expect("and released");
    assert!(!server.exists(&redis_key("late")).await, "freed by the release");
    eventually("the late SET to land", || async { server.exists(&redis_key("late")).await }).await;
    let begin = Instant::now();
    while server.exists(&redis_key("late")).await {
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "the key stays, for {} ms",
            server.pttl(&redis_key("late")).await
        );
        tokio::time::sleep(Duration::from_millis(20)).await; // between two looks
    }
}

/// One connection attempt that gets stuck is no reason to lose a lease that has most of its life before it.
#[tokio::test]
async fn one_stuck_connection_attempt_does_not_lose_a_short_lease() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    let guard = manager.lock("k").ttl(Duration::from_millis(1500)).acquire().await.unwrap();
    sees_renewals(&server, "k", 2).await;
    // All connections end; of the new ones, the first is never answered, and all others are sound.
    link.arm("hello", 0, Trip::Silence);
    link.reset();
    link.tripped(1).await;
    tokio::time::sleep(Duration::from_secs(4)).await; // several ttls
    let held = guard.lease().ensure_held();
    assert!(held.is_ok(), "{held:?}");
}

/// A link on which to connect takes longer than a command does, as it does with TLS: what comes first on each connection is
/// passed on after `handshake`.
async fn proxy_with_slow_connections(server: String, handshake: Duration) -> (String, tokio::sync::watch::Sender<u32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let resets = tokio::sync::watch::Sender::new(0);
    let end = resets.subscribe();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (server, mut end) = (server.clone(), end.clone());
            end.mark_unchanged();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(server).await.unwrap();
                // The handshake.
                tokio::time::sleep(handshake).await;
                tokio::select! {
                    _ = end.changed() => {}
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                }
            });
        }
    });
    (format!("redis://{address}"), resets)
}

/// Callers who give up early must not keep the manager from ever being connected again.
#[tokio::test]
async fn callers_with_short_patience_do_not_prevent_a_reconnection() {
    let server = Server::start().await;
    let (url, resets) = proxy_with_slow_connections(server.address(), Duration::from_millis(600)).await;
    let manager = connect(&url).await;
    // A connection takes 600 ms, a command about one.
    let patience = Duration::from_millis(400);
    let try_once = async || match tokio::time::timeout(patience, manager.lock("k").acquire()).await {
        Ok(Ok(guard)) => guard.release().await.is_ok(),
        _ => false,
    };
    assert!(try_once().await);
    resets.send_modify(|times| *times += 1);
    tokio::time::sleep(Duration::from_millis(100)).await; // the client notices
    let mut granted = 0;
    for _ in 0..15 {
        granted += u32::from(try_once().await);
    }
    assert!(granted > 0, "not one of 15 calls in 6 s was granted, though the server can be reached all the time");
}

/// A server that is no master (READONLY) is met by few connections, as one that refuses them is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_server_is_not_met_by_a_storm_of_connections() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    server.readonly().await;
    let before = server.connections_received().await;
    let begin = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..16 {
        let manager = manager.clone();
        callers.spawn(async move {
            let mut calls = 0_u64;
            while begin.elapsed() < Duration::from_secs(3) {
                let request = manager.lock(format!("{caller}")).retry(3);
                assert!(request.acquire().await.unwrap_err().is_transient());
                calls += 1;
            }
            calls
        });
    }
    let calls: u64 = callers.join_all().await.into_iter().sum();
    let made = server.connections_received().await - before;
    let seconds = begin.elapsed().as_secs() + 1;
    // A server that refuses is asked at most every 25 ms.
    assert!(made < 40 * seconds, "{made} connections in {seconds} s, for {calls} calls of 4 attempts");
}

/// A proxy that, of the connection on which the key `{late}` is first asked for, loses all replies; holds the second
/// request for it for 300 ms, then breaks the client's side, and delivers that request and nothing that came later.
async fn proxy_that_delivers_the_second_request_late(server: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (server, seen) = (server.clone(), seen.clone());
            tokio::spawn(async move {
                let server = TcpStream::connect(server).await.unwrap();
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                let deaf = Arc::new(AtomicBool::new(false));
                let lost = deaf.clone();
                let replies = tokio::spawn(async move {
                    let mut buffer = vec![0; 16 * 1024];
                    while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
                        if !lost.load(Ordering::SeqCst) {
                            to_client.write_all(&buffer[..length]).await.unwrap();
                        }
                    }
                });
                let mut buffer = vec![0; 16 * 1024];
                loop {
                    let Ok(length @ 1..) = from_client.read(&mut buffer).await else { return };
                    let text = String::from_utf8_lossy(&buffer[..length]).to_string();
                    if text.contains("{late}") {
                        let before = seen.load(Ordering::SeqCst);
                        if before == 0 {
                            seen.store(1, Ordering::SeqCst);
                            deaf.store(true, Ordering::SeqCst);
                        } else if before == 1 {
                            seen.store(2, Ordering::SeqCst);
                            // The request is late: that is the fault.
                            tokio::time::sleep(Duration::from_millis(300)).await;
                            replies.abort();
                            drop(from_client);
                            to_server.write_all(&buffer[..length]).await.unwrap();
                            // The connection to the server stays open for longer than the server needs.
                            tokio::time::sleep(Duration::from_secs(1)).await;
                            return;
                        }
                    }
                    to_server.write_all(&buffer[..length]).await.unwrap();
                }
            });
        }
    });
    format!("redis://{address}")
}

/// A call may have had several requests of unknown outcome: when what the first one set is freed, the second one may
/// still set the key again.
#[tokio::test]
async fn a_second_stray_request_is_freed_too() {
    let server = Server::start().await;
    let url = proxy_that_delivers_the_second_request_late(server.address()).await;
    let manager = LockManager::builder().url(url).command_timeout(Duration::from_millis(300)).build().await.unwrap();
    warm_up(&manager).await;
    let request = manager
        .lock("late")
        .ttl(FOR_EVER)
        .retry(1)
        .backoff(Backoff::new(Duration::from_millis(5), Duration::from_millis(5)).unwrap());
    // The first try times out after 300 ms; the caller gives up while the second one is on its way.
    let outcome = tokio::time::timeout(Duration::from_millis(400), request.acquire()).await;
    assert!(outcome.is_err(), "{outcome:?}");
    // Well past the late delivery at about 600 ms after the start.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begin = Instant::now();
    while server.exists(&redis_key("late")).await {
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "the key stays, for {} ms",
            server.pttl(&redis_key("late")).await
        );
        tokio::time::sleep(Duration::from_millis(20)).await; // between two looks
    }
}

/// A connection that falls silent must be given up early enough for a renewal over a new one, which can be had all the
/// time.
async fn survives_a_silent_connection(ttl: Duration) -> Result<(), String> {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    let guard = manager.lock("k").ttl(ttl).acquire().await.unwrap();
    sees_renewals(&server, "k", 2).await;
    link.arm("{k}", 0, Trip::Silence);
    link.tripped(1).await;
    tokio::time::sleep(ttl * 3).await; // several ttls
    guard.lease().ensure_held().map_err(|why| format!("{ttl:?}: {why}"))
}

#[tokio::test]
async fn one_silent_connection_does_not_lose_a_short_lease() {
    let mut lost = Vec::new();
    for ttl in [600, 900, 1_000, 1_200, 1_500, 2_000, 3_000] {
        lost.extend(survives_a_silent_connection(Duration::from_millis(ttl)).await.err());
    }
    assert!(lost.is_empty(), "{lost:#?}");
}

/// `dial::Unreachable::until`: a failure stands for 25 to 75 ms and is handed to all tries in that time, so that a single
/// connection that is reset uses up all tries of a call with short pauses: three of the four never ask anybody.
#[tokio::test]
async fn one_failed_connection_does_not_use_up_all_tries() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    warm_up(&manager).await;
    // All connections end; of the new ones, the first is reset, and all others are sound.
    link.arm("hello", 0, Trip::Reset);
    link.reset();
    tokio::time::sleep(Duration::from_millis(50)).await; // the client notices
    let before = link.connections();
    let backoff = Backoff::new(Duration::from_millis(4), Duration::from_millis(4)).unwrap();
    let outcome = manager.lock("k").retry(3).backoff(backoff).acquire().await;
    let made = link.connections() - before;
    assert!(outcome.is_ok(), "four attempts over {made} connection(s): {outcome:?}");
}
