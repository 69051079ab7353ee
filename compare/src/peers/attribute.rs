//! distlock, through the attribute, with its defaults, and with the manager installed for the whole process.

use std::time::Duration;

use distlock::{LockError, LockGuard, LockManager, distributed_lock};

use super::{Peer, Site, Stay};
use crate::turns::Lock;

#[distributed_lock(key = "order:<id>", ttl = "30s")]
async fn locked(id: usize) -> Result<usize, LockError> {
    Ok(id)
}

#[distributed_lock(key = "held:<id>", ttl = "3s")]
async fn held(id: usize, stay: Stay) -> Result<(), LockError> {
    stay.until_the_end().await;
    Ok(())
}

#[derive(Clone)]
pub(crate) struct Attribute(LockManager);

impl Lock for Attribute {
    type Held = LockGuard;

    /// In line, as `wait = "60s"` in the attribute. It is the guard here, which sends the same, since the time that a task waits
    /// is measured apart from the time for which it holds.
    async fn acquire(&self, key: &str) -> LockGuard {
        self.0.lock(key).wait(Duration::from_secs(60)).acquire().await.unwrap()
    }

    async fn release(held: LockGuard) {
        held.release().await.unwrap();
    }
}

impl Peer for Attribute {
    async fn connect(site: &Site) -> Attribute {
        let locks = match site.urls.as_slice() {
            [url] => LockManager::connect(url).await.unwrap(),
            urls => LockManager::builder().redlock(urls.to_vec()).build().await.unwrap(),
        };
        locks.install().unwrap();
        Attribute(locks)
    }

    async fn cycles(&self, task: usize, cycles: usize) {
        for _ in 0..cycles {
            locked(task).await.unwrap();
        }
    }

    async fn hold(&self, id: usize, stay: Stay) -> bool {
        let outcome = held(id, stay).await;
        if let Err(why) = &outcome
            && !why.is_lost()
        {
            eprintln!("distlock, lock {id}: {why}");
        }
        outcome.is_err()
    }
}
