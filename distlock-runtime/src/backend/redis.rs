//! Locks on one Redis server, or on the primary of a service that sentinels look after: a plain string with an expiry for
//! each.

mod connection;
mod dial;
mod sentinel;
mod errors;
mod inspect;
mod live;
mod scripts;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use self::connection::Connections;
pub(crate) use self::dial::Target;
use self::scripts::{FREE, Lua, RAISE, RELEASE, RENEW};
pub(crate) use self::sentinel::Service;
use super::{
    Acquired, AcquiredAll, Attempt, Backend, BackendError, BoxFuture, Entry, Listener, Released, Renewed, Route, Turn,
};
use crate::FencingToken;
use crate::clock::Time;

/// Locks on one Redis server.
pub(crate) struct RedisBackend {
    connections: Arc<Connections>,
    /// What frees a lock.
    release: &'static Lua,
    connect_timeout: Duration,
    inspected: AtomicBool,
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis at {}", self.connections.site().address)
    }
}

impl RedisBackend {
    pub(crate) fn new(target: Target, prefix: String, connect_timeout: Duration) -> RedisBackend {
        RedisBackend {
            connections: Arc::new(Connections::new(target, prefix, connect_timeout)),
            release: &RELEASE,
            connect_timeout,
            inspected: AtomicBool::new(false),
        }
    }

    /// The same for one of several servers, which keep no lines.
    pub(crate) fn without_lines(self) -> RedisBackend {
        RedisBackend { release: &FREE, ..self }
    }

    /// Connects and, the first time, looks at the server.
    async fn connect(&self) -> Result<(), BackendError> {
        let live = self.connections.get(self.connect_timeout).await?;
        if !self.inspected.swap(true, Ordering::Relaxed) {
            inspect::inspect(&live, self.connect_timeout).await;
        }
        Ok(())
    }

    /// Whether there is a connection for the running runtime.
    pub(crate) fn is_ready(&self) -> bool {
        self.connections.is_ready()
    }

    /// Has a connection made for the running runtime, with nobody to wait for it.
    pub(crate) fn begin_to_connect(&self) {
        self.connections.begin();
    }

    pub(crate) async fn connect_within(&self, timeout: Duration) -> Result<(), BackendError> {
        self.connections.get(timeout).await.map(drop)
    }

    pub(crate) async fn acquire(
        &self,
        entry: Entry<'_>,
        attempt: Attempt,
        route: &mut Option<Arc<dyn Route>>,
    ) -> Result<Acquired, BackendError> {
        let live = self.connections.get(self.connect_timeout).await?;
        *route = Some(live.clone());
        match attempt {
            Attempt::First if entry.fencing.is_none() => live.acquire_first(entry).await,
            Attempt::First | Attempt::Repeated => Box::pin(live.acquire_by_script(entry)).await,
        }
    }

    async fn wait(&self, entry: Entry<'_>, route: &mut Option<Arc<dyn Route>>) -> Result<Turn, BackendError> {
        let live = self.connections.get(self.connect_timeout).await?;
        *route = Some(live.clone());
        live.wait(entry).await
    }

    pub(crate) async fn acquire_all(
        &self,
        entries: &[Entry<'_>],
        route: &mut Option<Arc<dyn Route>>,
    ) -> Result<AcquiredAll, BackendError> {
        let live = self.connections.get(self.connect_timeout).await?;
        *route = Some(live.clone());
        live.acquire_all(entries).await
    }

    /// Raises the last fencing tokens of locks to those that the entries are to be above.
    pub(crate) async fn raise_fences(&self, entries: &[Entry<'_>]) -> Vec<Result<bool, BackendError>> {
        self.call_all(&RAISE, entries).await
    }

    pub(crate) async fn mint(&self, entries: &[Entry<'_>]) -> Result<Option<FencingToken>, BackendError> {
        self.connections.get(self.connect_timeout).await?.mint(entries).await
    }

    pub(crate) async fn release(&self, entry: Entry<'_>) -> Result<Released, BackendError> {
        let begin = Time::now();
        let live = self.connections.get(entry.timeout).await?;
        match live.release(self.release, entry.since(begin)).await {
            // As with an acquire, an idle connection may have been closed. Only that now "not held" may also mean that the
            // first request was carried out after all, so that it says nothing.
            Err(interrupted) if interrupted.is_interrupted() => {
                let live = Box::pin(self.connections.get(entry.since(begin).timeout)).await?;
                let again = Box::pin(live.release(self.release, entry.since(begin))).await?;
                if again == Released::Freed { Ok(again) } else { Err(interrupted) }
            }
            answer => answer,
        }
    }

    async fn call_all(&self, lua: &Lua, entries: &[Entry<'_>]) -> Vec<Result<bool, BackendError>> {
        let (begin, timeout) = (Time::now(), entries.iter().map(|entry| entry.timeout).min().unwrap_or_default());
        match self.connections.get(timeout).await {
            Ok(live) => live.call_all(lua, entries, begin, timeout).await,
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
        Box::pin(self.acquire(entry, attempt, route))
    }

    fn wait<'a>(
        &'a self,
        entry: Entry<'a>,
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Turn, BackendError>> {
        Box::pin(self.wait(entry, route))
    }

    fn listen<'a>(&'a self, waiter: &'a str, listener: &'a dyn Listener) -> BoxFuture<'a, BackendError> {
        Box::pin(self.connections.dialer().listen(waiter, listener))
    }

    fn acquire_all<'a>(
        &'a self,
        entries: &'a [Entry<'a>],
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<AcquiredAll, BackendError>> {
        Box::pin(self.acquire_all(entries, route))
    }

    fn mint<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Result<Option<FencingToken>, BackendError>> {
        Box::pin(self.mint(entries))
    }

    fn release<'a>(&'a self, entry: Entry<'a>) -> BoxFuture<'a, Result<Released, BackendError>> {
        Box::pin(self.release(entry))
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
            self.call_all(self.release, entries).await.into_iter().map(|ours| ours.map(answer)).collect()
        })
    }
}
