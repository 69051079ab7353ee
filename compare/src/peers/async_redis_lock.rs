//! `async-redis-lock`: one locker for all tasks; it renews by itself.

use std::time::Duration;

use async_redis_lock::{Locker, Options};

use super::{Peer, Site};
use crate::by_hand;
use crate::turns::Lock;

#[derive(Clone)]
pub(crate) struct AsyncRedisLock {
    locker: Locker,
    options: Options,
}

impl Lock for AsyncRedisLock {
    type Held = async_redis_lock::Lock;

    async fn acquire(&self, key: &str) -> async_redis_lock::Lock {
        self.locker.acquire_with_options(&self.options, key).await.unwrap()
    }

    async fn release(held: async_redis_lock::Lock) {
        // One that was lost can't be freed, which `is_lost` has told already.
        let _ = held.release().await;
    }
}

impl Peer for AsyncRedisLock {
    async fn connect(site: &Site) -> AsyncRedisLock {
        // From a client, which alone can have TCP_NODELAY.
        let locker = Locker::from_client(by_hand::client(site.url())).await.unwrap();
        let options = Options::new()
            .ttl(site.ttl)
            // What its documentation recommends.
            .extend(site.ttl / 3)
            // As often as a timer of tokio can; by default it waits 100 ms, and gives up after a second.
            .retry(Duration::from_millis(1))
            .timeout(None);
        AsyncRedisLock { locker, options }
    }

    fn is_lost(held: &async_redis_lock::Lock) -> bool {
        held.is_lost()
    }
}
