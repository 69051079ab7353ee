//! As many as there may be: ten thousand permits, and lines that are longer than what is done in one go.

use std::sync::Arc;
use std::time::Duration;

use distlock::{LockGuard, LockManager};
use redis::cmd;
use tokio::sync::Barrier;

use super::{Kind, LONG, has_shares, is_refused, nothing_is_left, owned, shares, stand_in_line, time};
use crate::calls::{brisk, connect, redis_key};
use harness::eventually::{eventually, soon, within};
use harness::server::Server;

const MANY: u32 = 10_000;
/// Ten thousand calls in a debug build, beside nine other tests on two cores.
const A_WHILE: Duration = Duration::from_secs(240);

async fn in_parallel<F: Future<Output = LockGuard> + Send + 'static>(
    count: u32,
    call: impl Fn(u32) -> F,
) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..count {
        tasks.spawn(call(number));
        if tasks.len() >= 100 {
            guards.push(tasks.join_next().await.unwrap().unwrap());
        }
    }
    guards.extend(tasks.join_all().await);
    guards
}

async fn all_permits(manager: &LockManager, ttl: Duration, renewed: bool) -> Vec<LockGuard> {
    let manager = manager.clone();
    let guards = in_parallel(MANY, |_| {
        let request = Kind::Permits(MANY).lock(&manager, "k").ttl(ttl).watchdog(renewed).retry(10);
        async move { request.acquire().await.unwrap() }
    });
    tokio::time::timeout(A_WHILE, guards).await.expect("all permits")
}

#[tokio::test]
async fn ten_thousand_permits_are_held_renewed_and_released() {
    let server = Server::start().await;
    let (manager, other) = (owned(&server, "one").await, owned(&server, "other").await);
    let ttl = Duration::from_secs(20);
    let guards = all_permits(&manager, ttl, true).await;
    assert_eq!(shares(&server, "k").await.len(), guards.len());
    assert_eq!(is_refused(Kind::Permits(MANY).lock(&other, "k")).await, "one and 9999 others");
    for kind in [Kind::Plain, Kind::Read, Kind::Permits(1)] {
        assert_eq!(is_refused(kind.lock(&other, "k")).await, "one and 9999 others", "{kind:?}");
    }
    // The last one to expire by now: when that is over, all are there only by their renewals.
    let last = time(&server).await + shares(&server, "k").await.last().unwrap().remaining;
    within(A_WHILE, "all leases to be over", || async { time(&server).await > last }).await;
    assert_eq!(shares(&server, "k").await.len(), guards.len());
    assert!(guards.iter().all(|guard| guard.lease().is_held()));
    // One goes, one comes.
    let mut guards = guards;
    guards.swap_remove(5_000).release().await.unwrap();
    guards.push(Kind::Permits(MANY).lock(&other, "k").acquire().await.unwrap());
    is_refused(Kind::Permits(MANY).lock(&other, "k")).await;
    // Half of them by hand, and the rest by the watchdog, in batches.
    let kept = guards.split_off(guards.len() / 2);
    for guard in guards {
        guard.release().await.unwrap();
    }
    drop(kept);
    within(A_WHILE, "all to be given back", || async { server.dbsize().await == 0 }).await;
}

/// What all of them leave has to be cleared away by the next one that comes.
#[tokio::test]
async fn ten_thousand_dead_permits_keep_nobody_from_the_next() {
    let server = Server::start().await;
    let manager = owned(&server, "one").await;
    let now = time(&server).await;
    // As a process leaves them that was killed, with one that goes on, so that the set stays.
    let (living, ghost) = (now + 600_000, now + 1_000);
    let script = "for n = 1, 9999 do redis.call('ZADD', KEYS[1], ARGV[1], 'p10000:00000000-0000-4000-8000-' .. \
                  string.format('%012d', n) .. '/ghost') end \
                  redis.call('ZADD', KEYS[1], ARGV[2], 'p10000:99999999-0000-4000-8000-000000000000/living') \
                  redis.call('ZADD', KEYS[1], 1e15 + 10000, '#10000') return redis.call('PEXPIRE', KEYS[1], 600000)";
    let mut make = cmd("EVAL");
    make.arg(script).arg(1).arg(redis_key("k")).arg(ghost).arg(living);
    server.query::<()>(&make).await.unwrap();
    eventually("them to be dead", || async { time(&server).await > ghost }).await;
    assert_eq!(is_refused(Kind::Write.lock(&manager, "k")).await, "living");
    let guard = Kind::Permits(2).lock(&manager, "k").acquire().await.unwrap();
    is_refused(Kind::Permits(2).lock(&manager, "k")).await;
    let left: u64 = server.query(cmd("ZCARD").arg(redis_key("k"))).await.unwrap();
    assert_eq!(left, 4, "two shares, and a counter for each number");
    guard.release().await.unwrap();
    has_shares(&server, "k", 1).await;
}

