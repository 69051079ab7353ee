//! distlock under another name, and re-exported by another crate.
#![deny(warnings)]
#![forbid(unsafe_code)]

mod framework {
    pub mod locks {
        pub use ::distlock::*;
    }
}

mod distlock {}

use framework::locks::{LockError as Error, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "30s", backoff = "1s..2s", on_lost = finish, lease = l, crate = framework::locks)]
async fn asynchronous(id: u64) -> Result<u64, Error> {
    l.ensure_held()?;
    Ok(id)
}

#[distributed_lock(key = "order:<id>", retry = 3, lease = l, crate = crate::framework::locks)]
#[distributed_lock(key = id, max_hold = "5m", crate = framework::locks)]
fn returning(id: u64) -> std::pin::Pin<Box<dyn Future<Output = Result<u64, Error>> + Send>> {
    Box::pin(async move {
        l.ensure_held()?;
        Ok(id)
    })
}

fn main() {
    let _ = (asynchronous(1), returning(1));
}
