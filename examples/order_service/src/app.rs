//! What the handlers share.

use distlock::{LockError, LockManager};

use crate::Failure;
use crate::config::ServeConfig;
use crate::provider;
use crate::store::Store;

/// An instance of the service.
pub struct App {
    /// What it was told.
    pub config: ServeConfig,
    /// The database.
    pub store: Store,
    /// The locks.
    pub locks: LockManager,
    /// The payment provider.
    pub provider: provider::Client,
}

impl App {
    /// Connects to all that is needed.
    ///
    /// # Errors
    ///
    /// Where the database or the server of the locks is not to be had.
    pub async fn connect(config: ServeConfig) -> Result<App, Failure> {
        warn_of_gaps(&config);
        check_lock_options(&config).await?;
        let locks = locks(&config).await?;
        let store = Store::open(&config.database).await?;
        let provider = provider::Client::new(&config.provider, config.provider_timeout)?;
        Ok(App { config, store, locks, provider })
    }
}

/// The library refuses what is out of its bounds when a lock is asked for. Here it is asked before a customer does.
async fn check_lock_options(config: &ServeConfig) -> Result<(), LockError> {
    LockManager::in_memory().lock("check").ttl(config.ttl).wait(config.wait).acquire().await.map(drop)
}

async fn locks(config: &ServeConfig) -> Result<LockManager, LockError> {
    let builder = LockManager::builder().url(config.redis.as_deref().unwrap_or("memory://")).ttl(config.ttl);
    match &config.owner {
        Some(owner) => builder.owner(owner).build().await,
        None => builder.build().await,
    }
}

fn warn_of_gaps(config: &ServeConfig) {
    if config.redis.is_none() {
        tracing::warn!("the locks are in memory: they exclude nobody in another instance; set REDIS_URL");
    }
    if !config.lock.is_on() {
        tracing::warn!("the lock is switched off, and with it the fencing token, which comes from the lock");
    }
    if !config.idempotency.is_on() {
        tracing::warn!("idempotency is switched off: repeats of a payment are payments");
    }
    if !config.fencing.is_on() {
        tracing::warn!("fencing is switched off: a holder that is late may write");
    }
    if config.settle_after() < config.longest_charge() {
        let needed = config.longest_charge();
        tracing::warn!(?needed, "payments are settled too early: a late charge may be missed, and made again");
    }
}
