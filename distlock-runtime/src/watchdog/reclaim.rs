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

    /// Takes in an answer, known at `now`, and says what follows.
    pub(super) fn answered(&mut self, answer: Result<Released, &BackendError>, now: Time) -> Next {
        let longest = match answer {
            Ok(Released::Freed) => return Next::Done,
            Ok(Released::NotHeld) if self.route.is_some() || !self.stray => return Next::Done,
            Ok(Released::NotHeld) => {
                self.streak = match self.streak {
                    Streak::NotHeld(n) => Streak::NotHeld(n.saturating_add(1)),
                    Streak::Unanswered(_) => Streak::NotHeld(0),
                };
                // The longer nothing has come, the less likely something is still to come.
                self.hold.terms.ttl / 4
            }
            Err(error) => {
                let again = matches!(self.streak, Streak::Unanswered(n) if n > 0);
                // A way that is cut stays cut, and one that is stuck is not the only one.
                if again || !error.is_unanswered() {
                    self.route = None;
                }
                self.streak = match self.streak {
                    Streak::Unanswered(n) => Streak::Unanswered(n.saturating_add(1)),
                    Streak::NotHeld(_) => Streak::Unanswered(1),
                };
                Duration::from_millis(500)
            }
        };
        let at = now.saturating_add(self.streak.pause().min(longest));
        if at > self.until { Next::GivenUp } else { Next::At(at) }
    }
}

impl Streak {
    fn pause(self) -> Duration {
        let (Streak::Unanswered(n) | Streak::NotHeld(n)) = self;
        Duration::from_millis(50).saturating_mul(2_u32.saturating_pow(n))
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
