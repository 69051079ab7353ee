//! `distributed-lock`: a provider makes a lock for each call, and a handle that renews by itself.

use std::sync::Arc;

use distributed_lock_core::traits::{DistributedLock as _, LockHandle as _, LockProvider as _};
use distributed_lock_redis::{RedisDistributedLock, RedisLockProvider};
use fred::prelude::*;

use super::{Peer, Site};
use crate::turns::Lock;

#[derive(Clone)]
pub(crate) struct DistributedLock(Arc<RedisLockProvider>);

impl Lock for DistributedLock {
    type Held = <RedisDistributedLock as distributed_lock_core::traits::DistributedLock>::Handle;

    /// Without a limit. On a lock that is held it fails all the same, at once, which is why it takes no part under contention.
    async fn acquire(&self, key: &str) -> Self::Held {
        self.0.create_lock(key).acquire(None).await.expect("`acquire` of a lock that nobody has")
    }

    async fn release(held: Self::Held) {
        held.release().await.unwrap();
    }
}

impl Peer for DistributedLock {
    async fn connect(site: &Site) -> DistributedLock {
        let mut provider = RedisLockProvider::builder()
            .expiry(site.ttl)
            // The same parts of the ttl as its defaults.
            .extension_cadence(site.ttl / 3)
            .min_validity(site.ttl.mul_f64(0.9));
        for url in &site.urls {
            // With clients of our own, which alone can have TCP_NODELAY.
            let mut builder = Builder::from_config(RedisConfig::from_url(url).unwrap());
            builder.with_connection_config(|config| config.tcp.nodelay = Some(true));
            let client = builder.build().unwrap();
            client.init().await.unwrap();
            provider = provider.client(client);
        }
        DistributedLock(Arc::new(provider.build().await.unwrap()))
    }

    fn is_lost(held: &Self::Held) -> bool {
        *held.lost_token().borrow()
    }
}
