use std::time::Duration;

use crate::backend::Kind;
use crate::{Backoff, LockError};

/// What is asked of one lock. What is not set comes from the manager.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    ttl: Option<Duration>,
    retry: Option<u32>,
    backoff: Option<Backoff>,
    wait: Option<Duration>,
    no_watchdog: bool,
    max_hold: Option<Duration>,
    on_lost: OnLost,
    fencing_token: bool,
    not_reentrant: bool,
    mode: Option<Mode>,
    permits: Option<u32>,
}

/// Who may hold a lock at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// One holder.
    #[default]
    Exclusive,
    /// Any number of readers, each with a lease of its own. While somebody waits or tries to write, new readers are held back.
    Read,
    /// One writer, and no reader. On the server this is the same as [`Mode::Exclusive`].
    Write,
}

/// What happens to the body when its lock is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLost {
    /// The body is stopped: its future is dropped where it awaits, and the call returns [`LockError::Lost`].
    #[default]
    Cancel,
    /// The body runs to its end and its result is returned. The loss is told by the log and by the lease.
    Finish,
}

impl Options {
    /// The shortest ttl. Below it, ordinary scheduling delays would end leases.
    pub const MIN_TTL: Duration = Duration::from_millis(100);
    /// The longest ttl. A crashed holder blocks everybody else for so long.
    pub const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);
    /// The longest time to stand in line.
    pub const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
    /// The most permits that one lock can have.
    pub const MAX_PERMITS: u32 = 10_000;

    /// Asks for nothing in particular.
    #[must_use]
    pub const fn new() -> Options {
        Options {
            ttl: None,
            retry: None,
            backoff: None,
            wait: None,
            no_watchdog: false,
            max_hold: None,
            on_lost: OnLost::Cancel,
            fencing_token: false,
            not_reentrant: false,
            mode: None,
            permits: None,
        }
    }

    /// Sets the length of the lease.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Options {
        self.ttl = Some(ttl);
        self
    }

    /// Sets how often the lock is tried again after the first attempt.
    #[must_use]
    pub const fn retry(mut self, retry: u32) -> Options {
        self.retry = Some(retry);
        self
    }

    /// Sets the pauses between the tries.
    #[must_use]
    pub const fn backoff(mut self, backoff: Backoff) -> Options {
        self.backoff = Some(backoff);
        self
    }

    /// Sets how long to stand in line for the lock, or to try for it again and again where there is no line.
    #[must_use]
    pub const fn wait(mut self, wait: Duration) -> Options {
        self.wait = Some(wait);
        self
    }

    /// Sets whether the lock brings a fencing token.
    #[must_use]
    pub const fn fencing_token(mut self, fencing_token: bool) -> Options {
        self.fencing_token = fencing_token;
        self
    }

    /// Sets whether a call inside of a body that holds the same lock passes under that.
    #[must_use]
    pub const fn reentrant(mut self, reentrant: bool) -> Options {
        self.not_reentrant = !reentrant;
        self
    }

    /// Sets whether the lease is renewed while the lock is held.
    #[must_use]
    pub const fn watchdog(mut self, watchdog: bool) -> Options {
        self.no_watchdog = !watchdog;
        self
    }

    /// Sets the time after which the lock is no longer renewed, and the body stopped.
    #[must_use]
    pub const fn max_hold(mut self, max_hold: Duration) -> Options {
        self.max_hold = Some(max_hold);
        self
    }

    /// Sets what happens to the body when the lock is lost.
    #[must_use]
    pub const fn on_lost(mut self, on_lost: OnLost) -> Options {
        self.on_lost = on_lost;
        self
    }

    /// Sets whether others may hold the lock at the same time.
    #[must_use]
    pub const fn mode(mut self, mode: Mode) -> Options {
        self.mode = Some(mode);
        self
    }

    /// Sets how many may hold the lock at the same time.
    #[must_use]
    pub const fn permits(mut self, permits: u32) -> Options {
        self.permits = Some(permits);
        self
    }

    /// What is to be refused where there are none but exclusive locks.
    pub(crate) fn beyond_exclusive(&self) -> Option<&'static str> {
        match (self.mode, self.permits) {
            (_, Some(_)) => Some("permits"),
            (Some(Mode::Read | Mode::Write), None) => Some("mode"),
            (Some(Mode::Exclusive) | None, None) => None,
        }
    }

    fn kind(&self) -> Result<Kind, LockError> {
        let invalid = |option, reason| Err(LockError::InvalidOption { option, reason });
        let kind = match (self.mode, self.permits) {
            (None, Some(permits)) if (1..=Options::MAX_PERMITS).contains(&permits) => Kind::Permits(permits),
            (None, Some(permits)) => {
                let reason = format!("{permits}; there must be from 1 to {}", Options::MAX_PERMITS);
                return invalid("permits", reason);
            }
            (Some(mode), Some(_)) => {
                let reason = format!("a lock has either permits or a mode, and here the mode is {mode:?}");
                return invalid("permits", reason);
            }
            (Some(Mode::Read), None) => Kind::Read,
            (Some(Mode::Write | Mode::Exclusive) | None, None) => Kind::Exclusive,
        };
        if self.fencing_token && kind.is_shared() {
            let reason =
                "asked for a lock that others may hold at the same time: a token tells later holders from earlier ones";
            return invalid("fencing_token", reason.to_owned());
        }
        Ok(kind)
    }

    pub(crate) fn resolve(&self, defaults: &Defaults) -> Result<Terms, LockError> {
        // A lock that sets its longest hold and no ttl means the former: the manager's ttl gives way.
        let ttl = self.ttl.unwrap_or_else(|| self.max_hold.map_or(defaults.ttl, |max_hold| defaults.ttl.min(max_hold)));
        check_ttl(ttl)?;
        if let Some(max_hold) = self.max_hold.filter(|max_hold| *max_hold < ttl) {
            let reason = format!("{max_hold:?}; it must not be below the ttl, which is {ttl:?}");
            return Err(LockError::InvalidOption { option: "max_hold", reason });
        }
        if let Some(wait) = self.wait.filter(|wait| *wait > Options::MAX_WAIT || wait.is_zero()) {
            let reason = format!("{wait:?}; it must be more than nothing and at most 24 h");
            return Err(LockError::InvalidOption { option: "wait", reason });
        }
        Ok(Terms {
            kind: self.kind()?,
            ttl,
            retry: self.retry.unwrap_or(defaults.retry),
            backoff: self.backoff.unwrap_or(defaults.backoff),
            wait: self.wait,
            wait_retry: self.retry,
            fencing_token: self.fencing_token,
            reentrant: !self.not_reentrant,
            watchdog: !self.no_watchdog,
            max_hold: self.max_hold,
            on_lost: self.on_lost,
            command_timeout: defaults.command_timeout.min(ttl / 3),
        })
    }
}

