use std::error::Error;
use std::fmt::{self, Write as _};
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
        /// The owner label of the holder, `host/pid` unless that process set another one.
        holder: String,
        /// What was left of the holder's lease when the last attempt was refused. A holder that renews has it for longer.
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
    /// The calling task itself holds the lock, so that waiting for it would never end. Not returned yet: a nested call for
    /// the same key is [`Busy`](Self::Busy).
    #[non_exhaustive]
    WouldDeadlock {
        /// The key as it was rendered.
        key: String,
    },
    /// The calling task holds the lock for reading and asks for it for writing. Not returned yet: there are no read locks.
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

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::Busy { key, holder, remaining, attempts, waited } => write!(
                f,
                "lock `{}` is held by {} for another {}; gave up after {} in {}",
                Printable(key),
                Printable(if holder.is_empty() { "somebody who is gone by now" } else { holder }),
                Brief(*remaining),
                Times(*attempts),
                Brief(*waited)
            ),
            LockError::Lost { key, reason, held_for } => {
                write!(f, "lock `{}` was lost after {}: {reason}", Printable(key), Brief(*held_for))
            }
            LockError::WouldDeadlock { key } => {
                write!(f, "lock `{key}` is already held by the calling task, which would wait for itself")
            }
            LockError::UpgradeNotSupported { key } => {
                write!(f, "lock `{key}` is held for reading by the calling task; release it before locking for writing")
            }
            LockError::InvalidKey { key, reason } => write!(f, "lock key `{}` can't be used: {reason}", Printable(key)),
            LockError::InvalidOption { option, reason } => write!(f, "option `{option}` can't be used: {reason}"),
            LockError::ForeignValue { key, found } => write!(
                f,
                "lock `{}` can't be taken: its key holds {}, which is no lock, and was left as it is; \
                 use another key or another prefix",
                Printable(key),
                Printable(found)
            ),
            LockError::Backend { operation, attempts, source } => {
                write!(
                    f,
                    "could not {} ({}): {}",
                    Printable(operation),
                    Times(*attempts),
                    Printable(&source.to_string())
                )
            }
            LockError::NotInstalled => f.write_str(
                "there is no lock manager: call `.install()` on one at the start of the program, run the call inside \
                 `.scope(..)` (which tasks that are spawned in it do not inherit), or name one with `manager = ..`",
            ),
            LockError::AlreadyInstalled => {
                f.write_str("a lock manager is already installed in this process, and stays; install only one")
            }
            LockError::ShuttingDown => f.write_str("the lock manager is shutting down and takes no new calls"),
        }
    }
}

/// Shows the kind and the sentence, for the places where Rust shows errors by `Debug`: `main`, `unwrap`, `assert`.
impl fmt::Debug for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            LockError::Busy { .. } => "Busy",
            LockError::Lost { .. } => "Lost",
            LockError::WouldDeadlock { .. } => "WouldDeadlock",
            LockError::UpgradeNotSupported { .. } => "UpgradeNotSupported",
            LockError::InvalidKey { .. } => "InvalidKey",
            LockError::InvalidOption { .. } => "InvalidOption",
            LockError::ForeignValue { .. } => "ForeignValue",
            LockError::Backend { .. } => "Backend",
            LockError::NotInstalled => "NotInstalled",
            LockError::AlreadyInstalled => "AlreadyInstalled",
            LockError::ShuttingDown => "ShuttingDown",
        };
        write!(f, "{kind}: {self}")
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

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LostReason::Gone => "the server no longer has our token under the key",
            LostReason::Expired => "the lease ended before a renewal was confirmed",
            LostReason::HeldTooLong => "it was held for the longest time that `max_hold` allows",
            LostReason::Shutdown => "the lock manager was shut down",
        })
    }
}

/// A text that others have chosen, in one line: it must not pass for another entry of a log.
struct Printable<'a>(&'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            if character.is_control() { write!(f, "{}", character.escape_default())? } else { f.write_char(character)? }
        }
        Ok(())
    }
}

/// A duration as a person would say it: `21.4s`, `512ms`.
pub(crate) struct Brief(pub(crate) Duration);

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis < 1_000 { write!(f, "{millis}ms") } else { write!(f, "{:.1}s", self.0.as_secs_f64()) }
    }
}

struct Times(u32);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("1 attempt"),
            n => write!(f, "{n} attempts"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_lock_is_told_in_one_sentence() {
        let error = LockError::Busy {
            key: "order:42".to_owned(),
            holder: "web-1/3121".to_owned(),
            remaining: Duration::from_millis(21_400),
            attempts: 4,
            waited: Duration::from_millis(512),
        };
        assert_eq!(
            error.to_string(),
            "lock `order:42` is held by web-1/3121 for another 21.4s; gave up after 4 attempts in 512ms"
        );
        assert!(error.is_busy() && error.is_transient() && !error.is_lost());
    }

    #[test]
    fn a_lost_lock_is_not_called_transient() {
        let error = LockError::Lost { key: "k".to_owned(), reason: LostReason::Gone, held_for: Duration::from_secs(3) };
        assert_eq!(error.to_string(), "lock `k` was lost after 3.0s: the server no longer has our token under the key");
        assert!(error.is_lost() && !error.is_transient());
    }

    /// `clippy::result_large_err` would otherwise fire in every crate that returns one.
    #[test]
    fn the_error_stays_small_enough_to_return_by_value() {
        assert!(size_of::<LockError>() < 128, "{} bytes", size_of::<LockError>());
    }
}
