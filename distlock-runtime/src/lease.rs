//! The arithmetic of a lease, without a clock and without I/O.
//!
//! A lease counts from before the request that set it was sent, since the server may have set it at any time from then
//! on. So the holder's deadline lies before the server's, by at least the drift.

use std::time::Duration;

use crate::LostReason;
use crate::clock::Time;
use crate::options::Terms;

/// The time by which a lease, set or extended by a request that was sent at `sent`, has to be given up.
///
/// The drift allows for clocks of different speed, by the rule of the Redlock description
/// (<https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>): a hundredth of the ttl and 2 ms.
pub(crate) fn deadline(sent: Time, ttl: Duration) -> Time {
    let drift = (ttl / 100).saturating_add(Duration::from_millis(2));
    sent.saturating_add(ttl.saturating_sub(drift))
}

/// The longest head start that a renewal may have.
const MAX_HEAD_START: Duration = Duration::from_millis(500);

/// What the server said to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The lease was extended.
    Extended,
    /// The server no longer has our token.
    Lost,
    /// Nothing that could be relied on: no answer, or one that says nothing about the lock.
    Unknown,
}

/// What has to be done next for a lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    Renew,
    GiveUp(LostReason),
}

/// How far a held lock has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    acquired: Time,
    deadline: Time,
    /// `None` while a renewal is on its way, and where nothing is renewed.
    renewal: Option<Time>,
}

impl Progress {
    /// Starts with a grant that was asked for at `sent`. `spread` is a random number from 0 to 1: locks that were taken
    /// together are renewed apart.
    pub(crate) fn start(sent: Time, terms: &Terms, spread: f64) -> Progress {
        let period = period(terms);
        let first = sent.saturating_add(period / 2).saturating_add((period / 2).mul_f64(spread));
        Progress { acquired: sent, deadline: deadline(sent, terms.ttl), renewal: terms.watchdog.then_some(first) }
    }

    /// Goes on for another holder of this process, from `now` on. A renewal that was on its way answers to the earlier
    /// one, so another one is due.
    pub(crate) fn passed_on(self, now: Time, terms: &Terms) -> Progress {
        let renewal = terms.watchdog.then(|| self.renewal.unwrap_or(now));
        Progress { acquired: now, deadline: self.deadline, renewal }
    }

    /// By when the lease has to be given up.
    pub(crate) fn end(&self, terms: &Terms) -> Time {
        self.ending(terms).0
    }

    /// When there is something to do next.
    pub(crate) fn next(&self, terms: &Terms) -> Time {
        let end = self.end(terms);
        self.renewal.map_or(end, |renewal| renewal.min(end))
    }

    /// What there is to do at `now`. Renewals may be early by a head start, and are never sent for a lease that is over.
    pub(crate) fn duty(&self, now: Time, terms: &Terms) -> Option<Duty> {
        let (end, reason) = self.ending(terms);
        if end <= now {
            return Some(Duty::GiveUp(reason));
        }
        let soon = now.saturating_add(head_start(terms));
        self.renewal.filter(|renewal| *renewal <= soon).map(|_| Duty::Renew)
    }

    fn ending(&self, terms: &Terms) -> (Time, LostReason) {
        let longest = terms.max_hold.map(|max_hold| self.acquired.saturating_add(max_hold));
        match longest {
            Some(longest) if longest < self.deadline => (longest, LostReason::HeldTooLong),
            _ => (self.deadline, LostReason::Expired),
        }
    }

    /// When the next renewal is due, if one is.
    pub(crate) fn renewal(&self) -> Option<Time> {
        self.renewal
    }

    /// A renewal is on its way.
    pub(crate) fn sent(&mut self) {
        self.renewal = None;
    }

    /// Takes in the answer, known at `now`, to the renewal that was sent at `sent`.
    pub(crate) fn answered(&mut self, answer: Answer, sent: Time, now: Time, terms: &Terms, spread: f64) {
        match answer {
            Answer::Extended => {
                self.deadline = self.deadline.max(deadline(sent, terms.ttl));
                self.renewal = Some(sent.saturating_add(period(terms)));
            }
            Answer::Unknown => self.renewal = Some(now.saturating_add(pause(terms, spread))),
            Answer::Lost => {}
        }
    }
}

/// How far ahead of its time a renewal is sent, at most, along with another one that is due. It turns thousands of single
/// commands into a few batches.
pub(crate) fn head_start(terms: &Terms) -> Duration {
    (period(terms) / 16).min(MAX_HEAD_START)
}

