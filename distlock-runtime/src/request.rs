use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::acquire::acquire_by_hand;
use crate::guard::LockGuard;
use crate::key::{Key, Keys};
use crate::manager::Core;
use crate::options::{Mode, OnLost, Options};
use crate::private::by_outcome;
use crate::run::{Prepared, run};
use crate::{Backoff, LockError};

/// A lock to be taken, with the options of the attribute under the same names. What is not set comes from the manager.
///
/// # Examples
///
/// ```
/// use distlock::{LockError, LockManager};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::in_memory();
/// let guard = locks.lock("report:2026-11").ttl(Duration::from_secs(5)).retry(3).acquire().await?;
/// assert_eq!(guard.ttl(), Duration::from_secs(5));
/// guard.release().await
/// # }
/// ```
#[must_use = "nothing is locked until `acquire` or `run` is awaited"]
pub struct LockRequest {
    core: Arc<Core>,
    keys: Vec<String>,
    options: Options,
}

impl LockRequest {
    pub(crate) fn new(core: Arc<Core>, key: String) -> LockRequest {
        LockRequest::for_all(core, vec![key])
    }

    pub(crate) fn for_all(core: Arc<Core>, keys: Vec<String>) -> LockRequest {
        LockRequest { core, keys, options: Options::new() }
    }

