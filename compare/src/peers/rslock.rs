//! `rslock`, as its documentation has it: one manager for all tasks, `using` for what is held for long.

use std::time::Duration;

use rslock::{LockGuard, LockManager};

use super::{Peer, Site, Stay, held_key};
use crate::by_hand;
use crate::turns::Lock;

#[derive(Clone)]
pub(crate) struct Rslock {
    locks: LockManager,
    ttl: Duration,
}

impl Lock for Rslock {
    type Held = LockGuard;

    async fn acquire(&self, key: &str) -> LockGuard {
        self.locks.acquire(key, self.ttl).await.unwrap()
    }

    async fn release(held: LockGuard) {
        held.release().await;
    }
}

impl Peer for Rslock {
    async fn connect(site: &Site) -> Rslock {
        // From clients, which alone can have TCP_NODELAY.
        let mut locks = LockManager::from_clients(site.urls.iter().map(|url| by_hand::client(url)).collect());
        // Its pauses are picked from the whole milliseconds below this one, so there are none: under contention that costs the
        // most commands, and is still faster than pauses of up to 4 or 10 ms.
        locks.set_retry(3, Duration::from_millis(1));
        // It connects by its first lock.
        locks.acquire("first", site.ttl).await.unwrap().release().await;
        Rslock { locks, ttl: site.ttl }
    }

    /// Its `using` renews a lock 500 ms before it ends.
    async fn hold(&self, id: usize, stay: Stay) -> bool {
        let outcome = self.locks.using(held_key(id).as_bytes(), self.ttl, async || stay.until_the_end().await).await;
        outcome.is_err()
    }
}
