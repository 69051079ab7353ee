//! Application runtimes that end, are replaced, or are blocked by a body: the watchdog has its own thread.

use std::time::Duration;

use distlock::LockManager;
use tokio::runtime::{Builder, Runtime};

use crate::calls::{FOR_EVER, Failure, connect, is_freed, redis_key, sees_renewals};
use harness::eventually::eventually;
use harness::server::Server;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Does something on a thread that has no runtime yet, and waits for it here.
async fn on_a_plain_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(move || std::thread::spawn(work).join().unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_runtime_that_is_shut_down_with_locks_held_leaves_no_key() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let theirs = manager.clone();
    let runtime = on_a_plain_thread(move || {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        for number in 0..20 {
            let body = std::future::pending::<Result<(), Failure>>();
            runtime.spawn(theirs.lock(format!("{number}")).ttl(FOR_EVER).run(body));
        }
        runtime
    })
    .await;
    eventually("all locks to be held", async || server.dbsize().await == 20).await;
    on_a_plain_thread(move || drop(runtime)).await;
    eventually("all locks to be freed", async || server.dbsize().await == 0).await;
    manager.lock("1").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_body_that_blocks_its_only_runtime_thread_for_three_ttls_keeps_its_lease() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let ttl = Duration::from_secs(2);
    let blocked = tokio::spawn(on_a_plain_thread(move || {
        runtime().block_on(manager.lock("k").ttl(ttl).run(async move {
            // What the test is about: a body that blocks.
            std::thread::sleep(ttl * 3);
            Ok::<_, Failure>(7)
        }))
    }));
    eventually("the lock", || server.exists("lock:{k}")).await;
    // Fails when the key goes away in between. Three ttls have nine renewals.
    sees_renewals(&server, "k", 6).await;
    assert_eq!(blocked.await.unwrap().expect("the lease was not kept"), 7);
    assert!(!server.exists(&redis_key("k")).await, "the release was not awaited");
}

/// Acquires, is refused, is renewed, and releases, on a runtime of its own that then ends.
fn a_whole_life(manager: &LockManager, key: &str, renewed: impl Future<Output = ()>) {
    let runtime = runtime();
    runtime.block_on(async {
        let guard = manager.lock(key).ttl(Duration::from_millis(900)).acquire().await.unwrap();
        assert!(manager.lock(key).acquire().await.unwrap_err().is_busy());
        renewed.await;
        guard.release().await.unwrap();
    });
}

#[tokio::test]
async fn a_manager_works_in_a_second_runtime_after_its_first_has_ended() {
    let server = std::sync::Arc::new(Server::start().await);
    let url = server.url();
    let manager = on_a_plain_thread(move || runtime().block_on(connect(&url))).await;
    for round in ["1", "2", "3"] {
        let (theirs, server) = (manager.clone(), server.clone());
        on_a_plain_thread(move || a_whole_life(&theirs, round, sees_renewals(&server, round, 2))).await;
        // In between, also on the test's own runtime.
        manager.lock("here").acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(server.dbsize().await, 0);
}

#[tokio::test]
async fn a_manager_works_in_two_runtimes_at_once() {
    let server = std::sync::Arc::new(Server::start().await);
    let manager = connect(&server.url()).await;
    let lives = ["1", "2"].map(|key| {
        let (manager, server) = (manager.clone(), server.clone());
        tokio::spawn(on_a_plain_thread(move || a_whole_life(&manager, key, sees_renewals(&server, key, 3))))
    });
    for life in lives {
        life.await.unwrap();
    }
}

#[tokio::test]
async fn a_guard_can_be_kept_and_dropped_after_its_runtime_has_ended() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let theirs = manager.clone();
    let guard = on_a_plain_thread(move || {
        let request = theirs.lock("k").ttl(Duration::from_millis(900));
        runtime().block_on(request.acquire()).unwrap()
    })
    .await;
    sees_renewals(&server, "k", 3).await;
    assert!(guard.lease().is_held());
    on_a_plain_thread(move || drop(guard)).await;
    is_freed(&server, "k").await;
}
