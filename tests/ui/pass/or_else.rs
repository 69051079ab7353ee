//! What `or_else` returns is what the function returns, coerced and inferred as there.
#![deny(warnings)]
#![forbid(unsafe_code)]

use std::any::Any;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;

use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", or_else = |_| Box::new("none"))]
async fn coerced(id: u64) -> Box<dyn Any + Send> {
    Box::new(id)
}

#[distributed_lock(key = "order:<id>", or_else = |error| Err(error.into()))]
async fn converted(id: u64) -> Result<u64, Box<dyn Error + Send + Sync>> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>", or_else = |error| {
    let text = error.to_string();
    if text.is_empty() {
        return Default::default();
    }
    text.parse().unwrap_or_default()
})]
async fn inferred(id: u64) -> u64 {
    id
}

#[distributed_lock(key = "order:<id>", or_else = |_| 0..1)]
async fn opaque(id: u64) -> impl Iterator<Item = u64> {
    0..id
}

#[distributed_lock(key = "order:<id>", or_else = |_| std::process::abort())]
async fn never(id: u64) -> u64 {
    id
}

fn zero(_: LockError) -> u64 {
    0
}

#[distributed_lock(key = "order:<id>", or_else = zero)]
async fn named(id: u64) -> u64 {
    id
}

#[distributed_lock(key = "order:<id>", or_else = |_| Box::new(()))]
fn boxed(id: u64) -> Pin<Box<dyn Future<Output = Box<dyn Any + Send>> + Send>> {
    Box::pin(async move { Box::new(id) as Box<dyn Any + Send> })
}

fn send<T: Send>(_: T) {}

fn main() {
    send((coerced(1), converted(1), inferred(1), named(1), boxed(1), never(1), opaque(1)));
}
