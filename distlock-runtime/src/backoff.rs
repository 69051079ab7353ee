use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use crate::LockError;

/// The pauses between the tries for a lock: doubling from the first to the longest, each with a little random time on
/// top, so that callers who started together do not go on together.
///
/// The random part ("jitter") is up to 50 ms, or up to the first pause if that is shorter. A pause never outlasts what
/// is left of the holder's lease by more than that part.
///
/// The default is 50 ms doubling to 800 ms.
///
/// # Examples
///
/// ```
/// use distlock::Backoff;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), distlock::LockError> {
/// let backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1))?;
/// assert_ne!(backoff, Backoff::default());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// The shortest first pause. Less would be a busy loop against the server.
    pub const MIN: Duration = Duration::from_millis(1);
    /// The longest pause.
    pub const MAX: Duration = Duration::from_secs(24 * 60 * 60);

    const MAX_JITTER: Duration = Duration::from_millis(50);

    /// Makes a backoff that starts at `first` and doubles until it has reached `longest`.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] unless [`MIN`](Self::MIN) <= `first` <= `longest` <= [`MAX`](Self::MAX).
    pub fn new(first: Duration, longest: Duration) -> Result<Backoff, LockError> {
        if Backoff::MIN <= first && first <= longest && longest <= Backoff::MAX {
            return Ok(Backoff { first, longest });
        }
        Err(LockError::InvalidOption {
            option: "backoff",
            reason: format!(
                "from {first:?} to {longest:?}; the first pause is at least 1 ms, the longest at most 24 h and not \
                 below the first"
            ),
        })
    }

    /// For pairs that the attribute has already checked; the bounds hold for any others, too.
    #[doc(hidden)]
    #[must_use]
    pub const fn from_millis(first: u64, longest: u64) -> Backoff {
        const MAX: u64 = 24 * 60 * 60 * 1_000;
        let first = if first < 1 {
            1
        } else if first > MAX {
            MAX
        } else {
            first
        };
        let longest = if longest < first {
            first
        } else if longest > MAX {
            MAX
        } else {
            longest
        };
        Backoff { first: Duration::from_millis(first), longest: Duration::from_millis(longest) }
    }

    /// How long a pause may be, with the random part.
    pub(crate) fn longest_pause(&self) -> Duration {
        self.longest.saturating_add(self.jitter())
    }

    fn jitter(&self) -> Duration {
        self.first.min(Backoff::MAX_JITTER)
    }

    pub(crate) fn pauses(&self) -> Pauses {
        let base = ExponentialBuilder::new()
            .with_factor(2.0)
            .with_min_delay(self.first)
            .with_max_delay(self.longest)
            .without_max_times()
            .build();
        Pauses { base, longest: self.longest, jitter: self.jitter(), random: fastrand::Rng::new() }
    }
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff::from_millis(50, 800)
    }
}

/// The pauses of one call, without end.
pub(crate) struct Pauses {
    base: ExponentialBackoff,
    longest: Duration,
    jitter: Duration,
    random: fastrand::Rng,
}

impl Pauses {
    /// The next pause, where the holder's lease is known to last for `remaining`.
    pub(crate) fn next(&mut self, remaining: Option<Duration>) -> Duration {
        let pause = self.base.next().unwrap_or(self.longest);
        let pause = remaining.map_or(pause, |remaining| pause.min(remaining));
        pause + self.jitter.mul_f64(self.random.f64())
    }

    /// The random part alone, of another draw.
    pub(crate) fn jitter(&self) -> Duration {
        self.jitter.mul_f64(fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_double_to_the_longest_and_stay_there() {
        let mut pauses = Backoff::from_millis(50, 800).pauses();
        for expected in [50, 100, 200, 400, 800, 800, 800] {
            let pause = pauses.next(None);
            // The schedule counts in single-precision seconds, hence the microsecond.
            let low = pause + Duration::from_micros(1);
            assert!(low >= expected * MS && pause <= (expected + 51) * MS, "{pause:?} where {expected} ms was due");
        }
    }

    #[test]
    fn a_million_attempts_stay_within_the_bounds() {
        for (first, longest) in [(1, 1), (1, 86_400_000), (86_400_000, 86_400_000), (1_000, 1_500)] {
            let mut pauses = Backoff::from_millis(first, longest).pauses();
            for _ in 0..1_000_000 {
                let pause = pauses.next(None);
                assert!(!pause.is_zero());
                assert!(pause <= Duration::from_millis(longest) + 50 * MS + Duration::from_secs(1), "{pause:?}");
            }
        }
    }

    #[test]
    fn a_pause_outlasts_the_holders_lease_by_no_more_than_the_jitter() {
        let mut pauses = Backoff::from_millis(400, 800).pauses();
        for _ in 0..100 {
            assert!(pauses.next(Some(30 * MS)) <= 80 * MS);
        }
    }

    #[test]
    fn callers_that_start_together_do_not_go_on_together() {
        let first = |_| Backoff::default().pauses().next(None).as_micros();
        let distinct: std::collections::HashSet<_> = (0..100).map(first).collect();
        assert!(distinct.len() > 90, "only {} different pauses among 100 callers", distinct.len());
    }

    #[test]
    fn bounds_that_make_no_sense_are_refused() {
        for (first, longest) in [(0, 5), (10, 5), (1, 86_400_001)] {
            let error = Backoff::new(first * MS, longest * MS).unwrap_err();
            assert!(matches!(error, LockError::InvalidOption { option: "backoff", .. }), "{error}");
        }
        assert!(Backoff::new(Duration::MAX, Duration::MAX).is_err());
    }
}
