use std::sync::Arc;
use std::time::Duration;

use crate::backend::{BackendError, Released, Route};
use crate::clock::Time;
use crate::hold::Hold;

/// For how long a request that had no answer is thought to be still under way, counted from when the server answers again.
const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// A key that has to be freed, if our token stands under it.
pub(super) struct Reclaim {
    pub(super) hold: Arc<Hold>,
    /// The way that requests of unknown outcome were sent. A release that is queued behind them can't miss.
    pub(super) route: Option<Arc<dyn Route>>,
    /// How many requests may still be under way that would set the key.
    strays: u32,
    /// After this the server frees the key by itself.
    expired: Time,
    /// Until when strays are looked for where the server says that the key is not there.
    until: Time,
    streak: Streak,
}

/// How many answers in a row were of the last one's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Streak {
    Unanswered(u32),
    NotHeld(u32),
}

impl Reclaim {
    /// For a lock that was held: once the server answers, the key is free. Of several servers, some may not have answered
    /// before.
    pub(super) fn held(hold: Arc<Hold>) -> Reclaim {
        let strays = u32::from(hold.traces().is_some());
        Reclaim::new(hold, None, strays)
    }

    /// For so many requests of unknown outcome. That the key is not there yet proves nothing, unless the answer came along
    /// the `route` that they took.
    pub(super) fn stray(hold: Arc<Hold>, route: Option<Arc<dyn Route>>, requests: u32) -> Reclaim {
        Reclaim::new(hold, route, requests)
    }

    fn new(hold: Arc<Hold>, route: Option<Arc<dyn Route>>, strays: u32) -> Reclaim {
        let expired = Time::now().saturating_add(hold.terms.ttl);
        Reclaim { hold, route, strays, expired, until: expired, streak: Streak::Unanswered(0) }
    }

    /// Whether the key may be there now, as far as is known, and not only come to be there.
    pub(super) fn is_urgent(&self) -> bool {
        matches!(self.streak, Streak::Unanswered(_))
    }

    /// Takes in an answer, known at `now`, and says what follows. It came `by_route` if it proves that nothing which was
    /// sent that way is still to come.
    pub(super) fn answered(&mut self, answer: Result<Released, &BackendError>, by_route: bool, now: Time) -> Next {
        // A way that is cut stays cut, and one that is stuck is not the only one.
        self.route = None;
        self.streak = match (answer, self.streak) {
            (Ok(_), _) if by_route || self.strays == 0 => return Next::Done,
            _ if self.hold.is_swept() => return Next::Done,
            (Ok(Released::Freed), _) if self.strays == 1 => return Next::Done,
            (Ok(Released::Freed), _) => {
                self.strays -= 1;
                self.met(now)
            }
            // That a place was given up says nothing of a request that is still to come.
            (Ok(Released::Left | Released::NotHeld), Streak::NotHeld(n)) => Streak::NotHeld(n.saturating_add(1)),
            (Ok(Released::Left | Released::NotHeld), Streak::Unanswered(_)) => self.met(now),
            (Err(_), Streak::Unanswered(n)) => Streak::Unanswered(n.saturating_add(1)),
            (Err(_), Streak::NotHeld(_)) => Streak::Unanswered(0),
        };
        let at = now.saturating_add(self.streak.pause(self.hold.terms.ttl));
        let until = if self.is_urgent() { self.expired } else { self.until };
        if at > until { Next::GivenUp } else { Next::At(at) }
    }

    /// The server answers, from now on.
    fn met(&mut self, now: Time) -> Streak {
        self.until = self.expired.min(now.saturating_add(LONGEST_DELAY));
        Streak::NotHeld(0)
    }
}

impl Streak {
    fn pause(self, ttl: Duration) -> Duration {
        let (times, longest) = match self {
            Streak::Unanswered(times) => (times, Duration::from_millis(500)),
            // The longer nothing has come, the less likely something is still to come.
            Streak::NotHeld(times) => (times, ttl / 4),
        };
        Duration::from_millis(50).saturating_mul(2_u32.saturating_pow(times)).min(longest)
    }
}

/// What follows on an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Done,
    At(Time),
    /// The key expires by itself before another try would be due.
    GivenUp,
}
