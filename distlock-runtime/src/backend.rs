//! What a lock is kept in: the trait that a backend implements, and those that are built in.

pub(crate) mod cluster;
mod entry;
mod error;
pub(crate) mod memory;
pub(crate) mod redis;
pub(crate) mod redlock;

use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use entry::{Entry, Fencing, Kind};
pub use error::BackendError;
pub use memory::MemoryBackend;

use crate::FencingToken;

/// The future that a backend's method returns. It is boxed, so that backends can be chosen at run time.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where locks are kept: something that several processes can ask, that compares and sets in one step, and that lets
/// keys expire.
///
/// The methods are called on different Tokio runtimes: [`acquire`](Self::acquire) and [`release`](Self::release) on the
/// caller's, [`renew`](Self::renew) and [`release_all`](Self::release_all) on the manager's watchdog, which has a thread
/// and a runtime of its own. What a backend keeps per connection it should keep per runtime, so that a runtime that is
/// blocked or has ended disturbs no other.
///
/// # Cancel safety
///
/// A future of this trait may be dropped at any point. Whoever drops one that was polled takes its outcome for unknown.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Prepares the running runtime for what comes, for example by connecting. Called when a manager is built: once on
    /// the caller's runtime, once on the watchdog's.
    fn prepare(&self) -> BoxFuture<'_, Result<(), BackendError>>;

    /// A number for the server that keeps `key`, where there are several: what is on one of them is renewed in one go, and
    /// apart from what is on others, so that one that is sick delays nobody else's.
    fn place(&self, key: &str) -> usize {
        let _ = key;
        0
    }

    /// Whether a value may be asked for again after an attempt that failed: one that was refused, late or unanswered. With
    /// one server it may, and so recognises what an earlier attempt has set although the answer was lost.
    ///
    /// Not so where a failed attempt is taken back in the background, as it is on several servers: a release that is late
    /// would free what a later attempt has got for the same value. Such a backend returns `false`. Then each attempt has a
    /// value of its own, and what the earlier one may have left is freed. It has no line, either: callers that wait ask it
    /// again and again by [`acquire`](Self::acquire), with jittered pauses.
    fn reuses_values(&self) -> bool {
        true
    }

    /// Why this has no locks but exclusive ones, if so. Then those of other kinds are refused with this text, before anything is
    /// sent.
    fn only_exclusive(&self) -> Option<&'static str> {
        Some("this backend has none but exclusive locks")
    }

    /// A lock went from one caller of this process to the next, without a request.
    #[doc(hidden)]
    fn passed_on(&self, _: Entry<'_>) {}

    /// Sets `entry`, to expire after its ttl, if there is nothing under its key or `entry` itself. In the latter case the
    /// expiry starts anew.
    ///
    /// An entry that is not [exclusive](Kind::Exclusive) is set beside others of its kind, as far as that allows. Each has an
    /// expiry of its own. It is refused while one of another kind has been promised to come back
    /// ([`Entry::returning`]).
    ///
    /// Before anything is sent, a backend may leave in `route` a way to queue a release behind it. Someone whose call was
    /// dropped or unanswered then frees the key as soon as the request has arrived, instead of asking again and again.
    fn acquire<'a>(
        &'a self,
        entry: Entry<'a>,
        attempt: Attempt,
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Acquired, BackendError>>;

    /// Sets `entry` if its turn has come, and else keeps a place for it in the key's line, where it stays as long as this
    /// is called again within [`PATIENCE`]. Its turn has come if the lock was handed over to it, or if nothing stands under
    /// the key and nobody who is alive stands before it. The place is given up by [`release`](Self::release).
    ///
    /// A backend without a line grants to whom it can, as this does unless it is written anew.
    fn wait<'a>(
        &'a self,
        entry: Entry<'a>,
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Turn, BackendError>> {
        Box::pin(async move {
            Ok(match self.acquire(entry, Attempt::Repeated, route).await? {
                Acquired::Granted(fencing_token) => Turn::Come { fencing_token, others: true },
                Acquired::Held { value, remaining } => Turn::Waits { value, remaining, first: true },
            })
        })
    }

    /// Tells `listener` of the locks that are handed over to `waiter`, which is what the entries of this manager have as
    /// theirs. Runs on the watchdog's runtime, from the first wait to the end of the manager, and returns only when it
    /// can't go on; then it is called again after a while. What it misses is found by asking, a little later.
    fn listen<'a>(&'a self, waiter: &'a str, listener: &'a dyn Listener) -> BoxFuture<'a, BackendError> {
        let _ = (waiter, listener);
        Box::pin(std::future::pending())
    }

    /// Whether [`acquire_all`](Self::acquire_all) sets all or none in one step. Where it does not, an attempt that was refused has
    /// been taken back, and a release of that which is late would free what a later attempt has got for the same values.
    /// Then each attempt for several locks has values of its own.
    fn acquires_all_at_once(&self) -> bool {
        false
    }

    /// Sets all entries, to expire after their ttls, if under each key there is nothing or its entry; otherwise sets none.
    /// All entries have the same terms. The fencing token, if one is asked for, is above the last of every key.
    ///
    /// Unless this is written anew, it takes one after the other and gives back what it has when one is refused. Then it
    /// has no fencing tokens.
    fn acquire_all<'a>(
        &'a self,
        entries: &'a [Entry<'a>],
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<AcquiredAll, BackendError>> {
        Box::pin(async move {
            for (index, entry) in entries.iter().enumerate() {
                if entry.fencing.is_some() {
                    return Err(BackendError::lasting("the backend has no fencing tokens for several locks"));
                }
                let refused = match self.acquire(*entry, Attempt::Repeated, route).await {
                    Ok(Acquired::Granted(_)) => continue,
                    Ok(Acquired::Held { value, remaining }) => Ok(AcquiredAll::Held { index, value, remaining }),
                    Err(error) => Err(error),
                };
                let taken = entries.get(..index).unwrap_or_default();
                let given_back = self.release_all(taken).await.into_iter().try_for_each(|released| released.map(drop));
                // What could not be given back may stand, whatever the reason.
                return given_back.map_err(|error| BackendError::unanswered(error.to_string())).and(refused);
            }
            Ok(AcquiredAll::Granted(None))
        })
    }

    /// Mints a fencing token that is above the last of every key, if under each key stands its entry; nothing if not. The
    /// locks stay as they are.
    fn mint<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Result<Option<FencingToken>, BackendError>> {
        let _ = entries;
        Box::pin(ready(Err(BackendError::lasting("the backend has no fencing tokens for locks that are held"))))
    }

    /// Deletes `entry` if it is what stands under its key, or hands the lock over to the first in the line who is alive.
    /// A place that the entry has in the line is given up.
    fn release<'a>(&'a self, entry: Entry<'a>) -> BoxFuture<'a, Result<Released, BackendError>>;

    /// Starts the expiry of each entry anew, if it is what stands under its key. The answers come in the entries' order.
    fn renew<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Renewed, BackendError>>>;

    /// Releases each entry. The answers come in the entries' order.
    fn release_all<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Released, BackendError>>>;
}

