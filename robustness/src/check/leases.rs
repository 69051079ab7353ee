//! Nobody believes in a lease for longer than the server keeps the lock.

use std::collections::BTreeMap;

use super::Violation;
use crate::history::{Event, What};

/// What rounding to milliseconds may make of it, there and here.
const ROUNDING: u64 = 5_000_000;

/// Compares each belief with what was seen of that lock on the server, then or at any other time: renewals only make it longer. Where
/// nobody has looked since, nothing is known.
pub(super) fn check(events: &[Event]) -> (Vec<Violation>, usize) {
    let mut seen: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for event in events {
        if let What::Stands { token, until } = &event.what {
            let (last, longest) = seen.entry(token).or_default();
            (*last, *longest) = (event.at, (*longest).max(*until));
        }
    }
    let (mut violations, mut compared) = (Vec::new(), 0);
    for event in events {
        let What::Believes { token, until } = &event.what else { continue };
        let Some((last, longest)) = seen.get(&**token).filter(|(last, _)| *last >= event.at) else { continue };
        compared += 1;
        if longest + ROUNDING < *until {
            let (who, over) = (&event.who, std::time::Duration::from_nanos(until - longest));
            let what = format!("{who} believes in its lease ({token}) for {over:?} longer than the server keeps it");
            violations.push(Violation { what, key: String::new(), at: event.at.max(*last) });
        }
    }
    (violations, compared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::read;

    fn is_wrong(journal: &str) -> bool {
        !check(&read(journal)).0.is_empty()
    }

    #[test]
    fn a_lease_ends_before_the_lock_does() {
        assert!(!is_wrong("1 0.1 believes t 90000000\n2 - stands t 95000000\n"));
        assert!(is_wrong("1 0.1 believes t 105000000\n2 - stands t 95000000\n"));
    }

    #[test]
    fn what_was_not_looked_at_since_is_not_known() {
        assert!(!is_wrong("1 - stands t 95000000\n2 0.1 believes t 205000000\n"));
        assert!(!is_wrong("1 0.1 believes t 205000000\n2 - stands another 95000000\n"));
    }

    #[test]
    fn a_renewal_makes_it_longer() {
        assert!(!is_wrong("1 0.1 believes t 205000000\n2 - stands t 95000000\n3 - stands t 210000000\n"));
    }
}
