//! The API by hand, for what an attribute can't say: a lock that begins in one function and ends in another, a choice
//! made at run time, a critical section that is only a part of a function.
//!
//! `cargo run --example without_macro`, with `REDIS_URL` for a real server.

use std::time::Duration;

use distlock::{Backoff, LockError, LockManager};

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "memory://".to_owned());
    let locks = LockManager::builder().url(url).owner("example").ttl(Duration::from_secs(10)).build().await?;

    a_guard(&locks).await?;
    a_future(&locks).await?;
    a_refusal(&locks).await?;
    locks.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

/// A guard holds the lock until it is released or dropped. Nothing stops the code around it when the lock is lost, so it
/// asks before each step that can't be taken back.
async fn a_guard(locks: &LockManager) -> Result<(), LockError> {
    let guard = locks.lock("report:2026-11").acquire().await?;
    println!("holding `{}` for another {:.1?} if nothing renews it", guard.lease().key(), guard.lease().remaining());

    let rows = gather().await;
    guard.lease().ensure_held()?;
    println!("writing a report of {rows} rows");

    guard.release().await
}

/// A future that runs under a lock is stopped when the lock is lost.
async fn a_future(locks: &LockManager) -> Result<(), LockError> {
    let backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(200))?;
    let request = locks.lock("stock:book-7").ttl(Duration::from_secs(2)).retry(5).backoff(backoff);
    let left = request.run(async { Ok::<_, LockError>(gather().await - 1) }).await?;
    println!("{left} books left");
    Ok(())
}

/// A lock that somebody else holds says who, and for how long.
async fn a_refusal(locks: &LockManager) -> Result<(), LockError> {
    let _held = locks.lock("nightly").acquire().await?;
    match locks.lock("nightly").retry(1).acquire().await {
        Err(error) if error.is_busy() => println!("refused: {error}"),
        Err(error) => return Err(error),
        Ok(_) => unreachable!("the lock is held two lines above"),
    }
    Ok(())
}

async fn gather() -> u32 {
    tokio::time::sleep(Duration::from_millis(20)).await;
    42
}
