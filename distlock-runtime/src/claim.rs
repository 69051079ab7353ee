use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Acquired, Attempt, BackendError, Entry, Fencing, Route, Turn};
use crate::clock::Time;
use crate::hold::Hold;
use crate::line::{Competitor, Seat};
use crate::manager::Core;
use crate::planted::{self, Planted};
use crate::{FencingToken, LockError, events, lease};

/// A call's claim to a lock: its attempts so far. If it is dropped before a grant, what it may have left is freed.
pub(crate) struct Claim<'a> {
    core: &'a Arc<Core>,
    hold: Arc<Hold>,
    pub(crate) started: Time,
    /// When the last request was sent.
    sent: Time,
    in_flight: bool,
    strays: Strays,
    /// Whether a request met a connection at its end, and was repeated.
    interrupted: bool,
    /// The right to stand in the line for the callers of this process.
    seat: Option<Seat>,
    /// Whether there may be a place in the line.
    queued: bool,
    /// Beside which reader to join those who have a share.
    pub(crate) beside: Option<Arc<str>>,
}

/// Requests that had no answer, and so may have set the key or may set it yet.
#[derive(Clone, Default)]
pub(crate) struct Strays {
    pub(crate) requests: u32,
    /// The ways that they took, as far as is known.
    pub(crate) routes: Vec<Arc<dyn Route>>,
}

/// How to ask for a lock.
#[derive(Clone, Copy)]
pub(crate) enum Ask {
    Try(Attempt),
    /// By a place in the line, and with so many fencing tokens, if any.
    Wait {
        tokens: u32,
    },
}

/// A lock that was granted.
pub(crate) struct Grant {
    pub(crate) strays: Strays,
    /// Whether others stand in the line.
    pub(crate) others: bool,
}

impl<'a> Claim<'a> {
    pub(crate) fn new(core: &'a Arc<Core>, hold: Arc<Hold>) -> Claim<'a> {
        Claim {
            core,
            hold,
            started: Time::FAR_FUTURE,
            sent: Time::FAR_FUTURE,
            in_flight: false,
            strays: Strays::default(),
            interrupted: false,
            seat: None,
            queued: false,
            beside: None,
        }
    }

    /// The same for a caller that stands in the line, where it may have inherited a place.
    pub(crate) fn with_seat(mut self, seat: Option<Seat>, queued: bool) -> Claim<'a> {
        self.seat = seat;
        self.queued = queued;
        self
    }

    /// Takes the seat on, once there is nothing left to claim.
    pub(crate) fn into_seat(mut self) -> Option<Seat> {
        self.seat.take()
    }

    pub(crate) fn has_seat(&self) -> bool {
        self.seat.is_some()
    }

    /// Whether nothing can be left of earlier requests.
    pub(crate) fn is_clean(&self) -> bool {
        self.strays.requests == 0 && !self.in_flight
    }

    pub(crate) fn core(&self) -> &'a Arc<Core> {
        self.core
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// Gets ready for the next attempt. Where a value that failed must not be used again, that is one of its own, and what
    /// the earlier one may have left is freed at once.
    ///
    /// Returns for how long to wait on top of any pause: a random part of what the attempt took. Contenders that split the
    /// votes of several servers would otherwise do so again, the likelier the farther these are.
    pub(crate) fn go_on(&mut self) -> Duration {
        if self.core.backend().reuses_values() {
            return Duration::ZERO;
        }
        self.free_strays();
        self.hold = Arc::new(self.hold.afresh());
        Time::now().saturating_since(self.sent).mul_f64(fastrand::f64())
    }

    /// Has freed what requests without an answer may have set. Says whether there were any.
    fn free_strays(&mut self) -> bool {
        let mut strays = std::mem::take(&mut self.strays);
        strays.requests = strays.requests.saturating_add(u32::from(std::mem::take(&mut self.in_flight)));
        let any = strays.requests > 0;
        if any {
            // What may still come must be freed at once, and by nobody who waits for it: that could be never.
            self.hold.may_have_mark();
            self.core.watchdog().free_strays(&self.hold, strays);
        }
        any
    }

