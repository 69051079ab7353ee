//! An API that may be called by five at once, over all processes: `cargo run --example limited_api`.
//!
//! With `REDIS_URL=redis://127.0.0.1` the permits are on Redis: start it in several terminals at once, and all of them
//! together make no more than five calls at a time. If one is killed, its permits are back after their ttl.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, distributed_lock};

static CALLS: AtomicU64 = AtomicU64::new(0);
static MOST: AtomicU64 = AtomicU64::new(0);

// Whoever finds no permit stands in line for one, for up to 30 s: longer than the permits of a crashed process are gone.
#[distributed_lock(key = "geocoder", global, permits = 5, ttl = "10s", wait = "30s")]
async fn geocode(address: u64, asked: Instant) -> Result<(), LockError> {
    let calls = CALLS.fetch_add(1, Ordering::SeqCst) + 1;
    MOST.fetch_max(calls, Ordering::SeqCst);
    println!(
        "address {address:>2}: call {calls} at this time, after waiting for {:>4} ms",
        asked.elapsed().as_millis()
    );

    // The call itself.
    tokio::time::sleep(Duration::from_millis(100)).await;

    CALLS.fetch_sub(1, Ordering::SeqCst);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = match std::env::var("REDIS_URL") {
        Ok(url) => LockManager::connect(&url).await?,
        Err(_) => LockManager::in_memory(),
    };
    locks.install()?;

    let calls: Vec<_> = (0..20).map(|address| tokio::spawn(geocode(address, Instant::now()))).collect();
    for call in calls {
        call.await??;
    }
    let most = MOST.load(Ordering::SeqCst);
    println!("20 addresses, at most {most} calls at once in this process");
    assert!(most <= 5, "more than five called at once");
    locks.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
