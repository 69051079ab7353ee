//! As long as a body goes on, its lock stands on the server, and for no less long than the body believes.

use std::collections::BTreeMap;
use std::time::Duration;

use harness::holders::Hold;

use super::{Promise, Violation, client};
use crate::client::owner;
use crate::history::{Event, Leased, What};
use crate::loss::Failed;

/// What rounding to milliseconds may make of it, there and here.
const ROUNDING: u64 = 5_000_000;

/// From the look of a body at its lease to its act pass less than this, or the act is not counted.
const ONE_STEP: u64 = 10_000_000;

/// What stood on the server at one moment, which is not before `sent` and not after `at`.
struct Look<'a> {
    sent: u64,
    at: u64,
    stands: BTreeMap<&'a str, Vec<Stands<'a>>>,
}

struct Stands<'a> {
    token: &'a str,
    owner: &'a str,
    until: u64,
}

/// Compares each holder with each look at the server between two of its acts. Returns what is wrong, and how often that was looked at.
pub(super) fn check(
    holds: &[Hold],
    events: &[Event],
    leased: &BTreeMap<&str, Leased>,
    failed: &Failed,
) -> (Vec<Violation>, usize) {
    let looks = looks(events);
    let (mut violations, mut compared) = (Vec::new(), 0);
    for hold in holds {
        let Some(leased) = leased.get(&*hold.token) else { continue };
        let first = looks.partition_point(|look| look.sent < hold.from);
        let during = looks[first..].iter().take_while(|look| look.at + ONE_STEP <= hold.to);
        let mut wrong = None;
        for look in during {
            compared += 1;
            wrong = wrong.or_else(|| Some((look.at, wrong_at(look, hold, leased)?)));
            if wrong.as_ref().is_some_and(|(at, _)| is_forgotten(hold, leased, *at, failed)) {
                wrong = None;
            }
        }
        violations.extend(wrong.map(|(at, what)| {
            let what = format!("{} {what}", hold.token);
            Violation { promise: Promise::Leases, what, key: hold.key.clone(), at }
        }));
    }
    (violations, compared)
}

fn looks(events: &[Event]) -> Vec<Look<'_>> {
    let mut looks: Vec<Look<'_>> = Vec::new();
    for event in events {
        match &event.what {
            What::Looked(sent) => looks.push(Look { sent: *sent, at: event.at, stands: BTreeMap::new() }),
            What::Stands { key, token, owner, until } => {
                if let Some(look) = looks.last_mut() {
                    look.stands.entry(key).or_default().push(Stands { token, owner, until: *until });
                }
            }
            _ => {}
        }
    }
    looks
}

/// What is wrong with a holder at that moment, if anything is. What stands there has its own token, or that of an earlier call of its
/// process, which has passed the lock on.
fn wrong_at(look: &Look<'_>, hold: &Hold, leased: &Leased) -> Option<String> {
    let owner = owner(client(hold).parse().ok()?);
    let stands = || look.stands.get(&*hold.key).into_iter().flatten();
    let own = stands().find(|stands| stands.token == leased.token).map(|own| own.until);
    let until = own.or_else(|| stands().filter(|stands| stands.owner == owner).map(|stands| stands.until).max());
    let Some(until) = until else {
        let others: Vec<_> = stands().map(|stands| stands.owner).collect();
        return Some(format!("goes on under `{}`, and on the server stands [{}]", hold.key, others.join(", ")));
    };
    let believed = leased.beliefs.iter().filter(|(at, _)| *at <= look.sent).map(|(_, until)| *until).max()?;
    let over = believed.checked_sub(until + ROUNDING)?;
    let over = Duration::from_nanos(over);
    Some(format!("believes in its lease of `{}` for {over:?} longer than the server keeps it", hold.key))
}

/// Whether the server had forgotten it by then, and the holder need not know yet.
fn is_forgotten(hold: &Hold, leased: &Leased, at: u64, failed: &Failed) -> bool {
    let mut losses = failed.forgetting(&hold.key, leased.since.min(hold.from), at);
    losses.any(|loss| at <= loss.ends(client(hold), leased.is_renewed, &failed.broken))
}

#[cfg(test)]
mod tests {
    use harness::holders::{Until, holds};

    use super::*;
    use crate::history::{leased, read};

    /// A body of client 7 that acts from 10 to 100 ms, believes in a lease until 800 ms, and what is seen in between.
    fn is_wrong(seen: &str) -> bool {
        let holders = "10000000 start 7.1/1 x k\n100000000 step 7.1/1 x k\n";
        let begin = "10000000 7.1 grant 7.1/1 1\n10000001 7.1 believes t 800000000\n40000000 - looked 30000000\n";
        let events = read(&format!("{begin}{seen}"));
        !check(&holds(holders, Until::LastStep), &events, &leased(&events), &Failed::of(&events)).0.is_empty()
    }

    #[test]
    fn a_lease_ends_before_the_lock_does() {
        assert!(!is_wrong("40000000 - stands k t client-7 800000000\n"));
        assert!(is_wrong("40000000 - stands k t client-7 790000000\n"));
    }

    #[test]
    fn a_lock_that_was_passed_on_has_the_token_of_an_earlier_call() {
        assert!(!is_wrong("40000000 - stands k u client-7 800000000\n"));
        assert!(is_wrong("40000000 - stands k u client-7 790000000\n"));
    }

    #[test]
    fn of_several_shares_of_a_client_its_own_counts() {
        let other = "40000000 - stands k u client-7 900000000\n";
        assert!(is_wrong(&format!("{other}40000000 - stands k t client-7 790000000\n")));
        assert!(!is_wrong(&format!("{other}40000000 - stands k t client-7 800000000\n")));
    }

    #[test]
    fn who_goes_on_without_its_lock_is_wrong_unless_it_was_forgotten() {
        assert!(is_wrong(""));
        assert!(is_wrong("40000000 - stands k u client-8 900000000\n"));
        assert!(!is_wrong("20000000 - lost 20000000 21000000 21000000 * flush\n"));
        // Before it was asked for, and afterwards.
        assert!(is_wrong("2000000 - lost 2000000 3000000 3000000 * flush\n"));
        assert!(is_wrong("50000000 - lost 50000000 51000000 51000000 * flush\n"));
    }

    #[test]
    fn what_is_seen_before_or_after_it_acts_says_nothing() {
        let holders = "10000000 start 7.1/1 x k\n100000000 step 7.1/1 x k\n";
        let events =
            read("10 7.1 grant 7.1/1 1\n11 7.1 believes t 800000000\n40 - looked 9\n95000000 - looked 94000000\n");
        let (violations, compared) =
            check(&holds(holders, Until::LastStep), &events, &leased(&events), &Failed::of(&events));
        assert!(violations.is_empty() && compared == 0);
    }
}
