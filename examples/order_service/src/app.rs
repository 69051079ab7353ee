//! What the handlers share.

use std::time::Duration;

use distlock::{LockError, LockManager};

use crate::Failure;
use crate::config::ServeConfig;
use crate::error::Error;
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
        let locks = locks(&config).await?;
        let store = Store::open(&config.database).await?;
        let provider = provider::Client::new(&config.provider, config.provider_timeout)?;
        Ok(App { config, store, locks, provider })
    }

    /// The longest that a request may hold its locks: an earlier payment is settled, this one is sent and answered, and the
    /// database takes its time. One that takes longer hangs, and whoever waits behind it should not.
    pub(crate) fn max_hold(&self) -> Duration {
        let longest = self.config.longest_charge().saturating_add(self.store.patience());
        // The library's rule: not below the ttl.
        longest.max(self.config.ttl)
    }

    /// The longest that a request may take, with its wait for the lock. Dropping it at any point is safe: see [`pay`](crate::pay).
    pub(crate) fn longest_request(&self) -> Duration {
        self.config.wait.saturating_add(self.max_hold()).saturating_add(self.store.patience())
    }

    /// Ends what hangs, for instance with the database.
    pub(crate) async fn in_time<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::time::timeout(self.longest_request(), request).await.unwrap_or(Err(Error::TimedOut))
    }
}

/// The library refuses what is out of its bounds when a lock is asked for. Here it is asked before a customer does.
///
/// # Errors
///
/// [`LockError::InvalidOption`].
pub async fn check_lock_options(config: &ServeConfig) -> Result<(), LockError> {
    LockManager::in_memory().lock("check").ttl(config.ttl).wait(config.wait).run(async { Ok(()) }).await
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

#[cfg(test)]
impl App {
    /// With a database in the folder, locks in memory, and no provider.
    pub(crate) async fn in_folder(folder: &tempfile::TempDir) -> App {
        use crate::config::{Cli, Role};
        use clap::Parser as _;

        let database = format!("sqlite:{}", folder.path().join("orders.db").display());
        let arguments = ["order-service", "serve", "--database", &database, "--provider", "http://127.0.0.1:1"];
        let Role::Serve(config) = Cli::parse_from(arguments).role else { panic!("another role") };
        App::connect(config).await.unwrap()
    }
}
