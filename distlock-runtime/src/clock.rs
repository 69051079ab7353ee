use std::time::Duration;

/// A point on a monotonic clock that goes on while the machine is suspended.
///
/// Redis counts a lease down while our machine sleeps, so a clock that stops with it (as `CLOCK_MONOTONIC` and
/// `std::time::Instant` do on Linux) would believe in a lease that has long ended. Wall clocks are never asked: they
/// are stepped by NTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(u64);

impl Time {
    pub(crate) const FAR_FUTURE: Time = Time(u64::MAX);

    pub(crate) const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    #[cfg(unix)]
    pub(crate) fn now() -> Time {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
        // Apple's monotonic clock goes on during sleep; the BSDs offer nothing better.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

        let now = rustix::time::clock_gettime(CLOCK);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        Time(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    #[cfg(not(unix))]
    pub(crate) fn now() -> Time {
        use std::sync::LazyLock;
        use std::time::Instant;

        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        // The offset keeps times clear of the small numbers that `Hold` uses as marks.
        Time(1_000_000_000).saturating_add(START.elapsed())
    }

    pub(crate) fn saturating_add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(nanos(duration)))
    }

    pub(crate) fn saturating_sub(self, duration: Duration) -> Time {
        Time(self.0.saturating_sub(nanos(duration)))
    }

    /// The time from `earlier` until `self`, or zero if `earlier` is the later one.
    pub(crate) fn saturating_since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_back() {
        let mut last = Time::now();
        for _ in 0..10_000 {
            let now = Time::now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn arithmetic_saturates_in_place_of_wrapping() {
        let late = Time::from_nanos(u64::MAX - 1);
        assert_eq!(late.saturating_add(Duration::MAX), Time::FAR_FUTURE);
        assert_eq!(Time::from_nanos(5).saturating_sub(Duration::MAX), Time::from_nanos(0));
        assert_eq!(Time::from_nanos(5).saturating_since(late), Duration::ZERO);
    }
}