    pub(crate) async fn attempt(&mut self, ask: Ask) -> Result<Grant, Refusal> {
        match self.request(ask).await {
            // An idle connection may have been closed by the server, or by something on the way to it. That is no failed
            // attempt, so the caller is not troubled with it.
            Err(Refusal::Failed(error)) if error.is_interrupted() && !self.interrupted => {
                self.interrupted = true;
                self.go_on();
                self.request(ask.again()).await
            }
            answer => answer,
        }
    }

    async fn request(&mut self, ask: Ask) -> Result<Grant, Refusal> {
        self.in_flight = true;
        let mut route = RouteNote::of(&mut self.strays);
        let sent = Time::now();
        self.started = self.started.min(sent);
        self.sent = sent;
        let answer = ask.send(self.core, &self.hold, self.beside.as_deref(), &mut route.route).await;
        self.in_flight = false;
        let waits = matches!((ask, &answer), (Ask::Wait { .. }, Ok(Turn::Waits { .. })));
        self.queued |= waits && self.core.backend().reuses_values();
        match answer {
            Ok(Turn::Come { fencing_token, others }) => {
                let granted = self.core.accept(&self.hold, sent, fencing_token);
                if granted.is_ok() {
                    route.forget();
                    self.queued = false;
                    return Ok(Grant { strays: std::mem::take(&mut self.strays), others });
                }
                // The next try recognises our token and starts the expiry anew; without one the key is freed.
                drop(route);
                self.strays.requests = self.strays.requests.saturating_add(1);
                Err(granted.err().unwrap_or(Refusal::Late))
            }
            Ok(Turn::Waits { value, remaining, first }) => {
                route.forget();
                Err(Refusal::Held { holder: owner(&value), remaining, first })
            }
            Err(error) => {
                if error.is_unanswered() {
                    drop(route);
                    self.strays.requests = self.strays.requests.saturating_add(1);
                } else {
                    route.forget();
                }
                Err(Refusal::Failed(error))
            }
        }
    }
}

impl Ask {
    /// The same, where an earlier request may have been carried out.
    fn again(self) -> Ask {
        match self {
            Ask::Try(_) => Ask::Try(Attempt::Repeated),
            wait @ Ask::Wait { .. } => wait,
        }
    }

    async fn send(
        self,
        core: &Core,
        hold: &Arc<Hold>,
        beside: Option<&str>,
        route: &mut Option<Arc<dyn Route>>,
    ) -> Result<Turn, BackendError> {
        let mut entry = hold.entry();
        let tokens = if let Ask::Wait { tokens } = self { tokens } else { u32::from(hold.terms.fencing_token) };
        if tokens > 0 {
            entry = entry.with_fencing(Fencing::new(tokens, core.highest_fence()));
        }
        if let Ask::Try(_) = self {
            entry = Entry { returning: hold.next_try_within(), beside, ..entry };
        }
        match self {
            Ask::Wait { .. } => core.backend().wait(entry, route).await,
            Ask::Try(attempt) => Ok(match core.backend().acquire(entry, attempt, route).await? {
                Acquired::Granted(fencing_token) => Turn::Come { fencing_token, others: false },
                Acquired::Held { value, remaining } => Turn::Waits { value, remaining, first: false },
            }),
        }
    }
}

impl Core {
    /// Takes a grant that was asked for at `sent` for what it is, and puts it under watch.
    pub(crate) fn accept(
        &self,
        hold: &Arc<Hold>,
        sent: Time,
        fencing_token: Option<FencingToken>,
    ) -> Result<(), Refusal> {
        let sent = if planted::is(Planted::LeaseFromReply) { Time::now() } else { sent };
        if Time::now() >= lease::deadline(sent, hold.terms.ttl) {
            return Err(Refusal::Late);
        }
        match fencing_token {
            Some(token) => {
                hold.set_fence(token);
                self.note_fence(token);
            }
            None if hold.terms.fencing_token => {
                return Err(Refusal::Failed(BackendError::lasting("the backend has no fencing tokens")));
            }
            None => {}
        }
        self.watchdog().watch(hold, sent);
        Ok(())
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let waits = self.queued || (self.hold.is_marked() && !self.hold.was_granted());
        if !self.free_strays() && waits {
            let left = self.core.watchdog().leave(&self.hold);
            // Whoever waits here behind us takes our place, rather than one at the end.
            if let Some(seat) = self.seat.take() {
                seat.leave(Competitor::Waiting(left));
            }
        }
    }
}

