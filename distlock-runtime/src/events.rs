//! What the log gets to know, in one place, so that fields have the same names everywhere: `key`, `token`, `ttl`,
//! `attempt`, `result`, and for a share `kind` and `permits`. The ordinary is told at debug, what has mended itself at info, what is
//! refused or late at warn, a loss at error.

mod listener;
#[cfg(feature = "metrics")]
mod meters;

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tracing::{Span, debug, error, error_span, info, info_span, warn};

pub(crate) use self::listener::{Hear, Listener};
pub use self::listener::{LockEvent, LockEventKind};
use crate::backend::{BackendError, Kind, Released};
use crate::guard::LockGuard;
use crate::hold::Hold;
use crate::{LockError, LostReason, Mode};

/// Who is told what happens to the locks of a call: the log, by its span, and whoever listens.
#[derive(Clone, Debug)]
pub(crate) struct Audience {
    pub(crate) span: Span,
    function: Option<&'static str>,
    listener: Option<Arc<Listener>>,
}

impl Audience {
    /// The span of a call has the highest level, so that whatever event is let through has it as its context. Keys are made
    /// of arguments, so it has one only if that is asked for.
    pub(crate) fn of_call(
        function: Option<&'static str>,
        key: Option<&str>,
        listener: Option<&Arc<Listener>>,
    ) -> Audience {
        let span = error_span!(target: "distlock", "distributed_lock", function, key);
        Audience { span, function, listener: listener.cloned() }
    }

    pub(crate) fn nobody() -> Audience {
        Audience { span: Span::none(), function: None, listener: None }
    }

    /// Whether somebody wants to know how long calls take.
    pub(crate) fn listens(&self) -> bool {
        cfg!(feature = "metrics") || self.listener.is_some()
    }

    /// The part of a call in which it tries for its lock, and that in which it has it.
    pub(crate) fn acquiring(&self) -> Span {
        info_span!(target: "distlock", parent: &self.span, "acquire")
    }

    pub(crate) fn holding(&self) -> Span {
        info_span!(target: "distlock", parent: &self.span, "hold")
    }
}

/// What happens to a lock, as far as there is more than the log to be told.
enum Happening<'a> {
    /// A call has found its lock, or all of its locks. Only meters want to know.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "the listener hears of each lock instead"))]
    Found {
        passed: bool,
        waited: Duration,
    },
    Acquired {
        waited: Duration,
    },
    Refused {
        holder: &'a str,
        remaining: Duration,
    },
    Failed {
        error: &'a dyn Display,
    },
    GaveUp {
        error: &'a LockError,
        waited: Duration,
    },
    Cancelled {
        waited: Duration,
    },
    Passed,
    Renewed {
        late: Duration,
    },
    RenewalFailed {
        error: &'a BackendError,
        remaining: Duration,
    },
    Lost {
        reason: LostReason,
        held_for: Duration,
    },
    Ended {
        held_for: Duration,
    },
    ReleaseFailed {
        error: &'a BackendError,
    },
    Reclaimed(Reclaim),
}

/// What became of something that was left behind.
#[derive(Clone, Copy)]
enum Reclaim {
    Freed,
    NothingThere,
    LeftToExpire,
}

fn tell<'a>(hold: &Hold, happening: impl Fn() -> Happening<'a>) {
    #[cfg(feature = "metrics")]
    meters::tell(hold, &happening());
    if let Some(listener) = &hold.audience.listener {
        happening().of(hold).into_iter().for_each(|event| listener.tell(event));
    }
}

/// Does what is the application's, and says with what it panicked if it did.
fn contained(work: impl FnOnce()) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("not with a text").to_owned();
        // To drop what it panicked with may panic again, and then once more.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(again);
        }
        text
    })
}

/// A call's search for its locks. It has one end, whatever that is: also where the call is dropped.
pub(crate) struct Search {
    /// Nothing where nobody would be told, or where it has ended.
    hold: Option<Arc<Hold>>,
}

