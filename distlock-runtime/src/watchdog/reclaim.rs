use std::sync::Arc;
use std::time::Duration;

use crate::backend::{BackendError, Released, Route};
use crate::clock::Time;
use crate::hold::Hold;

/// A key that has to be freed, if our token stands under it.
pub(super) struct Reclaim {
    pub(super) hold: Arc<Hold>,
    /// The way that an attempt of unknown outcome was sent. A release that is queued behind it can't miss.
    pub(super) route: Option<Arc<dyn Route>>,
    /// Whether a request may still be under way that would set the key.
    stray: bool,
    /// After this the server frees the key by itself.
    until: Time,
    /// How many answers in a row were of the last one's kind.
    streak: Streak,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Streak {
    Unanswered(u32),
    NotHeld(u32),
}

impl Reclaim {
    /// For a lock that was held: once the server answers, the key is free.
    pub(super) fn held(hold: Arc<Hold>) -> Reclaim {
        Reclaim::new(hold, None, false)
    }

    /// For attempts whose outcome is unknown. That the key is not there yet proves nothing, unless the answer came along
    /// the `route` that the attempts took.
    pub(super) fn stray(hold: Arc<Hold>, route: Option<Arc<dyn Route>>) -> Reclaim {
        Reclaim::new(hold, route, true)
    }

    fn new(hold: Arc<Hold>, route: Option<Arc<dyn Route>>, stray: bool) -> Reclaim {
        let until = Time::now().saturating_add(hold.terms.ttl);
        Reclaim { hold, route, stray, until, streak: Streak::Unanswered(0) }
    }

    /// Takes in an answer, known at `now`, and says what follows. It came `by_route` if it proves that nothing which was
    /// sent that way is still to come.
    pub(super) fn answered(&mut self, answer: Result<Released, &BackendError>, by_route: bool, now: Time) -> Next {
        // A way that is cut stays cut, and one that is stuck is not the only one.
        self.route = None;
        self.streak = match (answer, self.streak) {
            (Ok(Released::Freed), _) => return Next::Done,
            (Ok(Released::NotHeld), _) if by_route || !self.stray => return Next::Done,
            (Ok(Released::NotHeld), Streak::NotHeld(n)) => Streak::NotHeld(n.saturating_add(1)),
            (Ok(Released::NotHeld), Streak::Unanswered(_)) => Streak::NotHeld(0),
            (Err(_), Streak::Unanswered(n)) => Streak::Unanswered(n.saturating_add(1)),
            (Err(_), Streak::NotHeld(_)) => Streak::Unanswered(0),
        };
        let at = now.saturating_add(self.streak.pause(self.hold.terms.ttl));
        if at > self.until { Next::GivenUp } else { Next::At(at) }
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
