//! Never two holders at once, but for what a server has forgotten.

use std::collections::BTreeMap;
use std::time::Duration;

use harness::holders::{Hold, Kind};

use super::{Promise, Violation, client};
use crate::history::Leased;
use crate::loss::{Failed, Loss};

/// A holder, and its lease.
#[derive(Clone, Copy)]
struct Holder<'a> {
    hold: &'a Hold,
    /// Since when its process may have had the lock: from the request.
    since: u64,
    leased: Option<&'a Leased>,
}

/// For how long after its begin a body has its lock by the grant, and not by renewals: at worst it was passed on within its process a
/// quarter of a second after that, and it took a third of a ttl to hear of it.
const GRANTED: u64 = 200_000_000;

/// For how long a lock may stand on no more than a majority of several servers: it is set on the others with its first renewal, of
/// which there is one in each ttl, and which may be slow.
const SPREAD: u64 = 1_200_000_000;

/// Compares holders of a key as they come. Returns what is wrong, and how many overlaps are allowed.
pub(super) fn check(holds: &[Hold], leased: &BTreeMap<&str, Leased>, failed: &Failed) -> (Vec<Violation>, usize) {
    let mut at_once: BTreeMap<&str, Vec<Holder<'_>>> = BTreeMap::new();
    let (mut violations, mut excused) = (Vec::new(), 0);
    for hold in holds {
        let leased = leased.get(&*hold.token);
        let holder = Holder { hold, since: leased.map_or(hold.from, |leased| hold.from.min(leased.since)), leased };
        let together = at_once.entry(&hold.key).or_default();
        together.retain(|before| hold.from <= before.hold.to);
        if !go_together(together, holder) {
            let left: Vec<Holder<'_>> =
                together.iter().filter(|before| !is_forgotten(before, hold.from, failed)).copied().collect();
            let first = left.iter().map(|before| before.since).min().unwrap_or_default();
            if go_together(&left, holder) || is_forgotten(&holder, first, failed) {
                excused += 1;
            } else {
                violations.push(violation(&left, hold));
            }
        }
        together.push(holder);
    }
    (violations, excused)
}

