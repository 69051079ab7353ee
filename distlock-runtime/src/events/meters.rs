//! Metrics, through the `metrics` facade. None is labelled by a key: there would be one for each order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics::{Label, counter, gauge, histogram};
use tracing::warn;

use super::{Happening, Reclaim, contained};
use crate::LostReason;
use crate::backend::Kind;
use crate::hold::Hold;

/// By function and kind.
fn labels(hold: &Hold) -> [Label; 2] {
    let kind = match hold.terms.kind {
        Kind::Exclusive => "exclusive",
        Kind::Read => "read",
        Kind::Permits(_) => "permit",
    };
    let function = hold.audience.function.unwrap_or("by hand");
    [Label::from_static_parts("function", function), Label::from_static_parts("kind", kind)]
}

fn with(labels: &[Label; 2], name: &'static str, value: &'static str) -> Vec<Label> {
    let mut labels = labels.to_vec();
    labels.push(Label::from_static_parts(name, value));
    labels
}

/// What the application's recorder does with it is its own affair: if it panics, no lock, call or renewal pays for that.
pub(super) fn tell(hold: &Hold, happening: &Happening<'_>) {
    static HAS_PANICKED: AtomicBool = AtomicBool::new(false);
    if let Err(panic) = contained(|| note(hold, happening))
        && !HAS_PANICKED.swap(true, Ordering::Relaxed)
    {
        warn!(target: "distlock", panic, "the recorder of metrics panicked; locks go on, and what they do may not be counted");
    }
}

fn note(hold: &Hold, happening: &Happening<'_>) {
    let labels = labels(hold);
    let result = |value| with(&labels, "result", value);
    match happening {
        Happening::Found { passed, waited } => searched(&labels, if *passed { "passed" } else { "acquired" }, *waited),
        Happening::GaveUp { error, waited } => searched(&labels, error.label(), *waited),
        Happening::Cancelled { waited } => searched(&labels, "cancelled", *waited),
        Happening::Acquired { .. } => gauge!("distlock_held", labels.to_vec()).increment(1.0),
        // It is part of what was found.
        Happening::Passed => {}
        Happening::Refused { .. } => counter!("distlock_attempts_failed_total", result("busy")).increment(1),
        Happening::Failed { .. } => counter!("distlock_attempts_failed_total", result("backend")).increment(1),
        Happening::Renewed { late } => {
            counter!("distlock_renewals_total", result("extended")).increment(1);
            histogram!("distlock_renewal_lateness_seconds", labels.to_vec()).record(late.as_secs_f64());
        }
        Happening::RenewalFailed { .. } => {
            counter!("distlock_renewals_total", result("failed")).increment(1);
        }
        Happening::Lost { reason, .. } => {
            counter!("distlock_losses_total", with(&labels, "reason", word(*reason))).increment(1);
        }
        Happening::Ended { held_for } => {
            histogram!("distlock_held_seconds", labels.to_vec()).record(held_for.as_secs_f64());
            gauge!("distlock_held", labels.to_vec()).decrement(1.0);
        }
        Happening::ReleaseFailed { .. } => {
            counter!("distlock_releases_failed_total", labels.to_vec()).increment(1);
        }
        Happening::Reclaimed(reclaim) => {
            let value = match reclaim {
                Reclaim::Freed => "freed",
                Reclaim::NothingThere => "nothing_there",
                Reclaim::LeftToExpire => "left_to_expire",
            };
            counter!("distlock_reclaims_total", result(value)).increment(1);
        }
    }
}

/// One call's search for its locks is over.
fn searched(labels: &[Label; 2], result: &'static str, waited: Duration) {
    counter!("distlock_acquires_total", with(labels, "result", result)).increment(1);
    histogram!("distlock_wait_seconds", with(labels, "result", result)).record(waited.as_secs_f64());
}

fn word(reason: LostReason) -> &'static str {
    match reason {
        LostReason::Gone => "gone",
        LostReason::Expired => "expired",
        LostReason::HeldTooLong => "held_too_long",
        LostReason::Shutdown => "shutdown",
        LostReason::Released => "released",
    }
}
