//! Readers, writers and permits, in every shape.
#![deny(warnings)]
#![forbid(unsafe_code)]

use std::future::Future;
use std::pin::Pin;

use distlock::{FencingToken, LockError, distributed_lock};

type Result<T = ()> = std::result::Result<T, LockError>;

#[distributed_lock(key = "prices:<shop>", mode = read, lease = lease)]
pub async fn price(shop: u64) -> Result<u64> {
    lease.ensure_held()?;
    Ok(shop)
}

#[distributed_lock(key = "prices:<shop>", mode = write, wait = "10s", fencing_token = token)]
pub async fn import(shop: u64) -> Result<FencingToken> {
    let _ = shop;
    Ok(token)
}

// A word is none of the function's names.
#[distributed_lock(key = "prices:<exclusive>", mode = exclusive, fencing_token = token)]
pub async fn drop_all(exclusive: u64) -> Result<u64> {
    Ok(token.get() + exclusive)
}

#[distributed_lock(keys = ["account:<from>", "account:<to>"], mode = read)]
pub async fn sum((from, to): (u64, u64)) -> Result<u64> {
    Ok(from + to)
}

#[distributed_lock(key = "shops", global, mode = read)]
#[distributed_lock(key = "prices:<shop>", mode = write, fencing_token = token)]
pub async fn nested(shop: u64) -> Result<u64> {
    Ok(token.get() + shop)
}

#[distributed_lock(key = "prices:<shop>", mode = read, or_else = |_| None)]
pub fn opaque(shop: u64) -> impl Future<Output = Option<u64>> + Send {
    async move { Some(shop) }
}

const LINES: u32 = 8;

pub struct Geocoder {
    lines: u8,
}

impl Geocoder {
    #[distributed_lock(key = "geocoder", global, permits = 5, wait = "10s", lease = lease)]
    pub async fn locate(&self, address: String) -> Result<String> {
        lease.ensure_held()?;
        Ok(address)
    }

    #[distributed_lock(key = "geocoder", global, permits = self.lines.into(), or_else = |_| 0)]
    pub async fn count(&self) -> u8 {
        self.lines
    }
}

#[distributed_lock(keys = ["line:<from>", "line:<to>"], permits = LINES)]
pub async fn call(from: u64, to: u64) -> Result<u64> {
    Ok(from + to)
}

#[distributed_lock(key = "shop:<shop>", permits = limit, or_else = |_| 0)]
pub fn boxed(shop: u64, limit: u32) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move { shop + u64::from(limit) })
}

#[distributed_lock(key = "most", global, permits = 10_000u32)]
pub async fn most() -> Result {
    Ok(())
}

macro_rules! reader {
    ($name:ident, $mode:ident) => {
        #[distributed_lock(key = "prices:<shop>", mode = $mode)]
        pub async fn $name(shop: u64) -> Result<u64> {
            Ok(shop)
        }
    };
}

reader!(made, read);

fn send<T: Send>(_: T) {}

fn main() {
    send(price(1));
    send(import(1));
    send(drop_all(1));
    send(sum((1, 2)));
    send(nested(1));
    send(opaque(1));
    let geocoder = Geocoder { lines: 2 };
    send(geocoder.locate(String::new()));
    send(geocoder.count());
    send(call(1, 2));
    send(boxed(1, 2));
    send(most());
    send(made(1));
}
