//! Nobody is told that its lock is lost while it has it: an error in a renewal, say, is not yet a loss.

use std::collections::BTreeMap;

use super::{Promise, Violation};
use crate::history::{Event, What, since};
use crate::loss::Failed;

/// What may pass on a crowded machine between the two looks at clocks of which a belief is made.
const SLACK: u64 = 50_000_000;

/// What is known of a call.
struct Call<'a> {
    what: &'a str,
    /// The lock that its body began under last.
    key: &'a str,
    /// When its lock was asked for at the latest: it may have been passed on by an earlier call.
    since: u64,
    /// Until when its body has last believed to have its lease.
    until: u64,
}

/// Looks at each call that ended as lost, before the end of the lease that its body believed in: something must have been forgotten
/// since its lock was asked for, and then the server has said so. Returns how many losses there were, and what is wrong.
pub(super) fn check(events: &[Event], failed: &Failed) -> (usize, Vec<Violation>) {
    let mut calls: BTreeMap<&str, Call<'_>> = BTreeMap::new();
    let (mut count, mut violations) = (0, Vec::new());
    for event in events {
        match &event.what {
            What::Call(what) => drop(calls.insert(&event.who, Call { since: event.at, what, key: "", until: 0 })),
            What::Grant { holder, .. } => {
                if let Some(call) = calls.get_mut(&*event.who) {
                    call.key = holder.rsplit('/').next().unwrap_or_default();
                }
            }
            What::Believes { until, .. } => {
                if let Some(call) = calls.get_mut(&*event.who) {
                    (call.since, call.until) = (call.since.min(since(*until)), *until);
                }
            }
            What::Done(how) if how.starts_with("lost ") => {
                count += 1;
                let Some(call) = calls.remove(&*event.who) else { continue };
                if how == "lost HeldTooLong" && call.what.starts_with("Bounded ") {
                    continue;
                }
                let is_told = how == "lost Gone";
                let is_forgotten = failed.losses.iter().any(|loss| loss.from <= event.at && call.since <= loss.to);
                if event.at + SLACK < call.until && !(is_told && is_forgotten) {
                    let left = std::time::Duration::from_nanos(call.until - event.at);
                    let what = format!("{} ended as {how} {left:?} before its lease ({})", event.who, call.what);
                    violations.push(Violation { promise: Promise::Ends, what, key: call.key.to_owned(), at: event.at });
                }
            }
            _ => {}
        }
    }
    (count, violations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::read;

    fn is_wrong(end: &str) -> bool {
        let events = read(&format!("10 0.1 call Tried 1\n20 0.1 believes t 500000000\n{end}\n"));
        !check(&events, &Failed::of(&events)).1.is_empty()
    }

    #[test]
    fn a_lock_is_not_lost_before_its_lease_ends() {
        assert!(is_wrong("400 0.1 done lost Gone"));
        assert!(is_wrong("400 0.1 done lost Expired"));
        assert!(!is_wrong("510000000 0.1 done lost Expired"));
        assert!(!is_wrong("400 0.1 done ok"));
        assert!(is_wrong("400 0.1 done lost HeldTooLong"));
    }

    #[test]
    fn but_where_it_was_forgotten_and_the_server_says_so() {
        assert!(!is_wrong("300 - lost 300 310 310 * flush\n400 0.1 done lost Gone"));
        assert!(is_wrong("300 - lost 300 310 310 * flush\n400 0.1 done lost Expired"));
        // Before the call, and before its lock was asked for.
        let late = "900000000 0.1 call Tried 1\n900000010 0.1 believes t 1695000000\n900000020 0.1 done lost Gone\n";
        let events = read(&format!("5 - lost 5 6 6 * flush\n{late}"));
        assert!(!check(&events, &Failed::of(&events)).1.is_empty());
    }

    #[test]
    fn what_has_a_bound_is_stopped_by_it() {
        let events = read("10 0.1 call Bounded 1\n20 0.1 believes t 500000000\n400 0.1 done lost HeldTooLong\n");
        assert!(check(&events, &Failed::of(&events)).1.is_empty());
    }

    #[test]
    fn what_was_passed_on_may_have_been_forgotten_before_the_call() {
        let events = read(
            "900000010 0.1 call Tried 1\n900000020 0.1 believes t 1500000000\n900000000 - lost 900000000 900000001 900000001 * flush\n900000040 0.1 done lost Gone\n",
        );
        assert!(check(&events, &Failed::of(&events)).1.is_empty());
    }
}
