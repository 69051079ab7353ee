//! Locks on one Redis server: a plain string with an expiry for each.

mod connection;
mod errors;
mod inspect;
mod live;
mod scripts;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::Client;

use self::connection::Connections;
use self::live::{Live, Plain};
use self::scripts::{Lua, RELEASE, RENEW};
use super::{Acquired, Attempt, Backend, BackendError, BoxFuture, Entry, Released, Renewed, Route};

/// Locks on one Redis server.
#[derive(Debug)]
pub(crate) struct RedisBackend {
    connections: Arc<Connections>,
    connect_timeout: Duration,
    inspected: AtomicBool,
    /// Set when the server turned out not to know `SET .. NX GET`.
    old: AtomicBool,
}

impl RedisBackend {
    pub(crate) fn new(client: Client, prefix: String, connect_timeout: Duration) -> RedisBackend {
        RedisBackend {
            connections: Arc::new(Connections::new(client, prefix, connect_timeout)),
            connect_timeout,
            inspected: AtomicBool::new(false),
            old: AtomicBool::new(false),
        }
    }

    /// Connects and, the first time, looks at the server.
    async fn connect(&self) -> Result<(), BackendError> {
        let live = self.connections.get().await?;
        if !self.inspected.swap(true, Ordering::Relaxed) {
            inspect::inspect(&live, self.connect_timeout).await;
        }
        Ok(())
    }

    async fn acquire_first(
        &self,
        entry: Entry<'_>,
        route: &mut Option<Arc<dyn Route>>,
    ) -> Result<Acquired, BackendError> {
        let live = self.connect_for(route).await?;
        match live.acquire_first(entry).await {
            Ok(acquired) => Ok(acquired),
            Err(Plain::Failed(error)) => Err(error),
            Err(Plain::Unsupported) => {
                self.old.store(true, Ordering::Relaxed);
                Box::pin(live.acquire_again(entry)).await
            }
            // The server, or something on the way to it, may have closed the connection while it was idle. That is no
            // failed attempt, so the caller is not troubled with it.
            Err(Plain::Broken) => {
                Box::pin(self.acquire_again(entry, route)).await.map_err(BackendError::after_unanswered)
            }
        }
    }

    async fn acquire_again(
        &self,
        entry: Entry<'_>,
        route: &mut Option<Arc<dyn Route>>,
    ) -> Result<Acquired, BackendError> {
        self.connect_for(route).await?.acquire_again(entry).await
    }

    async fn connect_for(&self, route: &mut Option<Arc<dyn Route>>) -> Result<Arc<Live>, BackendError> {
        let live = self.connections.get().await?;
        *route = Some(live.clone());
        Ok(live)
    }

    async fn call_all(&self, lua: &Lua, entries: &[Entry<'_>]) -> Vec<Result<bool, BackendError>> {
        match self.connections.get().await {
            Ok(live) => live.call_all(lua, entries).await,
            Err(error) => entries.iter().map(|_| Err(BackendError::passing(error.to_string()))).collect(),
        }
    }
}

impl Backend for RedisBackend {
    fn prepare(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        Box::pin(self.connect())
    }

    fn acquire<'a>(
        &'a self,
        entry: Entry<'a>,
        attempt: Attempt,
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Acquired, BackendError>> {
        if attempt == Attempt::First && !self.old.load(Ordering::Relaxed) {
            Box::pin(self.acquire_first(entry, route))
        } else {
            Box::pin(self.acquire_again(entry, route))
        }
    }

    fn release<'a>(&'a self, entry: Entry<'a>) -> BoxFuture<'a, Result<Released, BackendError>> {
        Box::pin(async move { self.connections.get().await?.release(entry).await })
    }

    fn renew<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Renewed, BackendError>>> {
        Box::pin(async move {
            let answer = |ours| if ours { Renewed::Extended } else { Renewed::NotHeld };
            self.call_all(&RENEW, entries).await.into_iter().map(|ours| ours.map(answer)).collect()
        })
    }

    fn release_all<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Released, BackendError>>> {
        Box::pin(async move {
            let answer = |ours| if ours { Released::Freed } else { Released::NotHeld };
            self.call_all(&RELEASE, entries).await.into_iter().map(|ours| ours.map(answer)).collect()
        })
    }
}
