//! Two that read a counter, and set it to one more, do not do so at the same time: no value is set twice. No token is compared there, so
//! that this is what a lock alone is good for.

use std::collections::BTreeMap;

use super::{Promise, Violation};
use crate::history::{Event, What};

/// Nobody goes on for so long after a server has forgotten its lock: a lease, or that of another one which has it passed on.
const AFTER_LOSS: u64 = 2_000_000_000;
/// What a body sent that was stopped then, is under way for no longer than its process stands still.
const UNDER_WAY: u64 = 3_000_000_000;

struct Increment<'a> {
    who: &'a str,
    from: u64,
    /// When it was confirmed, and the value.
    set: Option<(u64, u64)>,
}

/// Looks at each value that was set twice. Between the two, no server may have forgotten, and nobody have been stopped in the middle:
/// what that one has sent may arrive late, and set the counter back. `losses` are from when until when servers forgot.
pub(super) fn check(events: &[Event], losses: &[(u64, u64)]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (counter, increments) in increments(events) {
        let mut last: BTreeMap<u64, &Increment<'_>> = BTreeMap::new();
        for later in &increments {
            let Some((to, value)) = later.set else { continue };
            let Some(earlier) = last.insert(value, later) else { continue };
            let is_forgotten =
                losses.iter().any(|(from, until)| *from <= to && earlier.from <= until.saturating_add(AFTER_LOSS));
            let is_set_back = increments.iter().any(|other| {
                other.set.is_none() && other.from <= to && earlier.from <= other.from.saturating_add(UNDER_WAY)
            });
            if !is_forgotten && !is_set_back {
                let what = format!("{} and {} have both set `{counter}` to {value}", earlier.who, later.who);
                let key = counter.split_once(':').map_or(counter, |(_, key)| key).to_owned();
                violations.push(Violation { promise: Promise::Counters, what, key, at: later.from });
            }
        }
    }
    violations
}

/// Of each counter, in the order of their beginnings.
fn increments(events: &[Event]) -> BTreeMap<&str, Vec<Increment<'_>>> {
    let mut all: BTreeMap<&str, Vec<Increment<'_>>> = BTreeMap::new();
    // By worker: what it is counting, and which of its increments that is.
    let mut counting: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for event in events {
        match &event.what {
            What::Count { counter } => {
                let of_counter = all.entry(counter).or_default();
                counting.insert(&event.who, (counter, of_counter.len()));
                of_counter.push(Increment { who: &event.who, from: event.at, set: None });
            }
            What::Counted(value) => {
                let Some((counter, at)) = counting.remove(&*event.who) else { continue };
                if let Some(increment) = all.get_mut(counter).and_then(|increments| increments.get_mut(at)) {
                    increment.set = Some((event.at, *value));
                }
            }
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::read;

    const TWICE: &str = "10 a count n:k\n20 b count n:k\n30 a counted 7\n40 b counted 7\n";

    fn is_wrong(journal: &str, losses: &[(u64, u64)]) -> bool {
        !check(&read(journal), losses).is_empty()
    }

    #[test]
    fn an_update_that_is_lost_is_wrong() {
        assert!(is_wrong(TWICE, &[]));
        assert!(!is_wrong("10 a count n:k\n20 a counted 7\n30 b count n:k\n40 b counted 8\n", &[]));
        assert!(!is_wrong("10 a count n:k\n20 b count n:j\n30 a counted 7\n40 b counted 7\n", &[]));
    }

    #[test]
    fn but_where_a_server_has_forgotten_a_lock() {
        assert!(!is_wrong(TWICE, &[(15, 16)]));
        assert!(is_wrong(TWICE, &[(50, 60)]));
    }

    #[test]
    fn what_was_sent_and_not_confirmed_may_set_the_counter_back() {
        assert!(!is_wrong(&format!("{TWICE}5 c count n:k\n"), &[]));
        assert!(is_wrong(&format!("{TWICE}5 c count n:j\n"), &[]));
        assert!(is_wrong(&format!("{TWICE}50 c count n:k\n"), &[]));
    }
}
