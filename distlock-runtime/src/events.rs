//! What the log gets to know, in one place, so that fields have the same names everywhere: `key`, `token`, `ttl`,
//! `attempt`, `result`, and for a share `kind` and `permits`. The ordinary is told at debug, what has mended itself at info, what is
//! refused or late at warn, a loss at error.

use std::time::Duration;

use tracing::{Span, debug, error, error_span, info, warn};

use crate::LostReason;
use crate::backend::{BackendError, Released};
use crate::hold::Hold;

/// The span of a call. It has the highest level, so that whatever event is let through has it as its context.
pub(crate) fn span(function: Option<&'static str>, key: &str) -> Span {
    error_span!(target: "distlock", "distributed_lock", function, key)
}

macro_rules! event {
    ($level:ident, $hold:expr, $result:expr, { $($fields:tt)* }, $($text:tt)+) => {
        $level!(
            target: "distlock",
            parent: &$hold.span,
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
}

pub(crate) fn passed_on(hold: &Hold) {
    event!(debug, hold, "passed on", {}, "lock passed on within the process");
}

pub(crate) fn passed_under(hold: &Hold) {
    event!(debug, hold, "passed", {}, "lock is held by the calling task already");
}

pub(crate) fn refused(hold: &Hold, holder: &str, remaining: Duration, last: bool) {
    if last {
        event!(warn, hold, "refused", { holder, ?remaining, }, "lock refused: it is held");
    } else {
        event!(debug, hold, "refused", { holder, ?remaining, }, "lock refused, trying again");
    }
}

pub(crate) fn failed(hold: &Hold, error: &BackendError) {
    event!(warn, hold, "failed", { %error, }, "lock could not be tried");
}

pub(crate) fn late_grant(hold: &Hold) {
    event!(warn, hold, "late", {}, "lock granted after its lease had ended; not used");
}

pub(crate) fn renewed(hold: &Hold) {
    hold.answered();
    event!(debug, hold, "renewed", { remaining = ?hold.remaining(), }, "lease extended");
}

pub(crate) fn renewal_failed(hold: &Hold, error: &BackendError) {
    if hold.first_unanswered() {
        event!(warn, hold, "unknown", { %error, remaining = ?hold.remaining(), }, "renewal failed, trying again until the lease ends");
    } else {
        event!(debug, hold, "unknown", { %error, remaining = ?hold.remaining(), }, "renewal failed again");
    }
}

pub(crate) fn lost(hold: &Hold, reason: LostReason) {
    event!(error, hold, "lost", { ?reason, held_for = ?hold.held_for(), }, "lock lost: {reason}");
}

pub(crate) fn released(hold: &Hold, released: Released) {
    let result = match released {
        Released::Freed => "released",
        Released::NotHeld => "not held",
    };
    event!(debug, hold, result, {}, "lock released");
}

pub(crate) fn release_failed(hold: &Hold, error: &BackendError) {
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
    event!(warn, hold, "left", {}, "lock could not be freed and is left to expire: {why}");
}