impl Search {
    pub(crate) fn begin(hold: &Arc<Hold>) -> Search {
        Search { hold: hold.audience.listens().then(|| hold.clone()) }
    }

    pub(crate) fn ended(mut self, outcome: &Result<LockGuard, LockError>) {
        let Some(hold) = self.hold.take() else { return };
        tell(&hold, || match outcome {
            Ok(guard) => Happening::Found { passed: guard.hold().group().all(Hold::passes), waited: hold.waited() },
            Err(error) => Happening::GaveUp { error, waited: hold.waited() },
        });
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            tell(&hold, || Happening::Cancelled { waited: hold.waited() });
        }
    }
}

impl Happening<'_> {
    fn of(self, hold: &Hold) -> Option<LockEvent> {
        let kind = self.owned(hold)?;
        let (mode, permits) = match hold.terms.kind {
            Kind::Exclusive => (Some(Mode::Exclusive), None),
            Kind::Read => (Some(Mode::Read), None),
            Kind::Permits(permits) => (None, Some(permits)),
        };
        Some(LockEvent {
            key: hold.key.to_string(),
            function: hold.audience.function,
            mode,
            permits,
            token: hold.token().to_owned(),
            attempt: hold.attempt(),
            kind,
            missed: 0,
        })
    }

    /// As the listener is told. It hears of each lock that was found, and has no need to hear of the search as well.
    fn owned(self, hold: &Hold) -> Option<LockEventKind> {
        Some(match self {
            Happening::Found { .. } => return None,
            Happening::Acquired { waited } => LockEventKind::Acquired { waited, fencing_token: hold.fence() },
            Happening::Refused { holder, remaining } => LockEventKind::Refused { holder: holder.to_owned(), remaining },
            Happening::Failed { error } => LockEventKind::Failed { error: error.to_string() },
            Happening::GaveUp { error, waited } => {
                LockEventKind::GaveUp { error: error.to_string(), reason: error.label(), waited }
            }
            Happening::Cancelled { waited } => LockEventKind::Cancelled { waited },
            Happening::Passed => LockEventKind::Passed,
            Happening::Renewed { late } => LockEventKind::Renewed { late },
            Happening::RenewalFailed { error, remaining } => {
                LockEventKind::RenewalFailed { error: error.to_string(), remaining }
            }
            Happening::Lost { reason, held_for } => LockEventKind::Lost { reason, held_for },
            Happening::Ended { held_for } => LockEventKind::Ended { held_for },
            Happening::ReleaseFailed { error } => LockEventKind::ReleaseFailed { error: error.to_string() },
            Happening::Reclaimed(Reclaim::Freed) => LockEventKind::Reclaimed { freed: true },
            Happening::Reclaimed(Reclaim::NothingThere) => LockEventKind::Reclaimed { freed: false },
            Happening::Reclaimed(Reclaim::LeftToExpire) => LockEventKind::LeftToExpire,
        })
    }
}

macro_rules! event {
    ($level:ident, $hold:expr, $result:expr, { $($fields:tt)* }, $($text:tt)+) => {
        $level!(
            target: "distlock",
            parent: &$hold.audience.span,
            key = $hold.key.as_str(),
            token = $hold.token(),
            ttl = ?$hold.terms.ttl,
            kind = $hold.terms.kind.name(),
            permits = $hold.terms.kind.permits(),
            attempt = $hold.attempt(),
            result = $result,
            $($fields)*
            $($text)+
        )
    };
}

pub(crate) fn acquired(hold: &Hold) {
    event!(debug, hold, "acquired", { fencing_token = hold.fence().map(u64::from), }, "lock acquired");
    tell(hold, || Happening::Acquired { waited: hold.waited() });
}

/// What was acquired is not held any more, whatever became of it.
pub(crate) fn ended(hold: &Hold) {
    tell(hold, || Happening::Ended { held_for: hold.held_for() });
}

pub(crate) fn passed_on(hold: &Hold) {
    event!(debug, hold, "passed on", {}, "lock passed on within the process");
}

