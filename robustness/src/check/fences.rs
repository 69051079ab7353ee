//! The fencing tokens of a key rise from holder to holder.

use std::collections::BTreeMap;

use harness::holders::{Hold, Kind};

use super::{Promise, Violation, client};
use crate::history::{Event, What, leased};
use crate::loss::Failed;

/// One who had a key before.
struct Before<'a> {
    hold: &'a Hold,
    since: u64,
    token: u64,
}

/// What came of comparing tokens.
pub(super) struct Compared {
    pub(super) violations: Vec<Violation>,
    /// How many had a token that is not above an earlier one, as it is allowed.
    pub(super) late: usize,
    /// How many neighbours were compared, and how many of these might have had any token.
    pub(super) pairs: usize,
    pub(super) exempt: usize,
}

/// Compares the token of each holder with those of all that had ended when its call began to hold.
pub(super) fn check(holds: &[Hold], events: &[Event], failed: &Failed) -> Compared {
    let mut compared = Compared { violations: Vec::new(), late: 0, pairs: 0, exempt: 0 };
    let mut last: BTreeMap<&str, Vec<Before<'_>>> = BTreeMap::new();
    let (tokens, leased) = (tokens(events), leased(events));
    for hold in holds.iter().filter(|hold| hold.kind == Kind::Exclusive) {
        let Some(&token) = tokens.get(&*hold.token) else { continue };
        let since = leased.get(&*hold.token).map_or(hold.from, |leased| leased.since.min(hold.from));
        let before = last.entry(&hold.key).or_default();
        let now = Before { hold, since, token };
        if let Some(neighbour) = before.iter().rev().find(|before| before.hold.to < hold.from) {
            compared.pairs += 1;
            compared.exempt += usize::from(is_allowed(neighbour, &now, failed));
        }
        let (allowed, wrong): (Vec<_>, Vec<_>) =
            before.iter().filter(|before| is_above(before, &now)).partition(|before| is_allowed(before, &now, failed));
        compared.late += usize::from(!allowed.is_empty());
        compared.violations.extend(wrong.first().map(|before| violation(before, &now)));
        before.push(now);
    }
    compared
}

/// Whether one that had ended has a token that the later one should be above. A call that passes under another has its token.
fn is_above(before: &Before<'_>, now: &Before<'_>) -> bool {
    let is_nested = worker(before.hold) == worker(now.hold);
    before.hold.to < now.hold.from && (before.token > now.token || before.token == now.token && !is_nested)
}

/// Whether a later holder may have a token that is not above that of one that had ended. Either its lock was forgotten before the other
/// got it, and passed on within its process, which did not know it yet: that one is late, which is what its low token says. Or tokens
/// were ahead, by a clock that had been set forward, when a server forgot how far they had come.
fn is_allowed(before: &Before<'_>, now: &Before<'_>, failed: &Failed) -> bool {
    let key = &now.hold.key;
    let mut late = failed.forgetting(key, now.since, before.hold.from);
    if late.any(|loss| now.hold.from <= loss.ends(client(now.hold), false, &failed.broken)) {
        return true;
    }
    let was_ahead = |ahead: &&crate::loss::Ahead| ahead.from <= before.hold.to && now.hold.from <= ahead.caught_up();
    failed.ahead.iter().any(|ahead| was_ahead(&ahead))
        && failed.forgetting(key, before.since, now.hold.from).any(|loss| !loss.is_step())
}

fn violation(before: &Before<'_>, now: &Before<'_>) -> Violation {
    let (who, token, key, at) = (worker(now.hold), now.token, &now.hold.key, now.hold.from);
    let (other, higher) = (worker(before.hold), before.token);
    let what = format!("{who} has the fencing token {token} for `{key}`, and {other} had {higher} before it");
    Violation { promise: Promise::Fences, what, key: key.clone(), at }
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
    use crate::loss::Loss;

    fn checked(journal: &str, log: &str, losses: &[Loss]) -> (usize, usize) {
        let events = read(journal);
        let failed = Failed { losses: losses.to_vec(), ..Failed::of(&events) };
        let compared = check(&holds(log, Until::LastStep), &events, &failed);
        (compared.violations.len(), compared.late)
    }

    fn loss(why: &str, at: u64) -> Loss {
        Loss { why: why.to_owned(), from: at, to: at + 1, back: at + 1, keys: Vec::new() }
    }

    #[test]
    fn tokens_rise() {
        let log = "10 start 0.1/1 x k\n20 step 0.1/1 x k\n30 start 0.2/2 x k\n40 step 0.2/2 x k\n";
        let of = |second| checked(&format!("11 0.1 grant 0.1/1 7\n31 0.2 grant 0.2/2 {second}\n"), log, &[]);
        assert_eq!([8, 7, 6].map(of), [(0, 0), (1, 0), (1, 0)]);
    }

    /// The second of one process, which was asked for with the first, comes behind one that has taken the lock meanwhile.
    #[test]
    fn who_holds_what_was_forgotten_a_moment_ago_may_be_late() {
        let log = "900000010 start 1.1/1 x k\n900000020 step 1.1/1 x k\n900000030 start 0.2/2 x k\n900000040 step 0.2/2 x k\n";
        let of = |until: u64, at: u64| {
            let journal =
                format!("900000011 1.1 grant 1.1/1 7\n900000031 0.2 grant 0.2/2 6\n900000032 0.2 believes t {until}\n");
            checked(&journal, log, &[loss("flush", at)])
        };
        assert_eq!(of(1_500_000_000, 900_000_005), (0, 1));
        // Forgotten after the other one came, or asked for after it was forgotten.
        assert_eq!(of(1_500_000_000, 900_000_015), (1, 0));
        assert_eq!(of(1_700_000_000, 900_000_005), (1, 0));
    }

    #[test]
    fn who_comes_when_tokens_that_were_ahead_are_forgotten_has_a_lower_one() {
        let log = "100 start 0.1/1 x k\n200 step 0.1/1 x k\n300 start 1.2/2 x k\n400 step 1.2/2 x k\n";
        let journal = "100 0.1 grant 0.1/1 7\n300 1.2 grant 1.2/2 6\n";
        let ahead = format!("{journal}150 - ahead 50 150 5000000000\n");
        assert_eq!(checked(&ahead, log, &[loss("flush", 250)]), (0, 1));
        assert_eq!(checked(journal, log, &[loss("flush", 250)]), (1, 0));
        assert_eq!(checked(&ahead, log, &[]), (1, 0));
        assert_eq!(checked(&ahead, log, &[loss("flush", 350)]), (1, 0));
    }

    /// Both came long after the clock was set and after the data were gone.
    #[test]
    fn an_old_loss_excuses_no_token() {
        const SECOND: u64 = 1_000_000_000;
        let losses = [loss("step of the clock", SECOND), loss("flush", 2 * SECOND)];
        let at = |second: u64, millis: u64| second * SECOND + millis * 1_000_000;
        let (a, b, c, d) = (at(4, 0), at(4, 100), at(60, 0), at(60, 100));
        let log = format!("{a} start 0.1/1 x k\n{b} step 0.1/1 x k\n{c} start 1.2/2 x k\n{d} step 1.2/2 x k\n");
        let journal = format!("{a} 0.1 grant 0.1/1 7\n{c} 1.2 grant 1.2/2 6\n");
        let journal = format!("{journal}{} - ahead {SECOND} {} 5000000000\n", 2 * SECOND, 2 * SECOND);
        assert_eq!(checked(&journal, &log, &losses), (1, 0));
    }
}