/// Several managers, or a manager and a test, can share a backend.
impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn prepare(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        (**self).prepare()
    }

    fn place(&self, key: &str) -> usize {
        (**self).place(key)
    }

    fn reuses_values(&self) -> bool {
        (**self).reuses_values()
    }

    fn acquires_all_at_once(&self) -> bool {
        (**self).acquires_all_at_once()
    }

    fn only_exclusive(&self) -> Option<&'static str> {
        (**self).only_exclusive()
    }

    fn passed_on(&self, entry: Entry<'_>) {
        (**self).passed_on(entry);
    }

    fn acquire<'a>(
        &'a self,
        entry: Entry<'a>,
        attempt: Attempt,
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Acquired, BackendError>> {
        (**self).acquire(entry, attempt, route)
    }

    fn wait<'a>(
        &'a self,
        entry: Entry<'a>,
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Turn, BackendError>> {
        (**self).wait(entry, route)
    }

    fn listen<'a>(&'a self, waiter: &'a str, listener: &'a dyn Listener) -> BoxFuture<'a, BackendError> {
        (**self).listen(waiter, listener)
    }

    fn acquire_all<'a>(
        &'a self,
        entries: &'a [Entry<'a>],
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<AcquiredAll, BackendError>> {
        (**self).acquire_all(entries, route)
    }

    fn mint<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Result<Option<FencingToken>, BackendError>> {
        (**self).mint(entries)
    }

    fn release<'a>(&'a self, entry: Entry<'a>) -> BoxFuture<'a, Result<Released, BackendError>> {
        (**self).release(entry)
    }

    fn renew<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Renewed, BackendError>>> {
        (**self).renew(entries)
    }

    fn release_all<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Released, BackendError>>> {
        (**self).release_all(entries)
    }
}