/// Each with a number of its own: one fewer than the one before, as where a number is being lowered.
#[tokio::test]
async fn thousands_that_disagree_are_counted_by_the_smallest_number() {
    let server = Server::start().await;
    let (manager, other) = (owned(&server, "one").await, owned(&server, "other").await);
    let mut guards = Vec::new();
    let half = async {
        for number in 0..MANY / 2 {
            guards.push(Kind::Permits(MANY - number).lock(&manager, "k").ttl(10 * LONG).acquire().await.unwrap());
        }
    };
    tokio::time::timeout(A_WHILE, half).await.expect("half of the permits");
    // The smallest number is 5,001, and 5,000 hold.
    is_refused(Kind::Permits(MANY / 2).lock(&other, "k")).await;
    let last = Kind::Permits(MANY).lock(&other, "k").acquire().await.unwrap();
    is_refused(Kind::Permits(MANY).lock(&other, "k")).await;
    is_refused(Kind::Write.lock(&other, "k")).await;
    drop(guards);
    within(A_WHILE, "all to be given back", || async { shares(&server, "k").await.len() == 1 }).await;
    last.release().await.unwrap();
    nothing_is_left(&server).await;
}

/// More than the server hands a lock to in one go.
#[tokio::test]
async fn a_hundred_readers_of_as_many_managers_are_in_together() {
    let server = Server::start().await;
    let writer = Kind::Write.lock(&connect(&server.url()).await, "k").acquire().await.unwrap();
    let together = Arc::new(Barrier::new(100));
    let mut tasks = Vec::new();
    for number in 0..100 {
        let request = Kind::Read.lock(&connect(&server.url()).await, "k").ttl(LONG).wait(LONG);
        let together = together.clone();
        tasks.push(tokio::spawn(async move {
            let guard = request.acquire().await.unwrap();
            together.wait().await;
            guard.release().await.unwrap();
        }));
        if number % 25 == 24 {
            stand_in_line(&server, "k", number + 1).await;
        }
    }
    writer.release().await.unwrap();
    for task in tasks {
        soon("all to be in", task).await.unwrap();
    }
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_thousand_readers_hold_and_release_a_lock() {
    let server = Server::start().await;
    let (manager, other) = (owned(&server, "one").await, owned(&server, "other").await);
    let theirs = manager.clone();
    let guards = in_parallel(1_000, |_| {
        let request = Kind::Read.lock(&theirs, "k").ttl(Duration::from_secs(20)).retry(10);
        async move { request.acquire().await.unwrap() }
    });
    let guards = tokio::time::timeout(A_WHILE, guards).await.expect("all readers");
    assert_eq!(shares(&server, "k").await.len(), guards.len());
    assert_eq!(is_refused(Kind::Permits(MANY).lock(&other, "k")).await, "one and 999 others");
    let writer = tokio::spawn(Kind::Write.lock(&other, "k").retry(u32::MAX).backoff(brisk()).acquire());
    eventually("the mark", || async { server.exists(&super::mark_of("k")).await }).await;
    is_refused(Kind::Read.lock(&manager, "k")).await;
    drop(guards);
    soon("the writer", writer).await.unwrap().unwrap().release().await.unwrap();
    nothing_is_left(&server).await;
}
