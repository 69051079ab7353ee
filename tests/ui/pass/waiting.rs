//! Waiting, several keys, fencing tokens, in every shape.
#![deny(warnings)]
#![forbid(unsafe_code)]

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use distlock::{FencingToken, LockError, distributed_lock};

type Result<T = ()> = std::result::Result<T, LockError>;

#[distributed_lock(keys = ["account:<from>", "account:<to>"], wait = "5s", fencing_token = token, lease = lease)]
pub async fn transfer(from: u64, to: u64) -> Result<FencingToken> {
    lease.ensure_held()?;
    Ok(token)
}

#[distributed_lock(keys = items.iter().map(|item| format!("item:{item}")), wait = Duration::from_secs(u64::from(patience)))]
pub async fn reserve(items: &[String], patience: u8) -> Result<usize> {
    Ok(items.len())
}

#[distributed_lock(keys = ["ledger", format!("account:{id}")], global, retry = 3, wait = "1s", reentrant = false)]
pub async fn book(id: u64) -> Result<u64> {
    Ok(id)
}

#[distributed_lock(keys = ["account:<from>", "account:<to>"], fencing_token = token)]
pub async fn patterns((from, to): (u64, u64)) -> Result<u64> {
    Ok(token.get() + from + to)
}

#[distributed_lock(key = "order:<id>", wait = "5s", fencing_token = token, lease = lease)]
pub fn opaque(id: u64) -> impl Future<Output = Result<u64>> + Send {
    async move {
        lease.ensure_held()?;
        Ok(u64::from(token) + id)
    }
}

#[distributed_lock(key = "order:<id>", fencing_token = token)]
pub fn boxed(id: u64) -> Pin<Box<dyn Future<Output = Result<i64>> + Send>> {
    if id == 0 {
        return Box::pin(async move { Ok(0) });
    }
    Box::pin(async move { Ok(token.into()) })
}

#[distributed_lock(key = "outer:<id>", fencing_token = outer)]
#[distributed_lock(key = "inner:<id>", fencing_token = inner)]
pub async fn twice(id: u64) -> Result<bool> {
    Ok(outer < inner)
}

#[async_trait::async_trait]
pub trait Store {
    async fn put(&self, id: u64) -> Result<u64>;
}

pub struct Shop;

#[async_trait::async_trait]
impl Store for Shop {
    #[distributed_lock(key = "shop:<id>", fencing_token = token, wait = "1s")]
    async fn put(&self, id: u64) -> Result<u64> {
        Ok(token.get() + id)
    }
}

fn send<T: Send>(_: T) {}

fn main() {
    send(transfer(1, 2));
    send(reserve(&[], 1));
    send(book(1));
    send(patterns((1, 2)));
    send(opaque(1));
    send(boxed(1));
    send(twice(1));
    send(Shop.put(1));
}
