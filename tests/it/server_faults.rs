//! Servers that can't be reached, don't know us, crash, restart, and forget scripts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, LostReason};
use redis::cmd;

use crate::calls::{Call, Failure, brisk, connect, redis_key, sees_renewals, warm_up};
use harness::eventually::{eventually, soon};
use harness::inspect::query_at;
use harness::proxy::Proxy;
use harness::server::Server;

/// The error of a connect that can't succeed, and how long it took.
async fn no_connection(url: &str) -> (LockError, Duration) {
    let begin = Instant::now();
    let outcome = soon("connect to end", LockManager::connect(url)).await;
    (outcome.expect_err("connected to what isn't there"), begin.elapsed())
}

/// Twice the connect timeout of two seconds: that one, and as much again for a crowded machine.
const CONNECT_BOUND: Duration = Duration::from_secs(4);

#[tokio::test]
async fn connecting_to_a_server_that_is_down_says_where_and_why() {
    let server = Server::start().await;
    server.kill();
    let (error, time) = no_connection(&server.url()).await;
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&server.address()), "which address? {text}");
    assert!(text.to_lowercase().contains("refused"), "why? {text}");
    assert!(error.is_transient(), "{error:?}");
    assert!(time < CONNECT_BOUND, "took {time:?}");
}

#[tokio::test]
async fn connecting_to_a_frozen_server_ends_within_the_connect_timeout() {
    let server = Server::start().await;
    server.freeze();
    let (error, time) = no_connection(&server.url()).await;
    assert!(error.to_string().contains(&server.address()), "which address? {error}");
    assert!(time < CONNECT_BOUND, "took {time:?}");
}

#[tokio::test]
async fn connecting_to_a_listener_that_stays_silent_ends_within_the_connect_timeout() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (error, time) = no_connection(&format!("redis://{address}")).await;
    assert!(error.to_string().contains(&address.to_string()), "which address? {error}");
    assert!(time < CONNECT_BOUND, "took {time:?}");
}

#[tokio::test]
async fn a_wrong_password_is_a_lasting_error_that_says_so() {
    let server = Server::options().password("right").start().await;
    connect(&server.url()).await;
    let (error, time) = no_connection(&format!("redis://:wrong@{}", server.address())).await;
    assert!(!error.is_transient(), "{error:?}");
    let text = error.to_string();
    assert!(text.to_lowercase().contains("password") || text.contains("WRONGPASS"), "why? {text}");
    assert!(!text.contains("wrong@") && !text.contains(":wrong"), "the password is in the text: {text}");
    assert!(time < CONNECT_BOUND, "took {time:?}");
}

#[tokio::test]
async fn a_missing_right_ends_a_call_at_once_whatever_its_retries() {
    let server = Server::options().user("reader on >p ~* +@read +@connection").start().await;
    let manager = connect(&format!("redis://reader:p@{}", server.address())).await;
    let error = soon("the call to end", manager.lock("k").retry(u32::MAX).acquire()).await.unwrap_err();
    assert!(matches!(error, LockError::Backend { attempts: 1, .. }), "{error:?}");
    assert!(!error.is_transient(), "{error:?}");
    assert!(error.to_string().contains("`k`"), "which lock? {error}");
}

#[tokio::test]
async fn a_hold_whose_key_was_lost_with_a_restart_is_stopped() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let call = Call::holding(&manager, "k", Duration::from_secs(3)).await;
    server.restart().await;
    let failure = call.ended().await.unwrap_err();
    assert_eq!(failure.lost(), LostReason::Gone, "{failure:?}");
    assert_eq!(server.dbsize().await, 0, "a lost lock was taken again");
    manager.lock("k").retry(100).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_hold_whose_key_survived_a_restart_goes_on() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let call = Call::holding(&manager, "k", Duration::from_secs(6)).await;
    server.restart_with_data().await;
    sees_renewals(&server, "k", 2).await;
    call.finished().await.unwrap();
}

#[tokio::test]
async fn a_server_that_stays_down_ends_the_hold_with_the_lease() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let call = Call::holding(&manager, "k", Duration::from_secs(1)).await;
    server.kill();
    assert_eq!(call.ended().await.unwrap_err().lost(), LostReason::Expired);
    let error = manager.lock("k").acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }) && error.is_transient(), "{error:?}");
}

/// The documented minimal rule, on a user of its own.
const USER: &str = "locker on >secret resetchannels ~lock:* +@connection +set +get +eval +evalsha +del +pexpire +pttl";