/// The manager's values for what a call does not set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    pub(crate) ttl: Duration,
    pub(crate) retry: u32,
    pub(crate) backoff: Backoff,
    pub(crate) command_timeout: Duration,
}

impl Defaults {
    pub(crate) fn check(&self) -> Result<(), LockError> {
        check_ttl(self.ttl)?;
        check_timeout("command_timeout", self.command_timeout)
    }
}

impl Default for Defaults {
    fn default() -> Defaults {
        Defaults {
            ttl: Duration::from_secs(30),
            retry: 0,
            backoff: Backoff::default(),
            command_timeout: Duration::from_secs(1),
        }
    }
}

/// What holds for one lock: every option has its value, and every value is within its limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) kind: Kind,
    pub(crate) ttl: Duration,
    pub(crate) retry: u32,
    pub(crate) backoff: Backoff,
    pub(crate) wait: Option<Duration>,
    /// The retries that the call itself asks for. The manager's default is for those who don't wait.
    pub(crate) wait_retry: Option<u32>,
    pub(crate) fencing_token: bool,
    pub(crate) reentrant: bool,
    pub(crate) watchdog: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) on_lost: OnLost,
    /// Never more than a third of the ttl, so that a lost answer leaves time for another try.
    pub(crate) command_timeout: Duration,
}

