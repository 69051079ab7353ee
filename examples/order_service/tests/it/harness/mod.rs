//! What the tests are made of: processes that can be killed, servers of their own, and a customer who taps.

mod process;
mod redis;
mod postgres;
mod world;
mod customer;
mod gate;
mod gateway;

pub(crate) use customer::{Customer, Reply};
pub(crate) use gate::Gate;
pub(crate) use gateway::{Gateway, Own, SlowList};
pub(crate) use process::Process;
pub(crate) use world::{Kind, World, is_asked_for};

use std::net::TcpListener;
use std::time::{Duration, Instant};

/// How long anything may take that ought to happen soon: this only turns a hang into a failure.
pub(crate) const SOON: Duration = Duration::from_secs(120);

/// Polls until `check` has something, and fails with `what` after [`SOON`].
pub(crate) async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(begin.elapsed() < SOON, "after {SOON:?}, still waiting for: {what}");
        // The pause between two looks at the event; nothing depends on its length.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
