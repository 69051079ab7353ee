//! What errors say: complete sentences, in one line.

use std::fmt::{self, Write as _};
use std::time::Duration;

use super::{LockError, LostReason};

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::Busy { key, holder, remaining, attempts, waited } => {
                write!(f, "lock `{}` is {}", Printable(key), By(holder, *remaining))?;
                write!(f, "; gave up after {} in {}", Times(*attempts), Brief(*waited))
            }
            LockError::Lost { key, reason, held_for } => {
                write!(f, "lock `{}` was lost after {}: {reason}", Printable(key), Brief(*held_for))
            }
            LockError::WouldDeadlock { key } => {
                write!(f, "lock `{key}` is already held by the calling task, which would wait for itself")
            }
            LockError::UpgradeNotSupported { key } => {
                write!(
                    f,
                    "lock `{key}` is held by the calling task for reading or by a permit, which can't be upgraded; \
                     release that before locking it for writing"
                )
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

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LostReason::Gone => "the server no longer has our token under the key",
            LostReason::Expired => "the lease ended before a renewal was confirmed",
            LostReason::HeldTooLong => "it was held for the longest time that `max_hold` allows",
            LostReason::Shutdown => "the lock manager was shut down",
            LostReason::Released => "its holder has released it",
        })
    }
}

/// By whom a lock is held, and for how long yet; or for whom it is kept.
struct By<'a>(&'a str, Duration);

impl fmt::Display for By<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            waiting if waiting.ends_with(", which waits for it") => write!(f, "kept for {}", Printable(waiting)),
            "" => write!(f, "held by somebody who is gone by now for another {}", Brief(self.1)),
            holder => write!(f, "held by {} for another {}", Printable(holder), Brief(self.1)),
        }
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
}
