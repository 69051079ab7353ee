mod text;

use std::error::Error;
use std::time::Duration;

use crate::backend::BackendError;

/// Why a call did not run, or did not run to its end, under its lock.
///
/// The text of an error is a complete sentence for a log. A cause that another library reported is also the
/// [`source`](Error::source).
///
/// # Examples
///
/// ```
/// use distlock::{LockError, LockManager};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let locks = LockManager::in_memory();
/// let _guard = locks.lock("order:42").acquire().await?;
///
/// match locks.lock("order:42").acquire().await {
///     Err(LockError::Busy { holder, remaining, .. }) => println!("{holder} has it for another {remaining:?}"),
///     other => panic!("held twice: {other:?}"),
/// }
/// # Ok(()) }
/// ```
#[non_exhaustive]
pub enum LockError {
    /// Somebody else holds the lock, and went on holding it over all attempts. The body did not run.
    #[non_exhaustive]
    Busy {
        /// The key as it was rendered.
        key: String,
        /// The owner label of the holder, `host/pid` unless that process set another one. Of several holders it is one, with how many
        /// there are beside: `web-1/3121 and 4 others`. Who is held back for a writer that waits is told of that:
        /// `web-1/3121, which waits for it`.
        holder: String,
        /// What was left of the holder's lease when the last attempt was refused. A holder that renews has it for longer. Of several
        /// leases it is the longest, and for permits the shortest; of one who waits, the time until it has to ask again.
        remaining: Duration,
        /// How often the lock was tried.
        attempts: u32,
        /// The time from the first attempt to the last refusal.
        waited: Duration,
    },
    /// The lock was held and then lost. The body was stopped where it awaited, or it ran to its end and the release found
    /// that the lock was no longer ours: this does not say that nothing was done.
    #[non_exhaustive]
    Lost {
        /// The key as it was rendered.
        key: String,
        /// How the loss was noticed.
        reason: LostReason,
        /// The time from the acquisition until now.
        held_for: Duration,
    },
    /// The calling task itself holds the lock, so that waiting for it would never end: a nested call with
    /// `reentrant = false`, one of another kind than the lock that is shared, one that asks for fewer permits than its task
    /// shares with others, or a guard that is asked for inside of a body.
    #[non_exhaustive]
    WouldDeadlock {
        /// The key as it was rendered.
        key: String,
    },
    /// The calling task holds the lock for reading and asks for it for writing, or holds a permit and asks for all of
    /// them.
    #[non_exhaustive]
    UpgradeNotSupported {
        /// The key as it was rendered.
        key: String,
    },
    /// The rendered key can't be used. Nothing was sent.
    #[non_exhaustive]
    InvalidKey {
        /// As much of the key as there was.
        key: String,
        /// What is wrong with it, and what a key must be.
        reason: String,
    },
    /// An option has a value that can't be used. Nothing was sent.
    #[non_exhaustive]
    InvalidOption {
        /// The option's name, as in the attribute and in the builders.
        option: &'static str,
        /// What is wrong with the value, and what the limits are.
        reason: String,
    },
    /// The key is in use for something that is no lock. It was left as it is.
    #[non_exhaustive]
    ForeignValue {
        /// The key as it was rendered.
        key: String,
        /// What was found there.
        found: String,
    },
    /// The backend could not be asked, or refused to answer.
    #[non_exhaustive]
    Backend {
        /// What was tried, for example ``acquire lock `order:42` ``.
        operation: String,
        /// How often it was tried.
        attempts: u32,
        /// What came back from the last try.
        source: BackendError,
    },
    /// There is no lock manager: none in scope, none installed.
    NotInstalled,
    /// The process already has a lock manager. It stays.
    AlreadyInstalled,
    /// The manager is shutting down, or has done so.
    ShuttingDown,
}

/// How the loss of a lock was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The server no longer has our token under the key: it expired, or somebody deleted or replaced it.
    Gone,
    /// The lease reached its deadline, and no renewal had been confirmed.
    Expired,
    /// The lock had been held for `max_hold`.
    HeldTooLong,
    /// The manager was shut down.
    Shutdown,
    /// It was released by its holder: only a lease that outlives its lock says so, or a call that passed under it.
    Released,
}

impl LockError {
    /// Whether somebody else holds the lock.
    pub fn is_busy(&self) -> bool {
        matches!(self, LockError::Busy { .. })
    }

    /// Whether the lock was held and then lost, so that the body may have run in part.
    pub fn is_lost(&self) -> bool {
        matches!(self, LockError::Lost { .. })
    }

    /// Whether the same call may well succeed later, with nothing mended in between: the lock is busy, or the backend
    /// did not answer or is in a passing state. A lost lock is not transient: its body has run in part.
    pub fn is_transient(&self) -> bool {
        match self {
            LockError::Busy { .. } => true,
            LockError::Backend { source, .. } => source.is_passing(),
            _ => false,
        }
    }
}

impl Error for LockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // The backend's error is part of the text already; its cause is not.
            LockError::Backend { source, .. } => source.source(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LockError;

    /// `clippy::result_large_err` would otherwise fire in every crate that returns one.
    #[test]
    fn the_error_stays_small_enough_to_return_by_value() {
        assert!(size_of::<LockError>() < 128, "{} bytes", size_of::<LockError>());
    }
}
