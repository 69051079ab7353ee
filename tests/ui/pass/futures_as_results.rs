//! Functions that are async, and return one more future.
#![deny(warnings)]
#![forbid(unsafe_code)]

use std::future::{Future, Ready, ready};
use std::pin::Pin;

use distlock::distributed_lock;
use tokio::task::JoinHandle;

type BoxFuture = Pin<Box<dyn Future<Output = u64> + Send>>;

#[distributed_lock(key = "task:<id>", or_else = |_| tokio::spawn(ready(0)))]
async fn task(id: u64) -> JoinHandle<u64> {
    ready(()).await;
    tokio::spawn(ready(id))
}

#[distributed_lock(key = "boxed:<id>", or_else = |_| Box::pin(ready(0)))]
#[distributed_lock(key = "inner:<id>", or_else = |_| Box::pin(ready(0)))]
async fn boxed(id: u64) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    if id == 0 {
        return Box::pin(async { 0 });
    }
    ready(()).await;
    Box::pin(ready(id))
}

#[distributed_lock(key = "aliased:<id>", or_else = |_| Box::pin(ready(0)))]
async fn aliased(id: u64) -> BoxFuture {
    ready(()).await;
    Box::pin(ready(id))
}

#[distributed_lock(key = "opaque:<id>", or_else = |_| ready(0))]
async fn opaque(id: u64) -> impl Future<Output = u64> {
    ready(()).await;
    ready(id)
}

#[distributed_lock(key = "ready:<id>", or_else = |_| ready(0))]
async fn made(id: u64) -> Ready<u64> {
    ready(()).await;
    ready(id)
}

#[distributed_lock(key = "returned:<id>", or_else = |_| ready(0))]
async fn returned(id: u64) -> Ready<u64> {
    ready(()).await;
    loop {
        if id > 0 {
            return ready(id);
        }
    }
}

fn send<T: Send>(_: T) {}

fn main() {
    send((task(1), boxed(1), aliased(1), opaque(1), made(1), returned(1)));
}