fn go_together(before: &[Holder<'_>], holder: Holder<'_>) -> bool {
    let kinds: Vec<Kind> = before.iter().chain([&holder]).map(|holder| holder.hold.kind).collect();
    Kind::go_together(&kinds)
}

/// Whether a holder may be there beside another one, who came at `next`: its lock was granted before a server forgot it, the other one
/// came after that, and it goes on for no longer than its lease, or the next renewal.
fn is_forgotten(holder: &Holder<'_>, next: u64, failed: &Failed) -> bool {
    let hold = holder.hold;
    let is_renewed = holder.leased.is_none_or(|leased| leased.is_renewed);
    let mut losses = failed.forgetting(&hold.key, holder.since, next);
    losses.any(|loss| !is_kept(holder, next, loss) && hold.to <= loss.ends(client(hold), is_renewed, &failed.broken))
}

/// Whether this lock still stood at `next` in spite of a loss: the successor had confirmed the grant, it was saved until later, or it
/// stood on more servers than the one whose clock was set.
fn is_kept(holder: &Holder<'_>, next: u64, loss: &Loss) -> bool {
    let is_saved = || {
        let before = |(at, until): &(u64, u64)| (*at <= loss.from).then_some(*until);
        let until = holder.leased.and_then(|leased| leased.beliefs.iter().filter_map(before).max());
        until.is_some_and(|until| next < until)
    };
    loss.keeps_grants() && next < holder.since + GRANTED
        || loss.is_saved() && is_saved()
        || loss.is_of_one() && loss.from > holder.hold.from + SPREAD
}

fn violation(before: &[Holder<'_>], hold: &Hold) -> Violation {
    let names: Vec<_> = before.iter().map(|before| format!("{} ({})", before.hold.token, before.hold.kind)).collect();
    let until = before.iter().map(|before| before.hold.to).max().unwrap_or_default().min(hold.to);
    let time = Duration::from_nanos(until.saturating_sub(hold.from));
    let what =
        format!("{} ({}) held `{}` beside {} for {time:?}", hold.token, hold.kind, hold.key, names.join(" and "));
    Violation { promise: Promise::Exclusion, what, key: hold.key.clone(), at: hold.from }
}

#[cfg(test)]
mod tests {
    use harness::holders::{Until, holds};

    use super::*;
    use crate::loss::{CONFIRMED_FAILOVER, SAVED, STEP_OF_ONE};

    const MILLI: u64 = 1_000_000;

    fn checked(log: &[(u64, &str)], losses: &[(u64, u64)]) -> (usize, usize) {
        checked_after("", log, losses)
    }

    fn checked_after(why: &str, log: &[(u64, &str)], losses: &[(u64, u64)]) -> (usize, usize) {
        let (log, losses) = (in_nanos(log), losses_of(why, losses));
        let holds = holds(&log, Until::LastStep);
        // On its way for 10 ms.
        let leased = |hold: &Hold| {
            let since = hold.from - 10 * MILLI;
            Leased { since, token: String::new(), is_renewed: true, beliefs: vec![(hold.from, since + 790 * MILLI)] }
        };
        let leased = holds.iter().map(|hold| (&*hold.token, leased(hold))).collect();
        let (violations, excused) = check(&holds, &leased, &Failed { losses, ..Failed::default() });
        (violations.len(), excused)
    }

    fn in_nanos(log: &[(u64, &str)]) -> String {
        let lines: Vec<_> = log.iter().map(|(at, rest)| format!("{} {rest}", at * MILLI)).collect();
        lines.join("\n")
    }

    fn losses_of(why: &str, losses: &[(u64, u64)]) -> Vec<Loss> {
        let loss = |&(from, to): &(u64, u64)| {
            let (from, to) = (from * MILLI, to * MILLI);
            Loss { why: why.to_owned(), from, to, back: to, keys: Vec::new() }
        };
        losses.iter().map(loss).collect()
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
        let log = in_nanos(&[
            (100, "start a.1/1 x k"),
            (220, "step a.1/1 x k"),
            (221, "start b.1/1 x k"),
            (222, "start a.1/2 x k"),
            (300, "step a.1/2 x k"),
            (400, "step b.1/1 x k"),
        ]);
        let holds = holds(&log, Until::LastStep);
        let found = |since: u64, losses| {
            let lease = |since| Leased { since, token: String::new(), is_renewed: true, beliefs: Vec::new() };
            let leased = [("a.1/1", 90), ("a.1/2", since), ("b.1/1", 215)].map(|(who, at)| (who, lease(at * MILLI)));
            let (violations, excused) = check(&holds, &leased.into(), &Failed { losses, ..Failed::default() });
            (violations.len(), excused)
        };
        assert_eq!(found(90, losses_of("", &[(200, 210)])), (0, 1));
        assert_eq!(found(90, Vec::new()), (1, 0));
        // It has not the other's lease, but was granted afresh.
        assert_eq!(found(212, losses_of("", &[(200, 210)])), (1, 0));
    }

    #[test]
    fn what_was_saved_stands_until_its_saved_lease_ends() {
        let log =
            |next| [(100, "start a x k"), (next, "start b x k"), (next + 1, "step a x k"), (next + 1, "step b x k")];
        assert_eq!(checked_after(SAVED, &log(500), &[(200, 210)]), (1, 0));
        assert_eq!(checked_after(SAVED, &log(500), &[(99, 110)]), (0, 1));
        assert_eq!(checked_after(SAVED, &log(900), &[(200, 300)]), (0, 1));
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

    /// What is forgotten can't excuse who was granted the lock afresh, after that.
    #[test]
    fn who_comes_again_after_a_loss_is_excused_by_nothing() {
        let log = [
            (100, "start a.1/1 x k"),
            (190, "step a.1/1 x k"),
            (220, "start a.2/2 x k"),
            (300, "start b.1/1 x k"),
            (400, "step a.2/2 x k"),
            (450, "step b.1/1 x k"),
        ];
        assert_eq!(checked(&log, &[(200, 210)]), (1, 0));
    }

    /// A renewal is due after a third of the ttl (267 ms) and has its answer within the command timeout (400 ms): nobody goes on
    /// for longer than that while nothing happens to it.
    #[test]
    fn a_loss_is_noticed_by_the_next_renewal() {
        let log = [(100, "start a x k"), (300, "start b x k"), (1_000, "step a x k"), (1_050, "step b x k")];
        assert_eq!(checked(&log, &[(200, 210)]), (1, 0));
    }
}