/// Keeps calling until told to stop; failures while the server is down are no news.
fn load(manager: &LockManager, stop: &Arc<AtomicBool>) -> Vec<tokio::task::JoinHandle<usize>> {
    let one = |number| {
        let (manager, stop) = (manager.clone(), stop.clone());
        tokio::spawn(async move {
            let mut done = 0;
            while !stop.load(Ordering::SeqCst) {
                let request = manager.lock(format!("{number}")).ttl(Duration::from_secs(5));
                match request.retry(3).backoff(brisk()).run(async { Ok::<_, Failure>(()) }).await {
                    Ok(()) => done += 1,
                    // A caller of a real service has something to do between two calls, too.
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
            done
        })
    };
    (0..50).map(one).collect()
}

#[tokio::test]
async fn twenty_restarts_under_load_leave_nothing_wrong_behind() {
    let server = Server::options().user(USER).start().await;
    let manager = connect(&format!("redis://locker:secret@{}/3", server.address())).await;
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = load(&manager, &stop);
    for restart in 1..=20 {
        server.restart().await;
        let works = async || {
            let request = manager.lock("probe").retry(10_000).backoff(brisk());
            request.acquire().await.unwrap_or_else(|why| panic!("restart {restart}: {why}")).release().await
        };
        // A release may meet the next hiccup; the lock was had, which is what counts.
        let _ = soon("the lock to be had again", works()).await;
        let connections = server.connections_received().await;
        // Ours to look with, one to start, and a handful of the manager's: not one per call or try.
        assert!(connections < 50, "restart {restart}: {connections} connections");
    }
    stop.store(true, Ordering::SeqCst);
    for task in tasks {
        soon("a caller to stop", task).await.unwrap();
    }
    let keyspace = server.info("keyspace").await.unwrap();
    assert!(!keyspace.contains("db0:"), "keys outside of database 3: {keyspace}");
}

/// A failover as a managed Redis makes it: the primary becomes a replica with its connections open, and the name leads to
/// the replica that was promoted, which has the lock.
#[tokio::test]
async fn a_hold_goes_on_at_the_new_primary_when_the_old_one_has_become_a_replica() {
    let (old, new) = (Server::start().await, Server::start().await);
    let name = Proxy::start(&old).await;
    let manager = connect(&name.url()).await;
    let call = Call::holding(&manager, "k", Duration::from_secs(6)).await;
    let value = old.get(&redis_key("k")).await.unwrap();
    new.set_for(&redis_key("k"), &value, Duration::from_secs(6)).await;
    name.lead_to(&new);
    old.readonly().await;
    sees_renewals(&new, "k", 2).await;
    let guard = manager.lock("another").retry(100).backoff(brisk()).acquire().await.unwrap();
    assert!(new.exists(&redis_key("another")).await, "a lock was taken elsewhere");
    guard.release().await.unwrap();
    call.finished().await.unwrap();
    assert!(!new.exists(&redis_key("k")).await);
}

#[tokio::test]
async fn a_changed_password_is_a_clear_error_and_no_storm() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    warm_up(&manager).await;
    server.config("requirepass", "new").await;
    let admin = format!("redis://:new@{}", server.address());
    query_at::<u64>(admin.clone(), cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").clone()).await.unwrap();
    let error = soon("the call to end", manager.lock("k").retry(20).backoff(brisk()).acquire()).await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    let text = error.to_string().to_lowercase();
    assert!(text.contains("auth") || text.contains("password"), "why? {text}");
    let stats = |text: String| -> u64 {
        let count = text.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        count.unwrap().trim().parse().unwrap()
    };
    let info = cmd("INFO").arg("stats").clone();
    let before = stats(query_at(admin.clone(), info.clone()).await.unwrap());
    // A second in which an endless loop would make thousands of connections.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let made = stats(query_at(admin, info).await.unwrap()) - before;
    assert!(made < 100, "{made} connections in a second");
}

#[tokio::test]
async fn nobody_notices_scripts_that_are_flushed_all_the_time() {
    let server = Arc::new(Server::start().await);
    let manager = connect(&server.url()).await;
    let flushing = {
        let server = server.clone();
        tokio::spawn(async move {
            loop {
                server.flush_scripts().await;
                // The rate of the fault.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
    };
    let held = Call::holding(&manager, "held", Duration::from_millis(900)).await;
    let caller = |number: u32| {
        let manager = manager.clone();
        tokio::spawn(async move {
            for round in 0..125 {
                let call = manager.lock(format!("{number}")).run(async { Ok::<_, Failure>(()) });
                call.await.unwrap_or_else(|why| panic!("caller {number}, round {round}: {why:?}"));
            }
        })
    };
    for task in (0..16).map(caller).collect::<Vec<_>>() {
        task.await.unwrap();
    }
    sees_renewals(&server, "held", 3).await;
    held.finished().await.unwrap();
    flushing.abort();
    let calls = server.calls().await;
    let scripts = ["eval", "evalsha"].map(|name| calls.get(name).copied().unwrap_or_default());
    // Each release is one command, or two where the script was unknown; some are added for the renewals.
    assert!(scripts[0] + scripts[1] < 2_000 * 2 + 100, "eval and evalsha: {scripts:?}");
}

#[tokio::test]
async fn scripts_work_for_a_user_who_may_not_load_them() {
    let server = Server::options().user(USER).start().await;
    let manager = connect(&format!("redis://locker:secret@{}", server.address())).await;
    let call = Call::holding(&manager, "k", Duration::from_millis(900)).await;
    sees_renewals(&server, "k", 2).await;
    server.flush_scripts().await;
    sees_renewals(&server, "k", 2).await;
    call.finished().await.unwrap();
    assert!(!server.exists(&redis_key("k")).await, "the release was not awaited");
}

#[tokio::test]
async fn connections_that_are_killed_cost_no_call() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let held = Call::holding(&manager, "held", Duration::from_secs(3)).await;
    for _ in 0..5 {
        server.kill_clients("normal").await;
        let call = async || {
            let request = manager.lock("k").retry(20).backoff(brisk());
            request.run(async { Ok::<_, Failure>(()) }).await
        };
        call().await.unwrap();
        eventually("the key to be freed", || async { !server.exists(&redis_key("k")).await }).await;
    }
    sees_renewals(&server, "held", 1).await;
    held.finished().await.unwrap();
}
