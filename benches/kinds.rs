//! What a lock costs that is shared, or taken for writing: acquire and release through the attribute with `mode = write`,
//! `mode = read` and `permits`, against the same with an exclusive lock; and a permit where 9,999 others are held.
//!
//! `cargo bench --bench kinds` starts a `redis-server` of its own, or uses the one that `REDIS_URL` names. The kinds take turns in
//! one run, round by round, and each round gives a ratio. Above 1.00 a kind is faster than the exclusive lock.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a bench may end by a panic"
)]
#![allow(clippy::cast_precision_loss, reason = "counts of a few thousand are shown as decimals")]

#[path = "shared/server.rs"]
#[allow(dead_code, reason = "other benches use the rest")]
mod server;

use std::time::{Duration, Instant};

use distlock::{LockError, LockGuard, LockManager, distributed_lock};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use self::server::Server;

const ROUNDS: usize = 21;
const PERMITS: u32 = 10_000;

#[derive(Clone, Copy)]
enum Cycle {
    Exclusive,
    Write,
    /// Each task on a key of its own.
    Read,
    /// All tasks on one key.
    ReadTogether,
    Permit,
    PermitTogether,
}

const CYCLES: [(&str, Cycle); 6] = [
    ("exclusive", Cycle::Exclusive),
    ("write", Cycle::Write),
    ("read", Cycle::Read),
    ("read, all tasks on one key", Cycle::ReadTogether),
    ("permit", Cycle::Permit),
    ("permit, all tasks on one key", Cycle::PermitTogether),
];

#[distributed_lock(key = "price:<id>")]
async fn exclusive(id: usize) -> Result<usize, LockError> {
    Ok(id)
}

#[distributed_lock(key = "price:<id>", mode = write)]
async fn write(id: usize) -> Result<usize, LockError> {
    Ok(id)
}

#[distributed_lock(key = "price:<id>", mode = read)]
async fn read(id: usize) -> Result<usize, LockError> {
    Ok(id)
}

#[distributed_lock(key = "upstream:<id>", permits = PERMITS)]
async fn permit(id: usize) -> Result<usize, LockError> {
    Ok(id)
}

impl Cycle {
    async fn run(self, task: usize) {
        let done = match self {
            Cycle::Exclusive => exclusive(task).await,
            Cycle::Write => write(task).await,
            Cycle::Read => read(task).await,
            Cycle::ReadTogether => read(0).await,
            Cycle::Permit => permit(task).await,
            Cycle::PermitTogether => permit(0).await,
        };
        done.unwrap();
    }
}

fn main() {
    let server = Server::start();
    let one = Builder::new_current_thread().enable_all().build().unwrap();
    let many = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    println!("acquire and release, {ROUNDS} rounds each, against the exclusive lock (higher is better):");
    one.block_on(measure(&server.url, 1, 500));
    many.block_on(measure(&server.url, 64, 50));
    one.block_on(with_most_permits_held(&server.url));
}

async fn measure(url: &str, tasks: usize, cycles: usize) {
    let locks = LockManager::connect(url).await.expect("the server is there");
    let mut times: Vec<Vec<f64>> = CYCLES.map(|_| Vec::new()).to_vec();
    // The first round is for connections, caches and the allocator.
    for round in 0..=ROUNDS {
        for (at, (_, cycle)) in CYCLES.into_iter().enumerate() {
            let time = timed(&locks, cycle, tasks, cycles).await;
            if round > 0 {
                times[at].push(time);
            }
        }
    }
    println!("{tasks} tasks:");
    for (at, (name, _)) in CYCLES.into_iter().enumerate() {
        let ratios = times[0].iter().zip(&times[at]).map(|(exclusive, time)| exclusive / time);
        println!("  {name:<30} {:.3}; {:.1} us a cycle", median(ratios.collect()), median(times[at].clone()));
    }
}

/// Microseconds for one cycle.
async fn timed(locks: &LockManager, cycle: Cycle, tasks: usize, cycles: usize) -> f64 {
    let begin = Instant::now();
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let work = async move {
            for _ in 0..cycles {
                cycle.run(task).await;
            }
        };
        running.spawn(locks.scope(work));
    }
    running.join_all().await;
    begin.elapsed().as_secs_f64() * 1e6 / (tasks * cycles) as f64
}

async fn with_most_permits_held(url: &str) {
    let locks = LockManager::connect(url).await.expect("the server is there");
    let begin = Instant::now();
    let held = hold(&locks, usize::try_from(PERMITS).unwrap() - 1).await;
    let taken = begin.elapsed();
    let (mut crowded, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        crowded.push(timed(&locks, Cycle::PermitTogether, 1, 500).await);
        // Of another key.
        alone.push(timed_alone(&locks, 500).await);
    }
    // For more than one round of renewals, which fall due after a third of the ttl of 30 s.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let lost = held.iter().filter(|guard| !guard.lease().is_held()).count();
    let begin = Instant::now();
    let count = held.len();
    for guard in held {
        guard.release().await.unwrap();
    }
    let (crowded, alone) = (median(crowded), median(alone));
    println!(
        "the last of {PERMITS} permits: {:.3} of one that is alone; {crowded:.1} us against {alone:.1} us a cycle",
        alone / crowded
    );
    println!(
        "{count} permits were taken in {:.2?} by 64 tasks, {lost} of them were lost in 12 s, and one after the other they were released in {:.2?}",
        taken,
        begin.elapsed()
    );
}

async fn timed_alone(locks: &LockManager, cycles: usize) -> f64 {
    let begin = Instant::now();
    let work = async {
        for _ in 0..cycles {
            permit(1).await.unwrap();
        }
    };
    locks.scope(work).await;
    begin.elapsed().as_secs_f64() * 1e6 / cycles as f64
}

async fn hold(locks: &LockManager, count: usize) -> Vec<LockGuard> {
    let mut taking = JoinSet::new();
    for task in 0..64 {
        let locks = locks.clone();
        taking.spawn(async move {
            let mut held = Vec::new();
            for _ in (task..count).step_by(64) {
                held.push(locks.lock("upstream:0").permits(PERMITS).acquire().await.unwrap());
            }
            held
        });
    }
    taking.join_all().await.into_iter().flatten().collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