pub(crate) fn passed_under(hold: &Hold) {
    event!(debug, hold, "passed", {}, "lock is held by the calling task already");
    tell(hold, || Happening::Passed);
}

pub(crate) fn refused(hold: &Hold, holder: &str, remaining: Duration, last: bool) {
    tell(hold, || Happening::Refused { holder, remaining });
    if last {
        event!(warn, hold, "refused", { holder, ?remaining, }, "lock refused: it is held");
    } else {
        event!(debug, hold, "refused", { holder, ?remaining, }, "lock refused, trying again");
    }
}

pub(crate) fn failed(hold: &Hold, error: &BackendError) {
    tell(hold, || Happening::Failed { error });
    event!(warn, hold, "failed", { %error, }, "lock could not be tried");
}

pub(crate) fn late_grant(hold: &Hold) {
    tell(hold, || Happening::Failed { error: &"it was granted after its lease had ended" });
    event!(warn, hold, "late", {}, "lock granted after its lease had ended; not used");
}

/// The renewal was this much later than it was due.
pub(crate) fn renewed(hold: &Hold, late: Duration) {
    hold.answered();
    tell(hold, || Happening::Renewed { late });
    event!(debug, hold, "renewed", { remaining = ?hold.remaining(), }, "lease extended");
}

pub(crate) fn renewal_failed(hold: &Hold, error: &BackendError) {
    tell(hold, || Happening::RenewalFailed { error, remaining: hold.remaining() });
    if hold.first_unanswered() {
        event!(warn, hold, "unknown", { %error, remaining = ?hold.remaining(), }, "renewal failed, trying again until the lease ends");
    } else {
        event!(debug, hold, "unknown", { %error, remaining = ?hold.remaining(), }, "renewal failed again");
    }
}

pub(crate) fn lost(hold: &Hold, reason: LostReason) {
    tell(hold, || Happening::Lost { reason, held_for: hold.held_for() });
    event!(error, hold, "lost", { ?reason, held_for = ?hold.held_for(), }, "lock lost: {reason}");
}

pub(crate) fn released(hold: &Hold, released: Released) {
    let result = match released {
        Released::Freed => "released",
        Released::Left => "left",
        Released::NotHeld => "not held",
    };
    event!(debug, hold, result, {}, "lock released");
}

/// The watchdog has released what was left behind, or may have been.
pub(crate) fn reclaimed(hold: &Hold, by: Released) {
    released(hold, by);
    let reclaim = if by == Released::Freed { Reclaim::Freed } else { Reclaim::NothingThere };
    tell(hold, || Happening::Reclaimed(reclaim));
}

pub(crate) fn release_failed(hold: &Hold, error: &BackendError) {
    tell(hold, || Happening::ReleaseFailed { error });
    if hold.first_unanswered() {
        event!(warn, hold, "unknown", { %error, }, "release failed, trying again until the key has expired");
    } else {
        event!(debug, hold, "unknown", { %error, }, "release failed again");
    }
}

pub(crate) fn not_listening(error: &BackendError, first: bool) {
    if first {
        warn!(target: "distlock", %error, "can't hear of locks that are handed over, and finds them by asking");
    } else {
        debug!(target: "distlock", %error, "still can't hear of locks that are handed over");
    }
}

pub(crate) fn not_calling(error: &BackendError) {
    warn!(target: "distlock", %error, "can't call those to whom a lock is handed over, who find it by asking");
}

/// One of several independent servers has no part in locks.
pub(crate) fn has_no_vote(server: &str, error: &BackendError) {
    warn!(target: "distlock", server, %error, "one of the servers has no vote: it does not answer, or refuses what it is asked");
}

pub(crate) fn has_its_vote(server: &str) {
    info!(target: "distlock", server, "one of the servers has its vote again");
}

pub(crate) fn left_to_expire(hold: &Hold, why: &str) {
    tell(hold, || Happening::Reclaimed(Reclaim::LeftToExpire));
    event!(warn, hold, "left", {}, "lock could not be freed and is left to expire: {why}");
}
