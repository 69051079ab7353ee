//! A holder that is late is refused by the store: `REDIS_URL=redis://127.0.0.1 cargo run --example fenced_writes`.
//!
//! The lock can't help where a process stands still in the middle of a step. The fencing token can: the store takes nothing
//! that is older than what it has.

use std::error::Error;

use distlock::{FencingToken, LockManager};
use redis::Script;

const VALUE: &str = "example:{balance}";
const FENCE: &str = "example:{balance}:fence";

/// Sets the value, unless somebody with a higher token has. Says whether it was set.
async fn set(redis: &redis::Client, value: &str, token: FencingToken) -> redis::RedisResult<bool> {
    let mut connection = redis.get_multiplexed_async_connection().await?;
    let script = Script::new(FencingToken::REDIS_SET);
    let mut call = script.key(VALUE);
    call.key(FENCE).arg(value).arg(token.get()).invoke_async(&mut connection).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Ok(url) = std::env::var("REDIS_URL") else {
        println!("this example needs a Redis: REDIS_URL=redis://127.0.0.1 cargo run --example fenced_writes");
        return Ok(());
    };
    let (locks, redis) = (LockManager::connect(&url).await?, redis::Client::open(url)?);

    let slow = locks.lock("balance").fencing_token(true).acquire().await?;
    let late = slow.lease().fencing_token().ok_or("a token was asked for")?;
    println!("the slow holder has {late}, and stands still; its lease ends");
    drop(slow);

    let fast = locks.lock("balance").fencing_token(true).wait(std::time::Duration::from_secs(5)).acquire().await?;
    let token = fast.lease().fencing_token().ok_or("a token was asked for")?;
    println!("the next holder has {token}; its write is taken: {}", set(&redis, "90", token).await?);
    fast.release().await?;

    println!("the slow holder wakes and writes; that is taken: {}", set(&redis, "100", late).await?);
    Ok(())
}
