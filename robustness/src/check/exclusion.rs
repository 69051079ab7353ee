//! Never two holders at once, but for what a server has forgotten.

use std::collections::BTreeMap;
use std::time::Duration;

use harness::holders::{Hold, Kind};

use super::Violation;
use crate::client::TTL;
use crate::history::Loss;

/// What a crowded machine may take from the end of a lease to the stamp of a step that was begun before.
const SLACK: u64 = 50_000_000;

/// A holder, and since when its process may have had the lock: from the request. One that passes under another, or to whom another one
/// of its process has passed the lock on, has it from that.
#[derive(Clone, Copy)]
struct Holder<'a> {
    hold: &'a Hold,
    since: u64,
}

/// Between two who have the same lock one after the other in one process.
const HAND_OVER: u64 = 50_000_000;

/// For how long after its begin a body has its lock by the grant, and not by renewals: at worst it was passed on within its process a
/// quarter of a second after that, and it took a third of a ttl to hear of it.
const GRANTED: u64 = 200_000_000;

/// For how long a lock may stand on no more than a majority of several servers: it is set on the others with its first renewal, of
/// which there is one in each ttl, and which may be slow.
const SPREAD: u64 = 1_200_000_000;

/// Compares holders of a key as they come. Returns what is wrong, and how many overlaps are allowed.
pub(super) fn check(holds: &[Hold], asked: &BTreeMap<&str, u64>, losses: &[Loss]) -> (Vec<Violation>, usize) {
    let mut at_once: BTreeMap<&str, Vec<Holder<'_>>> = BTreeMap::new();
    let mut last: BTreeMap<(&str, &str), Holder<'_>> = BTreeMap::new();
    let (mut violations, mut excused) = (Vec::new(), 0);
    for hold in holds {
        let earlier = last.get(&(client(hold), &*hold.key));
        let earlier = earlier.filter(|earlier| hold.from <= earlier.hold.to + HAND_OVER);
        let asked = asked.get(&*hold.token).map_or(hold.from, |asked| hold.from.min(*asked));
        let holder = Holder { hold, since: earlier.map_or(asked, |earlier| earlier.since) };
        last.insert((client(hold), &hold.key), holder);
        let together = at_once.entry(&hold.key).or_default();
        together.retain(|before| hold.from <= before.hold.to);
        if !go_together(together, holder) {
            let left: Vec<Holder<'_>> =
                together.iter().filter(|before| !is_forgotten(before, hold.from, losses)).copied().collect();
            let first = left.iter().map(|before| before.since).min().unwrap_or_default();
            if go_together(&left, holder) || is_forgotten(&holder, first, losses) {
                excused += 1;
            } else {
                violations.push(violation(&left, hold));
            }
        }
        together.push(holder);
    }
    (violations, excused)
}

fn client(hold: &Hold) -> &str {
    hold.token.split('.').next().unwrap_or_default()
}

