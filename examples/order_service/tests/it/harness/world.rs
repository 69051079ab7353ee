//! Where a test happens: a database, locks, a provider, and instances of the service.

use std::collections::BTreeMap;

use serde_json::Value;

use super::postgres::Postgres;
use super::redis::Redis;
use super::{Customer, Process, eventually};

/// What the service stands on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A `SQLite` file, and locks in memory: one instance at a time.
    Local,
    /// Postgres and Redis.
    Servers,
}

pub(crate) struct World {
    pub(crate) provider: Process,
    redis: Option<Redis>,
    postgres: Option<Postgres>,
    // The last to be dropped: the processes write into it.
    folder: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new(kind: Kind, provider: &str) -> World {
        let folder = tempfile::Builder::new().prefix("orders-").tempdir().unwrap();
        let (redis, postgres) = match kind {
            Kind::Local => (None, None),
            Kind::Servers => (Some(Redis::start().await), Some(Postgres::start().await)),
        };
        let provider = Process::start(folder.path(), words("provider", provider)).await;
        World { provider, redis, postgres, folder }
    }

    /// Starts an instance of the service with further flags.
    pub(crate) async fn serve(&self, flags: &str) -> Customer {
        self.serve_with(&self.provider.url, flags).await
    }

    /// The same, where the payment provider is at another address.
    pub(crate) async fn serve_with(&self, provider: &str, flags: &str) -> Customer {
        Customer::of(Process::start(self.folder.path(), self.arguments(provider, flags)).await)
    }

    /// Starts an instance that ends at once, and returns what it says.
    pub(crate) async fn refuses(&self, flags: &str) -> String {
        Process::refuses(self.folder.path(), self.arguments(&self.provider.url, flags)).await
    }

    fn arguments(&self, provider: &str, flags: &str) -> Vec<String> {
        let mut arguments = words("serve", flags);
        // Where a test says nothing else, leases and lines are as long as the slowest machine needs.
        for (flag, length) in [("--ttl", "30s"), ("--wait", "60s")] {
            if !flags.contains(flag) {
                arguments.extend([flag.to_owned(), length.to_owned()]);
            }
        }
        arguments.extend(["--database".to_owned(), self.database(), "--provider".to_owned(), provider.to_owned()]);
        if let Some(redis) = &self.redis {
            arguments.extend(["--redis".to_owned(), redis.url()]);
        }
        arguments
    }

    /// Starts another payment provider, that knows nothing of the first.
    pub(crate) async fn another_provider(&self, flags: &str) -> Process {
        Process::start(self.folder.path(), words("provider", flags)).await
    }

    pub(crate) fn database(&self) -> String {
        match &self.postgres {
            Some(postgres) => postgres.url(),
            None => format!("sqlite:{}", self.folder.path().join("orders.db").display()),
        }
    }

    pub(crate) fn redis(&self) -> &Redis {
        self.redis.as_ref().expect("there is no Redis in this test")
    }

    /// How often the provider has charged for an order.
    pub(crate) async fn charges(&self, order: &str) -> usize {
        let url = format!("{}/charges?order={order}", self.provider.url);
        let charges: Vec<Value> = reqwest::get(url).await.unwrap().json().await.unwrap();
        charges.len()
    }

    /// Waits until the provider has been asked for a charge, and is at it.
    pub(crate) async fn is_asked_for(&self, order: &str) {
        is_asked_for(&self.provider, order).await;
    }

    /// Waits until the provider has nothing more to do: what it has charged then is all.
    pub(crate) async fn is_idle(&self) {
        eventually("the provider is idle", async || under_way(&self.provider).await.is_empty().then_some(())).await;
    }
}

/// Waits until a provider has been asked for a charge, and is at it.
pub(crate) async fn is_asked_for(provider: &Process, order: &str) {
    let asked = async || under_way(provider).await.contains_key(order).then_some(());
    eventually("the provider is asked for a charge", asked).await;
}

async fn under_way(provider: &Process) -> BTreeMap<String, usize> {
    reqwest::get(format!("{}/under-way", provider.url)).await.unwrap().json().await.unwrap()
}

fn words(role: &str, flags: &str) -> Vec<String> {
    std::iter::once(role).chain(flags.split_whitespace()).map(str::to_owned).collect()
}
