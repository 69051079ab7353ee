//! The fencing tokens of a key rise from holder to holder.

use std::collections::BTreeMap;

use harness::holders::{Hold, Kind};

use super::Violation;
use crate::history::{Event, Loss, What};

/// A lease, with what a crowded machine takes to end it.
const LEASE: u64 = 850_000_000;
/// The largest step of a clock that is made, and as much again for what lies around it.
const STEP: u64 = 10_000_000_000;

/// Compares the token of each holder with those of all that had ended when its call began to hold. Returns what is wrong, and how
/// much of it is allowed.
pub(super) fn check(holds: &[Hold], events: &[Event], losses: &[Loss]) -> (Vec<Violation>, usize) {
    let (mut violations, mut excused) = (Vec::new(), 0);
    let mut last: BTreeMap<&str, Vec<(u64, u64, &str)>> = BTreeMap::new();
    let tokens = tokens(events);
    for hold in holds.iter().filter(|hold| hold.kind == Kind::Exclusive) {
        let Some(&token) = tokens.get(&*hold.token) else { continue };
        let before = last.entry(&hold.key).or_default();
        // A call that passes under another has its token.
        let is_above = |(to, fence, who): &&(u64, u64, &str)| {
            *to < hold.from && (*fence > token || *fence == token && *who != worker(hold))
        };
        let (allowed, wrong): (Vec<_>, Vec<_>) =
            before.iter().filter(is_above).partition(|(to, ..)| is_allowed(*to, hold, losses));
        excused += usize::from(!allowed.is_empty());
        if let Some((_, fence, who)) = wrong.first() {
            let what = format!(
                "{} has the fencing token {token} for `{}`, and {who} had {fence} before it",
                worker(hold),
                hold.key
            );
            violations.push(Violation { what, key: hold.key.clone(), at: hold.from });
        }
        before.push((hold.to, token, worker(hold)));
    }
    (violations, excused)
}

/// Whether a later holder may have a token that is not above that of one that ended at `ended`. Either its lock was forgotten a moment
/// ago, and passed on within its process, which did not know it yet: that one is late, which is what its low token says. Or a server
/// whose clock had just been set forward and back has forgotten how far its tokens had come.
fn is_allowed(ended: u64, hold: &Hold, losses: &[Loss]) -> bool {
    let between = |loss: &&Loss| loss.from <= hold.from && ended <= loss.to.saturating_add(STEP);
    losses.iter().filter(between).any(|loss| {
        let stepped = losses
            .iter()
            .any(|step| step.is_step() && step.from <= loss.to && loss.from <= step.to.saturating_add(STEP));
        hold.from <= loss.to.saturating_add(LEASE) || stepped && !loss.is_step()
    })
}

/// The token of each holder that has one.
fn tokens(events: &[Event]) -> BTreeMap<&str, u64> {
    let granted = events.iter().filter_map(|event| match &event.what {
        What::Grant { holder, fence: Some(fence) } => Some((&**holder, *fence)),
        _ => None,
    });
    granted.collect()
}

fn worker(hold: &Hold) -> &str {
    hold.token.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use harness::holders::{Until, holds};

    use super::*;
    use crate::history::read;

    fn checked(second: u64, losses: &[Loss]) -> (usize, usize) {
        let log = "10 start 0.1/1 x k\n20 step 0.1/1 x k\n30 start 0.2/2 x k\n40 step 0.2/2 x k\n";
        let journal = format!("11 0.1 grant 0.1/1 7\n31 0.2 grant 0.2/2 {second}\n");
        let (violations, excused) = check(&holds(log, Until::LastStep), &read(&journal), losses);
        (violations.len(), excused)
    }

    fn loss(why: &str, at: u64) -> Loss {
        Loss { why: why.to_owned(), from: at, to: at + 1 }
    }

    #[test]
    fn tokens_rise() {
        assert_eq!([8, 7, 6].map(|second| checked(second, &[])), [(0, 0), (1, 0), (1, 0)]);
    }

    #[test]
    fn who_holds_what_was_forgotten_a_moment_ago_may_be_late() {
        assert_eq!(checked(6, &[loss("flush", 25)]), (0, 1));
        assert_eq!(checked(6, &[loss("flush", 35)]), (1, 0));
    }
}