fn go_together(before: &[Holder<'_>], holder: Holder<'_>) -> bool {
    let kinds: Vec<Kind> = before.iter().chain([&holder]).map(|holder| holder.hold.kind).collect();
    Kind::go_together(&kinds)
}

/// Whether a holder may be there beside another one, who came at `next`: its lock was forgotten before that, and it goes on for no
/// longer than its lease. A grant that the successor had confirmed is not forgotten.
fn is_forgotten(holder: &Holder<'_>, next: u64, losses: &[Loss]) -> bool {
    losses.iter().any(|loss| {
        let lease = u64::try_from(TTL.as_nanos()).unwrap_or(u64::MAX) + SLACK;
        let is_kept = loss.keeps_grants() && next < holder.since + GRANTED
            || loss.is_of_one() && loss.from > holder.hold.from + SPREAD;
        !is_kept && holder.since <= loss.to && loss.from <= next && holder.hold.to <= loss.to.saturating_add(lease)
    })
}

fn violation(before: &[Holder<'_>], hold: &Hold) -> Violation {
    let names: Vec<_> = before.iter().map(|before| format!("{} ({})", before.hold.token, before.hold.kind)).collect();
    let until = before.iter().map(|before| before.hold.to).max().unwrap_or_default().min(hold.to);
    let time = Duration::from_nanos(until.saturating_sub(hold.from));
    let what =
        format!("{} ({}) held `{}` beside {} for {time:?}", hold.token, hold.kind, hold.key, names.join(" and "));
    Violation { what, key: hold.key.clone(), at: hold.from }
}

#[cfg(test)]
mod tests {
    use harness::holders::{Until, holds};

    use super::*;
    use crate::history::{CONFIRMED_FAILOVER, STEP_OF_ONE};

    const MILLI: u64 = 1_000_000;

    fn checked(log: &[(u64, &str)], losses: &[(u64, u64)]) -> (usize, usize) {
        checked_after("", log, losses)
    }

    fn checked_after(why: &str, log: &[(u64, &str)], losses: &[(u64, u64)]) -> (usize, usize) {
        let log: Vec<_> = log.iter().map(|(at, rest)| format!("{} {rest}", at * MILLI)).collect();
        let losses = losses.iter().map(|(from, to)| Loss { why: why.to_owned(), from: from * MILLI, to: to * MILLI });
        let holds = holds(&log.join("\n"), Until::LastStep);
        // On its way for 10 ms.
        let asked = holds.iter().map(|hold| (&*hold.token, hold.from - 10 * MILLI)).collect();
        let (violations, excused) = check(&holds, &asked, &losses.collect::<Vec<_>>());
        (violations.len(), excused)
    }

    const OVERLAP: [(u64, &str); 4] =
        [(100, "start a x k"), (300, "start b x k"), (400, "step a x k"), (500, "step b x k")];

    #[test]
    fn two_at_once_are_a_violation() {
        assert_eq!(checked(&OVERLAP, &[]), (1, 0));
    }

    #[test]
    fn what_was_forgotten_in_between_is_allowed() {
        assert_eq!(checked(&OVERLAP, &[(200, 210)]), (0, 1));
    }

    #[test]
    fn a_grant_that_was_confirmed_is_not_forgotten_and_its_renewals_are() {
        let log = |next| {
            let begins = [(100, "start a x k"), (next, "start b x k")];
            [begins[0], begins[1], (600, "step a x k"), (600, "step b x k")]
        };
        assert_eq!(checked_after(CONFIRMED_FAILOVER, &log(250), &[(200, 210)]), (1, 0));
        assert_eq!(checked_after(CONFIRMED_FAILOVER, &log(550), &[(200, 210)]), (0, 1));
    }

    #[test]
    fn a_grant_that_was_on_its_way_may_be_forgotten_when_its_body_begins() {
        assert_eq!(checked(&OVERLAP, &[(89, 89)]), (1, 0));
        assert_eq!(checked(&OVERLAP, &[(95, 95)]), (0, 1));
    }

    #[test]
    fn of_several_servers_one_gives_its_vote_twice_only_before_a_lock_stands_on_all() {
        let log =
            |begin| [(begin, "start a x k"), (1_900, "start b x k"), (2_000, "step a x k"), (2_000, "step b x k")];
        assert_eq!(checked_after(STEP_OF_ONE, &log(1_700), &[(1_850, 1_850)]), (0, 1));
        assert_eq!(checked_after(STEP_OF_ONE, &log(600), &[(1_850, 1_850)]), (1, 0));
    }

    #[test]
    fn what_was_forgotten_before_or_after_excuses_nothing() {
        assert_eq!(checked(&OVERLAP, &[(50, 60)]), (1, 0));
        assert_eq!(checked(&OVERLAP, &[(350, 360)]), (1, 0));
    }

    #[test]
    fn nobody_goes_on_for_longer_than_its_lease() {
        let log = [(100, "start a x k"), (300, "start b x k"), (1_200, "step a x k"), (1_300, "step b x k")];
        assert_eq!(checked(&log, &[(200, 210)]), (1, 0));
    }

    #[test]
    fn what_is_nested_in_what_was_forgotten_is_forgotten_too() {
        let log = [
            (100, "start a.1/1 x k"),
            (220, "step a.1/1 x k"),
            (221, "start b.1/1 x k"),
            (222, "start a.1/2 x k"),
            (300, "step a.1/2 x k"),
            (400, "step b.1/1 x k"),
        ];
        assert_eq!(checked(&log, &[(200, 210)]), (0, 1));
        assert_eq!(checked(&log, &[]), (1, 0));
    }

    #[test]
    fn of_several_permits_only_as_many_are_forgotten_as_were_there() {
        let log = |late| {
            [
                (100, "start a p2 k"),
                (late, "start b p2 k"),
                (300, "start c p2 k"),
                (400, "step a p2 k"),
                (400, "step b p2 k"),
                (400, "step c p2 k"),
            ]
        };
        assert_eq!(checked(&log(110), &[(200, 210)]), (0, 1));
        assert_eq!(checked(&log(110), &[]), (1, 0));
        // The second came after the loss, and takes nothing from the third.
        assert_eq!(checked(&log(250), &[(200, 210)]), (0, 1));
    }
}
