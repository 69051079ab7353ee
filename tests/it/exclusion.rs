//! Never two at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::{LockManager, distributed_lock};

use crate::calls::{Failure, brisk, connect};
use harness::eventually::soon;
use harness::holders::{Log, NotingPolls};
use harness::process::emit;
use harness::server::Server;
use harness::storm::{self, Storm};

const KEYS: u64 = 3;
const TTL: Duration = Duration::from_millis(600);

/// A role: locks one of a few keys again and again and works under it for a random time, as long as it lives.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn work(arguments: &[&str]) {
    let [url, log, seed] = arguments[..] else { panic!("{arguments:?}") };
    let (manager, log) = (connect(url).await, Log::open(log));
    let mut random = fastrand::Rng::with_seed(seed.parse().unwrap());
    emit("works", "");
    loop {
        let (key, steps) = (format!("k{}", random.u64(0..KEYS)), random.u32(1..100));
        let body = async {
            let holder = log.start(&key, &uuid::Uuid::new_v4().to_string());
            for _ in 0..steps {
                // The pace of the body's steps.
                tokio::time::sleep(Duration::from_millis(3)).await;
                holder.step();
            }
            Ok::<_, Failure>(())
        };
        let call = manager.lock(&key).ttl(TTL).retry(20).run(body);
        // Refused and lost are what this process has to live with.
        let _ = NotingPolls::of(call).await;
    }
}

#[tokio::test]
async fn eight_processes_that_are_killed_and_paused_at_random_never_overlap() {
    let Storm { holds, killed, paused } = storm::rage("exclusion: work", Duration::from_secs(30), 50..400).await;
    // Else the test proves nothing.
    assert!(holds.len() > 100 && killed > 3 && paused > 10, "too little happened");
}

#[distributed_lock(key = "shared:<key>", ttl = "10m", retry = 4294967295, backoff = "1ms..5ms")]
async fn counted(key: &str, inside: &AtomicUsize) -> Result<(), Failure> {
    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two bodies at once");
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    inside.fetch_sub(1, Ordering::SeqCst);
    Ok(())
}

async fn in_a_task(manager: LockManager, inside: &'static AtomicUsize) {
    for _ in 0..20 {
        manager.scope(counted("k", inside)).await.unwrap();
    }
}

/// Threads don't own locks: the tasks of this test move between four of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_of_one_process_exclude_each_other() {
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let tasks: Vec<_> = (0..8).map(|_| tokio::spawn(in_a_task(manager.clone(), &INSIDE))).collect();
    for task in tasks {
        soon("all turns", task).await.unwrap();
    }
    assert_eq!(server.dbsize().await, 0);
}

/// Nor do tasks in the sense of the runtime: two futures of one task exclude each other too.
#[tokio::test]
async fn siblings_of_one_task_exclude_each_other() {
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let siblings = async { tokio::join!(in_a_task(manager.clone(), &INSIDE), in_a_task(manager.clone(), &INSIDE)) };
    soon("both siblings", siblings).await;
}

/// A task that a body spawns does not inherit its lock.
#[tokio::test]
async fn a_spawned_child_of_a_body_is_refused() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let theirs = manager.clone();
    let body = async move {
        let request = theirs.lock("k").retry(2).backoff(brisk());
        let outcome = tokio::spawn(request.acquire()).await.unwrap();
        assert!(outcome.unwrap_err().is_busy());
        Ok::<_, Failure>(())
    };
    soon("the call to end", manager.lock("k").run(body)).await.unwrap();
}
