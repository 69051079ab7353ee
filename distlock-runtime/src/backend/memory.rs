//! Locks inside one process, with the semantics of the Redis backend: expiry, tokens, loss, the line of those who wait.

mod locks;
mod place;
mod shares;

use std::fmt;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use self::locks::Locks;
use self::place::HandedOver;
use super::{
    Acquired, AcquiredAll, Attempt, Backend, BackendError, BoxFuture, Entry, Listener, Released, Renewed, Route, Turn,
};
use crate::FencingToken;
use crate::clock::Time;

/// Keeps locks inside the process, with the semantics of the Redis backend.
///
/// For an application's tests and for trying the library out. It excludes nobody in another process.
pub struct MemoryBackend {
    locks: Mutex<Locks>,
    calls: broadcast::Sender<HandedOver>,
}

impl Default for MemoryBackend {
    fn default() -> MemoryBackend {
        MemoryBackend { locks: Mutex::default(), calls: broadcast::Sender::new(256) }
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory of this process")
    }
}

impl MemoryBackend {
    /// Makes a backend without locks.
    #[must_use]
    pub fn new() -> MemoryBackend {
        MemoryBackend::default()
    }

    fn with<T>(&self, work: impl FnOnce(&mut Locks, Time) -> T) -> T {
        // Nothing panics while the locks are borrowed, so a poisoned mutex still holds a sound map.
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let done = work(&mut locks, Time::now());
        let handed_over = locks.take_handed_over();
        drop(locks);
        for call in handed_over {
            // Without a listener nobody is there to hear it.
            let _ = self.calls.send(call);
        }
        done
    }

    async fn listen(&self, waiter: &str, listener: &dyn Listener) -> BackendError {
        let mut calls = self.calls.subscribe();
        listener.connected();
        loop {
            match calls.recv().await {
                Ok(call) if call.waiter == waiter => listener.handed_over(&call.token),
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => listener.connected(),
                Err(RecvError::Closed) => return BackendError::passing("the backend is gone"),
            }
        }
    }
}

impl Backend for MemoryBackend {
    fn prepare(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        Box::pin(ready(Ok(())))
    }

    fn acquire<'a>(
        &'a self,
        entry: Entry<'a>,
        _attempt: Attempt,
        _route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Acquired, BackendError>> {
        Box::pin(async move { Ok(self.with(|locks, now| locks.acquire(&entry, now))) })
    }

    fn wait<'a>(
        &'a self,
        entry: Entry<'a>,
        _route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Turn, BackendError>> {
        Box::pin(async move { Ok(self.with(|locks, now| locks.wait(&entry, now))) })
    }

    fn listen<'a>(&'a self, waiter: &'a str, listener: &'a dyn Listener) -> BoxFuture<'a, BackendError> {
        Box::pin(self.listen(waiter, listener))
    }

    fn acquires_all_at_once(&self) -> bool {
        true
    }

    fn only_exclusive(&self) -> Option<&'static str> {
        None
    }

    fn acquire_all<'a>(
        &'a self,
        entries: &'a [Entry<'a>],
        _route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<AcquiredAll, BackendError>> {
        Box::pin(async move { Ok(self.with(|locks, now| locks.acquire_all(entries, now))) })
    }

    fn mint<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Result<Option<FencingToken>, BackendError>> {
        Box::pin(async move { Ok(self.with(|locks, now| locks.mint_held(entries, now))) })
    }

    fn release<'a>(&'a self, entry: Entry<'a>) -> BoxFuture<'a, Result<Released, BackendError>> {
        Box::pin(async move { Ok(self.with(|locks, now| locks.release(&entry, now))) })
    }

    fn renew<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Renewed, BackendError>>> {
        Box::pin(
            async move { self.with(|locks, now| entries.iter().map(|entry| Ok(locks.renew(entry, now))).collect()) },
        )
    }

    fn release_all<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Released, BackendError>>> {
        Box::pin(
            async move { self.with(|locks, now| entries.iter().map(|entry| Ok(locks.release(entry, now))).collect()) },
        )
    }
}