    /// Sets the length of the lease, from 100 ms to 24 h.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|options| options.ttl(ttl))
    }

    /// Sets how often the lock is tried again after the first attempt.
    pub fn retry(self, retry: u32) -> Self {
        self.with(|options| options.retry(retry))
    }

    /// Sets the pauses between the tries.
    pub fn backoff(self, backoff: Backoff) -> Self {
        self.with(|options| options.backoff(backoff))
    }

    /// Stands in line for the lock, for no longer than `wait`, which is at most 24 h: first come, first served over all
    /// processes, but callers of one process wait for each other first. If [`retry`](Self::retry) is set here, too, the wait
    /// also ends when that many tries would have.
    ///
    /// Over several servers ([`LockManagerBuilder::redlock`](crate::LockManagerBuilder::redlock)) there is no line: the lock is
    /// tried again and again, with jittered pauses, until it is granted or the time is over, and who gets it next is chance.
    pub fn wait(self, wait: Duration) -> Self {
        self.with(|options| options.wait(wait))
    }

    /// Sets whether the lock brings a [`FencingToken`](crate::FencingToken): `false` unless set.
    pub fn fencing_token(self, fencing_token: bool) -> Self {
        self.with(|options| options.fencing_token(fencing_token))
    }

    /// Sets what [`run`](Self::run) does inside of a body that holds the same lock: it passes under the lease of that,
    /// unless this is set to `false`; then it fails with [`LockError::WouldDeadlock`].
    pub fn reentrant(self, reentrant: bool) -> Self {
        self.with(|options| options.reentrant(reentrant))
    }

    /// Sets whether the lease is renewed while the lock is held: `true` unless set. Without it the work has to end within
    /// the ttl.
    pub fn watchdog(self, watchdog: bool) -> Self {
        self.with(|options| options.watchdog(watchdog))
    }

    /// Sets the longest time to hold the lock: without end unless set, and not below a [`ttl`](Self::ttl) that is set; the
    /// manager's gives way to it.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.with(|options| options.max_hold(max_hold))
    }

    /// Sets what happens to a body when the lock is lost: [`OnLost::Cancel`] unless set.
    pub fn on_lost(self, on_lost: OnLost) -> Self {
        self.with(|options| options.on_lost(on_lost))
    }

    /// Sets whether others may hold the lock at the same time: [`Mode::Exclusive`] unless set.
    ///
    /// Locks on one key exclude each other across modes, also those with [`permits`](Self::permits). A reader's lease is its own: it
    /// ends neither earlier nor later for that of another. While somebody asks for the lock for writing, by
    /// [`wait`](Self::wait) or between two tries of [`retry`](Self::retry), no new readers are let in.
    ///
    /// Not over several servers ([`LockManagerBuilder::redlock`](crate::LockManagerBuilder::redlock)).
    ///
    /// # Examples
    ///
    /// ```
    /// use distlock::{LockError, LockManager, Mode};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let one = locks.lock("prices").mode(Mode::Read).acquire().await?;
    /// let other = locks.lock("prices").mode(Mode::Read).acquire().await?;
    /// let writer = locks.lock("prices").mode(Mode::Write).acquire().await;
    /// assert!(writer.is_err_and(|error| error.is_busy()));
    /// # one.release().await?;
    /// # other.release().await }
    /// ```
    pub fn mode(self, mode: Mode) -> Self {
        self.with(|options| options.mode(mode))
    }

    /// Sets how many may hold the lock at the same time, from 1 to 10,000, over all processes.
    ///
    /// Where callers disagree on how many, the smallest number counts of those who hold the lock and of who asks: one that asks
    /// for the third of 5 is refused while somebody holds one of 2. So a number can be changed while the service runs, and
    /// nobody ever has more beside it than it was promised.
    ///
    /// Not over several servers ([`LockManagerBuilder::redlock`](crate::LockManagerBuilder::redlock)).
    ///
    /// # Examples
    ///
    /// ```
    /// use distlock::{LockError, LockManager};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let one = locks.lock("geocoder").permits(2).acquire().await?;
    /// let other = locks.lock("geocoder").permits(2).acquire().await?;
    /// assert!(locks.lock("geocoder").permits(2).acquire().await.is_err_and(|error| error.is_busy()));
    /// # one.release().await?;
    /// # other.release().await }
    /// ```
    pub fn permits(self, permits: u32) -> Self {
        self.with(|options| options.permits(permits))
    }

    /// Takes the lock, and keeps it until the guard is released or dropped.
    ///
    /// The guard does not count as the calling task's: an annotated call, or [`run`](Self::run), for the same key under it waits
    /// for it in vain.
    ///
    /// # Errors
    ///
    /// [`LockError::Busy`] if somebody else held it at every attempt; [`LockError::Backend`] if the server could not be
    /// asked; [`LockError::WouldDeadlock`] inside of a body that holds the same lock, and
    /// [`LockError::UpgradeNotSupported`] if that shares it with others; [`LockError::InvalidKey`],
    /// [`LockError::InvalidOption`], [`LockError::ForeignValue`], [`LockError::ShuttingDown`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing is locked: what a request under way still sets is freed behind it.
    pub async fn acquire(self) -> Result<LockGuard, LockError> {
        let (core, hold) = self.prepare()?;
        let (call, part) = (hold.audience.span.clone(), hold.audience.acquiring());
        acquire_by_hand(core, hold).instrument(part).instrument(call).await
    }

    /// Runs `future` under the lock: it starts when the lock is held, is stopped if the lock is lost, and its result is
    /// returned when the lock has been released. A release that fails changes nothing about the result.
    ///
    /// # Errors
    ///
    /// Those of `future`, those of [`acquire`](Self::acquire), and [`LockError::Lost`].
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, `future` is dropped where it awaits and the lock is freed.
    pub fn run<T, E, F>(self, future: F) -> impl Future<Output = Result<T, E>>
    where
        F: Future<Output = Result<T, E>>,
        E: From<LockError>,
    {
        let prepared = self.prepare();
        run(|| prepared, future, by_outcome())
    }

    fn with(mut self, set: impl FnOnce(Options) -> Options) -> Self {
        self.options = set(self.options);
        self
    }

    fn prepare(self) -> Prepared {
        let keys: Result<Vec<Key>, LockError> = self.keys.into_iter().map(Key::new).collect();
        self.core.prepare(Keys::new(keys?)?, &self.options, None)
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest").field("keys", &self.keys).field("options", &self.options).finish_non_exhaustive()
    }
}