fn period(terms: &Terms) -> Duration {
    terms.ttl / 3
}

/// The pause after a renewal that had no answer: a thirtieth of the ttl, within bounds that spare a sick server and still
/// leave time for several tries, and as much again at random.
fn pause(terms: &Terms, spread: f64) -> Duration {
    let base = (terms.ttl / 30).clamp(Duration::from_millis(5), Duration::from_millis(250));
    base + base.mul_f64(spread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Defaults, Options};

    const SENT: Time = Time::from_nanos(1_000_000_000_000);

    fn terms(options: Options) -> Terms {
        options.ttl(Duration::from_secs(3)).resolve(&Defaults::default()).unwrap()
    }

    fn after(millis: u64) -> Time {
        SENT.saturating_add(Duration::from_millis(millis))
    }

    #[test]
    fn the_deadline_lies_before_the_servers_by_the_drift() {
        let table = [(100, 97), (3_000, 2_968), (30_000, 29_698), (86_400_000, 85_535_998)];
        for (ttl, expected) in table {
            assert_eq!(deadline(SENT, Duration::from_millis(ttl)), after(expected), "ttl {ttl} ms");
        }
        assert_eq!(deadline(SENT, Duration::ZERO), SENT, "a lease that can't be is over at once");
    }

    #[test]
    fn first_renewals_are_spread_over_half_a_period() {
        let terms = terms(Options::new());
        for (spread, expected) in [(0.0, 500), (0.5, 750), (1.0, 1_000)] {
            let progress = Progress::start(SENT, &terms, spread);
            assert_eq!(progress.next(&terms), after(expected));
            assert_eq!(progress.duty(after(expected), &terms), Some(Duty::Renew));
            assert_eq!(progress.duty(after(expected - 62), &terms), Some(Duty::Renew), "the head start is a sixteenth");
            assert_eq!(progress.duty(after(expected - 63), &terms), None);
        }
    }

    #[test]
    fn an_extension_counts_from_the_request_and_never_shortens() {
        let terms = terms(Options::new());
        let mut progress = Progress::start(SENT, &terms, 1.0);
        progress.sent();
        progress.answered(Answer::Extended, after(1_000), after(1_900), &terms, 0.0);
        assert_eq!(progress.end(&terms), after(3_968));
        assert_eq!(progress.next(&terms), after(2_000));
        progress.answered(Answer::Extended, after(500), after(2_000), &terms, 0.0);
        assert_eq!(progress.end(&terms), after(3_968));
    }

    #[test]
    fn an_unknown_answer_is_no_loss_and_is_tried_again_until_the_deadline() {
        let terms = terms(Options::new());
        let mut progress = Progress::start(SENT, &terms, 1.0);
        progress.sent();
        assert_eq!(progress.next(&terms), after(2_968));
        progress.answered(Answer::Unknown, after(1_000), after(2_000), &terms, 0.0);
        assert_eq!(progress.next(&terms), after(2_100));
        assert_eq!(progress.duty(after(2_100), &terms), Some(Duty::Renew));
        progress.answered(Answer::Unknown, after(2_100), after(2_950), &terms, 0.0);
        assert_eq!(progress.next(&terms), after(2_968));
        assert_eq!(progress.duty(after(2_968), &terms), Some(Duty::GiveUp(LostReason::Expired)));
    }

    #[test]
    fn a_renewal_that_is_due_is_not_sent_for_a_lease_that_is_over() {
        let terms = terms(Options::new());
        let progress = Progress::start(SENT, &terms, 1.0);
        assert_eq!(progress.duty(after(5_000), &terms), Some(Duty::GiveUp(LostReason::Expired)));
    }

    #[test]
    fn without_the_watchdog_only_the_deadline_is_left() {
        let terms = terms(Options::new().watchdog(false));
        let progress = Progress::start(SENT, &terms, 0.5);
        assert_eq!(progress.next(&terms), after(2_968));
        assert_eq!(progress.duty(after(2_967), &terms), None);
    }

    #[test]
    fn max_hold_ends_a_lease_that_is_renewed() {
        let terms = terms(Options::new().max_hold(Duration::from_secs(4)));
        let mut progress = Progress::start(SENT, &terms, 1.0);
        progress.answered(Answer::Extended, after(3_500), after(3_500), &terms, 0.0);
        assert_eq!(progress.next(&terms), after(4_000));
        assert_eq!(progress.duty(after(4_000), &terms), Some(Duty::GiveUp(LostReason::HeldTooLong)));
    }
}
