//! What an uncontended lock costs: acquire and release through the attribute, against the same two commands written by
//! hand on the same type of connection; and in memory, against the backend called by hand.
//!
//! `cargo bench --bench uncontended` starts a `redis-server` of its own, or uses the one that `REDIS_URL` names. The two
//! sides take turns in one run, round by round, and each round gives a ratio: the machine's moods hit both. Above 1.00 the
//! attribute is the faster one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a bench may end by a panic"
)]
#![allow(clippy::cast_precision_loss, reason = "counts of a few thousand are shown as decimals")]

#[path = "shared/server.rs"]
mod server;
#[path = "shared/by_hand.rs"]
mod by_hand;

use std::alloc::System;
use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::backend::{Acquired, Attempt, Backend, Entry, MemoryBackend, Released};
use distlock::{LockError, LockManager, distributed_lock};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::runtime::Builder;

use self::by_hand::ByHand;
use self::server::Server;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const ROUNDS: usize = 41;
const TTL: Duration = Duration::from_secs(30);

#[distributed_lock(key = "order:<id>", ttl = "30s")]
async fn locked(id: usize) -> Result<usize, LockError> {
    Ok(id)
}

fn main() {
    let server = Server::start();
    println!("acquire and release, {ROUNDS} rounds each, attribute / by hand (higher is better):");
    // One task on one thread: on two, whether its connection happens to be driven by the other thread would decide.
    let one = Builder::new_current_thread().enable_all().build().unwrap();
    one.block_on(measure(&server.url, 1, 1_000, 20_000));
    let many = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    many.block_on(measure(&server.url, 64, 100, 500));
    one.block_on(heard(&server.url));
    one.block_on(allocations(&server.url));
}

/// What a listener costs: the attribute with one against the attribute without.
async fn heard(url: &str) {
    let plain = LockManager::connect(url).await.expect("the server is there");
    let heard = LockManager::builder().url(url).listener(|event| drop(event.clone())).build().await;
    let heard = heard.expect("the server is there");
    compare("heard", 1, 1_000, || rounds_of(1, 1_000, heard.clone()), || rounds_of(1, 1_000, plain.clone())).await;
}

async fn measure(url: &str, tasks: usize, cycles: usize, cycles_in_memory: usize) {
    let hand = ByHand::connect(url).await;
    let locks = LockManager::connect(url).await.expect("the server is there");
    let attribute = || rounds_of(tasks, cycles, locks.clone());
    let by_hand = || hand_rounds(tasks, cycles, hand.clone());
    compare("redis", tasks, tasks * cycles, attribute, by_hand).await;

    let locks = LockManager::in_memory();
    let backend = Arc::new(MemoryBackend::new());
    let attribute = || rounds_of(tasks, cycles_in_memory, locks.clone());
    let by_hand = || memory_rounds(tasks, cycles_in_memory, backend.clone());
    compare("memory", tasks, tasks * cycles_in_memory, attribute, by_hand).await;
}

/// Lets the two sides take turns, and prints the median of the ratios with the fastest and the slowest round.
async fn compare<A, B>(what: &str, tasks: usize, cycles: usize, ours: impl Fn() -> A, floor: impl Fn() -> B)
where
    A: Future<Output = Duration>,
    B: Future<Output = Duration>,
{
    // Connections, caches and the allocator warm up.
    ours().await;
    floor().await;
    let mut ratios = Vec::new();
    let (mut our_times, mut floor_times) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // Who goes first changes, too.
        let (ours, floor) = if round % 2 == 0 {
            let ours = ours().await;
            (ours, floor().await)
        } else {
            let floor = floor().await;
            (ours().await, floor)
        };
        ratios.push(floor.as_secs_f64() / ours.as_secs_f64());
        our_times.push(ours.as_secs_f64() * 1e6 / cycles as f64);
        floor_times.push(floor.as_secs_f64() * 1e6 / cycles as f64);
    }
    let ((ratio, low, high), (ours, ..), (floor, ..)) = (spread(ratios), spread(our_times), spread(floor_times));
    println!(
        "  {what:>6}, {tasks:>2} tasks: {ratio:.3} (from {low:.3} to {high:.3}); {ours:.2} us against {floor:.2} us a cycle"
    );
}

fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

async fn rounds_of(tasks: usize, cycles: usize, locks: LockManager) -> Duration {
    timed(tasks, move |task| {
        let locks = locks.clone();
        async move {
            let work = async {
                for _ in 0..cycles {
                    locked(task).await.unwrap();
                }
            };
            locks.scope(work).await;
        }
    })
    .await
}

async fn hand_rounds(tasks: usize, cycles: usize, hand: ByHand) -> Duration {
    timed(tasks, move |task| {
        let mut hand = hand.clone();
        async move {
            for _ in 0..cycles {
                cycle(&mut hand, task).await;
            }
        }
    })
    .await
}

async fn memory_rounds(tasks: usize, cycles: usize, backend: Arc<MemoryBackend>) -> Duration {
    timed(tasks, move |task| {
        let backend = backend.clone();
        async move {
            for _ in 0..cycles {
                let (key, token) = (format!("order:{task}"), uuid::Uuid::new_v4().to_string());
                let entry = Entry::new(&key, &token, TTL, TTL);
                let granted = backend.acquire(entry, Attempt::First, &mut None).await.unwrap();
                assert_eq!(granted, Acquired::Granted(None));
                assert_eq!(backend.release(entry).await.unwrap(), Released::Freed);
            }
        }
    })
    .await
}

async fn timed<F: Future<Output = ()> + Send + 'static>(tasks: usize, task: impl Fn(usize) -> F) -> Duration {
    let begin = Instant::now();
    let tasks: Vec<_> = (0..tasks).map(|id| tokio::spawn(task(id))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    begin.elapsed()
}

async fn cycle(hand: &mut ByHand, id: usize) {
    let key = format!("hand:{{order:{id}}}");
    let token = uuid::Uuid::new_v4().to_string();
    assert!(hand.acquire(&key, &token).await);
    hand.release(&key, &token).await;
}

/// Counts on one task. Whatever else the process allocates meanwhile counts too, which is next to nothing.
async fn allocations(url: &str) {
    const CYCLES: usize = 1_000;
    let mut hand = ByHand::connect(url).await;
    let locks = LockManager::connect(url).await.expect("the server is there");
    let region = Region::new(ALLOCATOR);
    for _ in 0..CYCLES {
        cycle(&mut hand, 0).await;
    }
    let by_hand = region.change();
    let ours = locks
        .scope(async {
            let region = Region::new(ALLOCATOR);
            for _ in 0..CYCLES {
                locked(0).await.unwrap();
            }
            region.change()
        })
        .await;
    let per_call = |stats: stats_alloc::Stats| {
        let count = (stats.allocations + stats.reallocations) as f64 / CYCLES as f64;
        (count, stats.bytes_allocated as f64 / CYCLES as f64)
    };
    let ((ours, our_bytes), (hand, hand_bytes)) = (per_call(ours), per_call(by_hand));
    println!(
        "allocations a call: {ours:.1} ({our_bytes:.0} bytes) through the attribute, {hand:.1} ({hand_bytes:.0} bytes) by hand"
    );
}