/// A way to where an attempt was sent, for releases that must not overtake it.
pub trait Route: Send + Sync {
    /// Deletes `entry` if it is what stands under its key, after whatever was sent along this way before. An answer
    /// proves that nothing sent before is still under way.
    fn release<'a>(&'a self, entry: Entry<'a>) -> BoxFuture<'a, Result<Released, BackendError>>;
}

/// Hears of locks that were handed over.
pub trait Listener: Send + Sync {
    /// From now on nothing is missed, as far as the backend knows.
    fn connected(&self);

    /// The lock was handed over to the entry whose value begins with `token`. It has [`CLAIM`] to take it.
    fn handed_over(&self, token: &str);
}

/// For how long a waiter may be silent before it is passed over.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// For how long a lock that was handed over waits to be claimed.
pub const CLAIM: Duration = Duration::from_secs(1);
/// For how long a waiter may be silent before its place is forgotten.
pub const FORGET: Duration = Duration::from_secs(10);

/// Which attempt of a call this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The first: the entry can't be there yet.
    First,
    /// A later one: an earlier attempt may have set the entry, though its answer never came.
    Repeated,
}

/// What came of an attempt to acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The entry stands. With the fencing token, where one was asked for.
    Granted(Option<FencingToken>),
    /// Something else stands there.
    Held {
        /// What stands there.
        value: String,
        /// After how long it expires if it is not renewed. Zero where it has just done so.
        remaining: Duration,
    },
}

/// What came of an attempt to acquire several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquiredAll {
    /// All entries stand. With the fencing token for all of them, where one was asked for.
    Granted(Option<FencingToken>),
    /// Something else stands under one of the keys, and nothing was set.
    Held {
        /// Which of the entries was refused.
        index: usize,
        /// What stands there.
        value: String,
        /// After how long it expires if it is not renewed.
        remaining: Duration,
    },
    /// One of the keys is in use for something that is no lock, and nothing was set.
    Foreign {
        /// Which of the entries was refused.
        index: usize,
        /// What stands there.
        found: String,
    },
}

/// What came of asking whether a waiter's turn has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The entry stands.
    Come {
        /// The first of the fencing tokens that were asked for.
        fencing_token: Option<FencingToken>,
        /// Whether others stand in the line, or may.
        others: bool,
    },
    /// The entry has its place in the line.
    Waits {
        /// What stands under the key.
        value: String,
        /// After how long it expires if it is not renewed.
        remaining: Duration,
        /// Whether nobody who is alive stands before the entry.
        first: bool,
    },
}

/// What came of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The expiry started anew.
    Extended,
    /// The entry does not stand there any more.
    NotHeld,
}

/// What came of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The entry was deleted.
    Freed,
    /// The entry did not stand there, but it had a place in the line, or held others back. That is given up.
    Left,
    /// The entry did not stand there, and had no place either.
    NotHeld,
}
