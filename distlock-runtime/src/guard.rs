use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::Strays;
use crate::backend::{BackendError, Released};
use crate::hold::Hold;
use crate::manager::Entered;
use crate::{LockError, LostReason, events};

/// A lock that is held. Dropping it frees the lock without blocking, from any thread, inside or outside a runtime.
///
/// The guard can't stop the code that follows it when the lock is lost: ask the [`lease`](Self::lease), or let
/// [`run`](crate::LockRequest::run) or the attribute watch over a future.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
/// # let locks = distlock::LockManager::in_memory();
/// let guard = locks.lock("order:42").acquire().await?;
/// guard.lease().ensure_held()?;
/// guard.release().await
/// # }
/// ```
#[must_use = "the lock is freed as soon as its guard is dropped"]
pub struct LockGuard {
    lease: Lease,
    /// Earlier requests of this call that have had no answer, and may still set the key.
    strays: Strays,
    /// Whether the key is known to be free of us.
    freed: bool,
    call: Entered,
}

impl LockGuard {
    /// Takes over a lock that was granted, and is watched.
    pub(crate) fn new(call: Entered, hold: Arc<Hold>, strays: Strays) -> LockGuard {
        LockGuard { lease: Lease { hold }, strays, freed: false, call }
    }

    pub(crate) fn ensure_open(&self) -> Result<(), LockError> {
        self.call.core.ensure_open()
    }

    /// The lease under which the lock is held.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The length of the lease, as it was asked for.
    pub fn ttl(&self) -> Duration {
        self.lease.hold.terms.ttl
    }

    /// Frees the lock and waits for the answer, no longer than the command timeout and what is left of the lease.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lock had been lost, or the server says that it was no longer ours.
    /// [`LockError::Backend`] if no answer came; the watchdog goes on freeing the lock.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the watchdog frees the lock.
    pub async fn release(mut self) -> Result<(), LockError> {
        match self.free().await {
            Ok(()) => Ok(()),
            Err(NotFreed::Lost(reason)) => Err(self.lease.hold.lost_error(reason)),
            Err(NotFreed::Unanswered(source)) => {
                let operation = format!("release lock `{}`", self.lease.hold.key);
                Err(LockError::Backend { operation, attempts: 1, source })
            }
        }
    }

    /// Frees the lock. What this leaves undone is done when the guard is dropped.
    pub(crate) async fn free(&mut self) -> Result<(), NotFreed> {
        let hold = &self.lease.hold;
        self.call.core.watchdog().unwatch(hold);
        let remaining = hold.end().map_err(NotFreed::Lost)?;
        let timeout = hold.terms.command_timeout.min(remaining);
        let released = self.call.core.backend().release(hold.entry_within(timeout)).await;
        match released {
            Ok(released) => {
                self.freed = true;
                events::released(hold, released);
                if released == Released::NotHeld {
                    hold.was_gone();
                    return Err(NotFreed::Lost(LostReason::Gone));
                }
                Ok(())
            }
            Err(error) => {
                events::release_failed(hold, &error);
                Err(NotFreed::Unanswered(error))
            }
        }
    }
}

/// Why a lock was not freed by its holder.
pub(crate) enum NotFreed {
    Lost(LostReason),
    Unanswered(BackendError),
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let hold = &self.lease.hold;
        let watchdog = self.call.core.watchdog();
        if !self.freed {
            watchdog.unwatch(hold);
            if !matches!(hold.end(), Err(LostReason::Gone)) {
                watchdog.free(hold);
            }
        }
        let strays = std::mem::take(&mut self.strays);
        if strays.requests > 0 {
            watchdog.free_strays(hold, strays);
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard").field("lease", &self.lease).finish_non_exhaustive()
    }
}

/// A view of a lock that is held: cheap to clone and to pass on. It can't release the lock, and doesn't keep it.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
/// # let locks = distlock::LockManager::in_memory();
/// let guard = locks.lock("order:42").acquire().await?;
/// let lease = guard.lease().clone();
/// assert!(lease.is_held() && lease.remaining() > std::time::Duration::from_secs(29));
///
/// guard.release().await?;
/// assert!(lease.ensure_held().is_err());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Lease {
    pub(crate) hold: Arc<Hold>,
}

impl Lease {
    /// The key that is locked, as it was rendered.
    pub fn key(&self) -> &str {
        self.hold.key.as_str()
    }

    /// The token of this acquisition: a UUID, which also stands in the log and on the server.
    pub fn token(&self) -> &str {
        self.hold.token()
    }

    /// What is left of the lease if it is not renewed again, by the holder's own careful clock. Zero once the lock is
    /// lost or released.
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Whether the lock is held at this moment.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Asks whether the lock is held, in a form for `?`: for use right before something that can't be taken back.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if it is not, with [`LostReason::Gone`] after a release.
    pub fn ensure_held(&self) -> Result<(), LockError> {
        let lost = match self.hold.check() {
            Err(reason) => reason,
            Ok(()) if self.hold.has_ended() => LostReason::Gone,
            Ok(()) => return Ok(()),
        };
        Err(self.hold.lost_error(lost))
    }

    /// Waits until the lock is lost, and says how. If the lock is released, this waits for ever.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn lost(&self) -> LostReason {
        self.hold.lost().await
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.key())
            .field("token", &self.token())
            .field("remaining", &self.remaining())
            .finish()
    }
}
