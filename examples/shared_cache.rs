//! A cache that many read and one rebuilds: `cargo run --example shared_cache`.
//!
//! Readers share the lock. The rebuild takes it for writing: it waits for the readers that are there, new ones wait for it,
//! and what they read afterwards is the new price list, whole. Without `REDIS_URL` the locks are in memory; with it, start
//! several at once.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, distributed_lock};

/// The version of both halves of the price list. While it is rebuilt, they differ.
static HALVES: [AtomicU64; 2] = [AtomicU64::new(1), AtomicU64::new(1)];

#[distributed_lock(key = "prices", global, mode = read, ttl = "5s", wait = "10s")]
async fn quote() -> Result<(u64, u64), LockError> {
    let first = HALVES[0].load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(30)).await;
    Ok((first, HALVES[1].load(Ordering::SeqCst)))
}

#[distributed_lock(key = "prices", global, mode = write, ttl = "5s", wait = "10s")]
async fn rebuild(asked: Instant) -> Result<(), LockError> {
    println!("rebuilding, {} ms after it was asked for", asked.elapsed().as_millis());
    for half in &HALVES {
        half.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("rebuilt");
    Ok(())
}

/// Asks for quotes without a pause, so that at any time somebody reads.
async fn read_on(reader: u64, until: Instant) -> Result<u64, LockError> {
    tokio::time::sleep(Duration::from_millis(7 * reader)).await;
    let mut quotes = 0;
    while Instant::now() < until {
        let (first, second) = quote().await?;
        assert_eq!(first, second, "half of the list was old and half of it new");
        quotes += 1;
    }
    Ok(quotes)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = match std::env::var("REDIS_URL") {
        Ok(url) => LockManager::connect(&url).await?,
        Err(_) => LockManager::in_memory(),
    };
    locks.install()?;

    let until = Instant::now() + Duration::from_secs(1);
    let readers: Vec<_> = (0..5).map(|reader| tokio::spawn(read_on(reader, until))).collect();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        rebuild(Instant::now()).await?;
    }
    let mut quotes = 0;
    for reader in readers {
        quotes += reader.await??;
    }
    println!("{quotes} quotes by 5 readers, none of them of a list that was being rebuilt");
    locks.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
