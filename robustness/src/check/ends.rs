//! Nobody is told that its lock is lost while it has it: an error in a renewal, say, is not yet a loss.

use std::collections::BTreeMap;

use super::Violation;
use crate::history::{Event, Loss, What};

/// What may pass on a crowded machine between the two looks at clocks of which a belief is made.
const SLACK: u64 = 50_000_000;

/// What is known of a call.
struct Call<'a> {
    begin: u64,
    what: &'a str,
    /// Until when its body has last believed to have its lease.
    until: u64,
}

/// Looks at each call that ended as lost, before the end of the lease that its body believed in: something must have been forgotten
/// since the call began, and then the server has said so. Returns how many losses there were, and what is wrong.
pub(super) fn check(events: &[Event], losses: &[Loss]) -> (usize, Vec<Violation>) {
    let mut calls: BTreeMap<&str, Call<'_>> = BTreeMap::new();
    let (mut count, mut violations) = (0, Vec::new());
    for event in events {
        match &event.what {
            What::Call(what) => drop(calls.insert(&event.who, Call { begin: event.at, what, until: 0 })),
            What::Believes { until, .. } => {
                if let Some(call) = calls.get_mut(&*event.who) {
                    call.until = *until;
                }
            }
            What::Done(how) if how.starts_with("lost ") => {
                count += 1;
                let Some(call) = calls.remove(&*event.who) else { continue };
                let is_told = how == "lost Gone";
                let is_forgotten = losses.iter().any(|loss| loss.from <= event.at && call.begin <= loss.to);
                if event.at + SLACK < call.until && !(is_told && is_forgotten) {
                    let left = std::time::Duration::from_nanos(call.until - event.at);
                    let what = format!("{} ended as {how} {left:?} before its lease ({})", event.who, call.what);
                    violations.push(Violation { what, key: String::new(), at: event.at });
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
    use crate::history::{losses, read};

    fn is_wrong(end: &str) -> bool {
        let events = read(&format!("10 0.1 call Tried 1\n20 0.1 believes t 500000000\n{end}\n"));
        !check(&events, &losses(&events)).1.is_empty()
    }

    #[test]
    fn a_lock_is_not_lost_before_its_lease_ends() {
        assert!(is_wrong("400 0.1 done lost Gone"));
        assert!(is_wrong("400 0.1 done lost Expired"));
        assert!(!is_wrong("510000000 0.1 done lost Expired"));
        assert!(!is_wrong("400 0.1 done ok"));
    }

    #[test]
    fn but_where_it_was_forgotten_and_the_server_says_so() {
        assert!(!is_wrong("300 - losing flush\n400 0.1 done lost Gone"));
        assert!(is_wrong("300 - losing flush\n400 0.1 done lost Expired"));
        assert!(is_wrong("5 - losing flush\n6 - kept\n400 0.1 done lost Gone"));
    }
}
