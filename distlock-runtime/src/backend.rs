//! What a lock is kept in: the trait that a backend implements, and the two that are built in.

pub(crate) mod memory;
pub(crate) mod redis;

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use memory::MemoryBackend;

use crate::clock::Time;

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

    /// Sets `entry`, to expire after its ttl, if there is nothing under its key or `entry` itself. In the latter case the
    /// expiry starts anew.
    ///
    /// Before anything is sent, a backend may leave in `route` a way to queue a release behind it. Someone whose call was
    /// dropped or unanswered then frees the key as soon as the request has arrived, instead of asking again and again.
    fn acquire<'a>(
        &'a self,
        entry: Entry<'a>,
        attempt: Attempt,
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Acquired, BackendError>>;

    /// Deletes `entry` if it is what stands under its key.
    fn release<'a>(&'a self, entry: Entry<'a>) -> BoxFuture<'a, Result<Released, BackendError>>;

    /// Starts the expiry of each entry anew, if it is what stands under its key. The answers come in the entries' order.
    fn renew<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Renewed, BackendError>>>;

    /// Deletes each entry if it is what stands under its key. The answers come in the entries' order.
    fn release_all<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Released, BackendError>>>;
}

/// Several managers, or a manager and a test, can share a backend.
impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn prepare(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        (**self).prepare()
    }

    fn acquire<'a>(
        &'a self,
        entry: Entry<'a>,
        attempt: Attempt,
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Acquired, BackendError>> {
        (**self).acquire(entry, attempt, route)
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

/// A lock as a backend sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Entry<'a> {
    /// The key as the application knows it, of 1 to 1,024 bytes.
    pub key: &'a str,
    /// The value: the acquisition's token and the owner's label, `<uuid>/<owner>`.
    pub value: &'a str,
    /// After how long the key expires, unless it is renewed.
    pub ttl: Duration,
    /// How long the backend may wait for an answer. To connect may take longer where a lock is acquired, and nowhere else.
    pub timeout: Duration,
}

impl<'a> Entry<'a> {
    /// Makes an entry, for tests of a backend.
    pub fn new(key: &'a str, value: &'a str, ttl: Duration, timeout: Duration) -> Entry<'a> {
        Entry { key, value, ttl, timeout }
    }

    /// The same with what is left of the timeout of something that began at `begin`.
    pub(crate) fn since(self, begin: Time) -> Entry<'a> {
        Entry { timeout: self.timeout.saturating_sub(Time::now().saturating_since(begin)), ..self }
    }
}

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
    /// The entry stands.
    Granted,
    /// Something else stands there.
    Held {
        /// What stands there.
        value: String,
        /// After how long it expires if it is not renewed. Zero where it has just done so.
        remaining: Duration,
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
    /// The entry did not stand there.
    NotHeld,
}

/// Why a backend gave no answer about a lock.
///
/// The kind decides what follows. After [`unanswered`](Self::unanswered) the request may have been carried out, so it is
/// undone; after all but [`lasting`](Self::lasting) and [`foreign`](Self::foreign) it may be tried again.
#[derive(Debug)]
pub struct BackendError {
    kind: Kind,
    text: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Interrupted,
    Unanswered,
    Passing,
    Lasting,
    Foreign,
}

impl BackendError {
    /// The request was or may have been sent, and there is no answer: a timeout, a broken connection.
    pub fn unanswered(text: impl Into<String>) -> BackendError {
        BackendError::new(Kind::Unanswered, text)
    }

    /// The connection was at its end, perhaps before the request was sent: an idle one, say, that the server had closed.
    /// Otherwise as [`unanswered`](Self::unanswered). An acquire is repeated at once, once in a call, without counting
    /// as another attempt.
    pub fn interrupted(text: impl Into<String>) -> BackendError {
        BackendError::new(Kind::Interrupted, text)
    }

    /// The request was certainly not carried out, for a reason that passes: refused connection, server busy or loading.
    pub fn passing(text: impl Into<String>) -> BackendError {
        BackendError::new(Kind::Passing, text)
    }

    /// The request was not carried out, for a reason that stays until somebody mends it: wrong password, missing right.
    pub fn lasting(text: impl Into<String>) -> BackendError {
        BackendError::new(Kind::Lasting, text)
    }

    /// The key is in use for something that is no lock, as `found` describes.
    pub fn foreign(found: impl Into<String>) -> BackendError {
        BackendError::new(Kind::Foreign, found)
    }

    /// Adds the error of another library that this one comes from.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> BackendError {
        self.source = Some(source.into());
        self
    }

    fn new(kind: Kind, text: impl Into<String>) -> BackendError {
        BackendError { kind, text: text.into(), source: None }
    }

    /// Whether the request may have been carried out all the same.
    pub fn is_unanswered(&self) -> bool {
        matches!(self.kind, Kind::Unanswered | Kind::Interrupted)
    }

    /// Whether the connection was at its end.
    pub fn is_interrupted(&self) -> bool {
        self.kind == Kind::Interrupted
    }

    /// Whether the same request may succeed later, with nothing mended in between.
    pub fn is_passing(&self) -> bool {
        matches!(self.kind, Kind::Interrupted | Kind::Unanswered | Kind::Passing)
    }

    /// Whether the key is in use for something that is no lock.
    pub fn is_foreign(&self) -> bool {
        self.kind == Kind::Foreign
    }

    /// The same, where it is known that the request was not carried out.
    pub(crate) fn nothing_done(mut self) -> BackendError {
        if self.is_unanswered() {
            self.kind = Kind::Passing;
        }
        self
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