impl Terms {
    /// The terms of a call that will not be made.
    pub(crate) fn nothing() -> Terms {
        Terms {
            kind: Kind::Exclusive,
            ttl: Duration::ZERO,
            retry: 0,
            backoff: Backoff::default(),
            wait: None,
            wait_retry: None,
            fencing_token: false,
            reentrant: true,
            watchdog: false,
            max_hold: None,
            on_lost: OnLost::Cancel,
            command_timeout: Duration::ZERO,
        }
    }

    /// For how long to wait for another call of the same task, which is as long as for anybody else.
    pub(crate) fn patience_with_others(&self) -> Duration {
        match self.wait {
            Some(wait) => self.patience(wait),
            None => Terms { wait_retry: Some(self.retry), ..*self }.patience(Duration::MAX),
        }
    }

    /// For how long to stand in line: for as long as `wait` says, and as the tries would take that `retry` asks for.
    pub(crate) fn patience(&self, wait: Duration) -> Duration {
        let Some(retry) = self.wait_retry else { return wait };
        let mut pauses = self.backoff.pauses();
        // By then the pauses have long reached their longest.
        let single = retry.min(1_000);
        let sum = (0..single).map(|_| pauses.next(None)).fold(Duration::ZERO, Duration::saturating_add);
        wait.min(sum.saturating_add(pauses.next(None).saturating_mul(retry - single)))
    }
}

fn check_ttl(ttl: Duration) -> Result<(), LockError> {
    if (Options::MIN_TTL..=Options::MAX_TTL).contains(&ttl) {
        return Ok(());
    }
    Err(LockError::InvalidOption { option: "ttl", reason: format!("{ttl:?}; it must be from 100 ms to 24 h") })
}

pub(crate) fn check_timeout(option: &'static str, timeout: Duration) -> Result<(), LockError> {
    if (Duration::from_millis(1)..=Duration::from_secs(60 * 60)).contains(&timeout) {
        return Ok(());
    }
    Err(LockError::InvalidOption { option, reason: format!("{timeout:?}; it must be from 1 ms to 1 h") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ttl_of(ttl: Duration) -> Result<Terms, LockError> {
        Options::new().ttl(ttl).resolve(&Defaults::default())
    }

    #[test]
    fn a_ttl_has_from_100_ms_to_24_h() {
        for bad in [Duration::ZERO, Duration::from_micros(500), Duration::from_millis(99), Duration::MAX] {
            let error = ttl_of(bad).unwrap_err().to_string();
            assert!(error.contains("`ttl`") && error.contains("from 100 ms to 24 h"), "{error}");
        }
        assert!(ttl_of(Duration::from_millis(100)).is_ok());
        assert!(ttl_of(Duration::from_secs(86_400)).is_ok());
        assert!(ttl_of(Duration::from_millis(86_400_001)).is_err());
    }

    #[test]
    fn a_command_may_take_a_third_of_the_ttl_at_most() {
        assert_eq!(ttl_of(Duration::from_millis(300)).unwrap().command_timeout, Duration::from_millis(100));
        assert_eq!(ttl_of(Duration::from_secs(60)).unwrap().command_timeout, Duration::from_secs(1));
    }

    #[test]
    fn max_hold_is_not_below_the_ttl() {
        let options = Options::new().ttl(Duration::from_secs(2)).max_hold(Duration::from_secs(1));
        assert!(options.resolve(&Defaults::default()).unwrap_err().to_string().contains("`max_hold`"));
        let terms = Options::new().max_hold(Duration::from_secs(1)).resolve(&Defaults::default()).unwrap();
        assert_eq!(terms.ttl, Duration::from_secs(1), "the manager's ttl gives way");
    }
}
