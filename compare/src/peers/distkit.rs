//! `distkit`: its `Mutex` stands for one key, so that each task makes one and keeps it; it renews by itself.

use std::sync::Arc;
use std::time::Duration;

use distkit::DistkitRedisKey;
use distkit::lock::{LockGuardState, LockOptions, Mutex, MutexGuard};
use redis::aio::ConnectionManager;

use super::{Peer, Site};
use crate::by_hand;
use crate::turns::Lock;

#[derive(Clone)]
pub(crate) struct Distkit {
    connection: ConnectionManager,
    ttl: Duration,
}

impl Distkit {
    fn mutex(&self, key: String) -> Arc<Mutex> {
        let key = DistkitRedisKey::new_or_panic(key);
        let options = LockOptions::builder(key, self.connection.clone())
            .ttl(self.ttl)
            // As often as a timer of tokio can; by default it waits 50 ms.
            .retry_interval(Duration::from_millis(1));
        Mutex::new(options.build())
    }
}

impl Lock for Distkit {
    type Held = MutexGuard;

    async fn acquire(&self, key: &str) -> MutexGuard {
        // Its keys have no colons.
        self.mutex(key.replace(':', "_")).lock().await.unwrap()
    }

    async fn release(held: MutexGuard) {
        held.release().await.unwrap();
    }
}

impl Peer for Distkit {
    async fn connect(site: &Site) -> Distkit {
        // The client is ours to make, so it has TCP_NODELAY.
        let connection = ConnectionManager::new(by_hand::client(site.url())).await.unwrap();
        Distkit { connection, ttl: site.ttl }
    }

    async fn cycles(&self, task: usize, cycles: usize) {
        let mutex = self.mutex(format!("order_{task}"));
        for _ in 0..cycles {
            mutex.try_lock().await.unwrap().release().await.unwrap();
        }
    }

    fn is_lost(held: &MutexGuard) -> bool {
        held.get_state() == LockGuardState::Lost
    }
}