impl Strays {
    /// Each way keeps a connection open, so only the latest are kept.
    const MOST_ROUTES: usize = 4;

    fn keep(&mut self, route: Arc<dyn Route>) {
        self.routes.retain(|known| !std::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(&route)));
        if self.routes.len() >= Strays::MOST_ROUTES {
            self.routes.remove(0);
        }
        self.routes.push(route);
    }

    pub(crate) fn add(&mut self, more: Strays) {
        self.requests = self.requests.saturating_add(more.requests);
        more.routes.into_iter().for_each(|route| self.keep(route));
    }
}

/// The way that the backend notes for the attempt under way. It is kept with the strays unless it is known not to matter.
pub(crate) struct RouteNote<'a> {
    strays: &'a mut Strays,
    pub(crate) route: Option<Arc<dyn Route>>,
}

impl RouteNote<'_> {
    pub(crate) fn of(strays: &mut Strays) -> RouteNote<'_> {
        RouteNote { strays, route: None }
    }

    pub(crate) fn forget(mut self) {
        self.route = None;
    }
}

impl Drop for RouteNote<'_> {
    fn drop(&mut self) {
        if let Some(route) = self.route.take() {
            self.strays.keep(route);
        }
    }
}

/// Why an attempt did not bring the lock.
pub(crate) enum Refusal {
    /// With whether nobody who is alive stands in the line before us.
    Held {
        holder: String,
        remaining: Duration,
        first: bool,
    },
    Late,
    Failed(BackendError),
}

impl Refusal {
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self, Refusal::Failed(error) if !error.is_passing())
    }

    pub(crate) fn remaining(&self) -> Option<Duration> {
        match self {
            Refusal::Held { remaining, .. } => Some(*remaining),
            Refusal::Late | Refusal::Failed(_) => None,
        }
    }

    pub(crate) fn report(&self, hold: &Hold, last: bool) {
        match self {
            Refusal::Held { holder, remaining, .. } => events::refused(hold, holder, *remaining, last),
            Refusal::Late => events::late_grant(hold),
            Refusal::Failed(error) => events::failed(hold, error),
        }
    }

    pub(crate) fn into_error(self, hold: &Hold, waited: Duration) -> LockError {
        let key = hold.key.to_string();
        // Who waited behind another caller of this process has not asked by itself.
        let attempts = u32::try_from(hold.attempt()).unwrap_or(u32::MAX).max(1);
        let source = match self {
            Refusal::Held { holder, remaining, .. } => {
                return LockError::Busy { key, holder, remaining, attempts, waited };
            }
            Refusal::Failed(error) if error.is_foreign() => {
                return LockError::ForeignValue { key, found: error.to_string() };
            }
            Refusal::Failed(error) => error,
            Refusal::Late => BackendError::unanswered("the lock was granted only after its lease had ended"),
        };
        LockError::Backend { operation: format!("acquire lock `{key}`"), attempts, source }
    }
}

/// The owner's label in a value of ours, or as much of a value of somebody else's as fits a message.
pub(crate) fn owner(value: &str) -> String {
    match value.split_at_checked(36) {
        Some((token, rest)) if uuid::Uuid::try_parse(token).is_ok() => {
            let owner = rest.strip_suffix('+').and_then(|rest| rest.strip_suffix('/')).unwrap_or(rest);
            owner.trim_matches('/').to_owned()
        }
        _ => value.chars().take(64).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_named_by_its_label() {
        assert_eq!(owner("0f8fad5b-d9cb-469f-a165-70867728950e/web-1/3121"), "web-1/3121");
        assert_eq!(owner("0f8fad5b-d9cb-469f-a165-70867728950e/web-1/3121/"), "web-1/3121");
        assert_eq!(owner("0f8fad5b-d9cb-469f-a165-70867728950e/web-1/3121/+"), "web-1/3121");
        assert_eq!(owner("0f8fad5b-d9cb-469f-a165-70867728950e/c/c++"), "c/c++");
        assert_eq!(owner("locked-by-a-python-script"), "locked-by-a-python-script");
        assert_eq!(owner(&"x".repeat(100)).len(), 64);
    }
}
