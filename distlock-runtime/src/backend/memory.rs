use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::fmt;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Acquired, Attempt, Backend, BackendError, BoxFuture, Entry, Released, Renewed, Route};
use crate::clock::Time;

/// Keeps locks inside the process, with the semantics of the Redis backend: expiry, tokens, loss.
///
/// For an application's tests and for trying the library out. It excludes nobody in another process.
#[derive(Default)]
pub struct MemoryBackend {
    locks: Mutex<Locks>,
}

#[derive(Default)]
struct Locks {
    by_key: HashMap<String, Lock>,
    /// The number of keys at which the expired ones are swept out. Nobody may ever ask for them again.
    sweep_at: usize,
}

struct Lock {
    value: String,
    expires: Time,
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
        work(&mut locks, Time::now())
    }
}

impl Locks {
    fn acquire(&mut self, entry: &Entry<'_>, now: Time) -> Acquired {
        self.sweep(now);
        let lock = Lock { value: entry.value.to_owned(), expires: now.saturating_add(entry.ttl) };
        match self.by_key.entry(entry.key.to_owned()) {
            Place::Vacant(place) => {
                place.insert(lock);
            }
            Place::Occupied(mut place) => {
                let held = place.get();
                if held.expires > now && held.value != entry.value {
                    return Acquired::Held { value: held.value.clone(), remaining: held.expires.saturating_since(now) };
                }
                place.insert(lock);
            }
        }
        Acquired::Granted
    }

    fn renew(&mut self, entry: &Entry<'_>, now: Time) -> Renewed {
        match self.by_key.get_mut(entry.key) {
            Some(lock) if lock.expires > now && lock.value == entry.value => {
                lock.expires = now.saturating_add(entry.ttl);
                Renewed::Extended
            }
            _ => Renewed::NotHeld,
        }
    }

    fn release(&mut self, entry: &Entry<'_>, now: Time) -> Released {
        match self.by_key.get(entry.key) {
            Some(lock) if lock.value == entry.value => {
                let live = lock.expires > now;
                self.by_key.remove(entry.key);
                if live { Released::Freed } else { Released::NotHeld }
            }
            _ => Released::NotHeld,
        }
    }

    fn sweep(&mut self, now: Time) {
        if self.by_key.len() >= self.sweep_at.max(64) {
            self.by_key.retain(|_, lock| lock.expires > now);
            self.sweep_at = self.by_key.len().saturating_mul(2);
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
