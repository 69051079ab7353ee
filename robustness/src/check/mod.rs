//! What is promised, held against what was done.
//!
//! - `exclusion`: never two holders that exclude each other, but where `TOPOLOGIES.md` allows it: a server has forgotten what it had
//!   granted to the first before the second came. Then for no longer than to the next renewal, or than the lease where that is hindered.
//! - `fences`: the fencing tokens of a key rise from holder to holder, whatever is forgotten.
//! - `registers`: what is written with fencing tokens is linearizable.
//! - `counters`: what is read, and then written without a token, is not lost, but where a server has forgotten.
//! - `leases`: nobody goes on without its lock, or believes in it for longer than the server keeps it (looked at on one server).
//! - `left`: nothing stands there without an end, or after the calls that it is for.
//! - `ends`: nobody is told that its lock is lost before its lease ends, but where a server has forgotten it.
//! - no body does anything after the deadline of its lease.
//!
//! That all is free in the end, and nothing is left, is looked at in the end, by `run`.

mod exclusion;
mod fences;
mod registers;
mod counters;
mod leases;
mod left;
mod ends;

use harness::holders::{Hold, Until, holds};

use crate::history::{Event, What, leased, read};
use crate::loss::Failed;

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    Exclusion,
    Fences,
    Registers,
    Counters,
    Leases,
    Left,
    Ends,
    Deadlines,
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) promise: Promise,
    pub(crate) what: String,
    pub(crate) key: String,
    /// When it was seen.
    pub(crate) at: u64,
}

/// All that was written down, and what is wrong with it.
pub(crate) struct Checked {
    pub(crate) events: Vec<Event>,
    pub(crate) holds: Vec<Hold>,
    /// Overlaps that the documentation allows.
    pub(crate) excused: usize,
    /// Holders with a lower token than an earlier one, as it allows, too.
    pub(crate) late: usize,
    pub(crate) exempt: Exempt,
    /// How many writes and reads of registers were checked.
    pub(crate) operations: usize,
    /// How often a holder was compared with what stood on the server.
    pub(crate) compared: usize,
    /// How many calls ended as lost, and were checked for that.
    pub(crate) lost: usize,
    pub(crate) violations: Vec<Violation>,
}

/// How much could not be checked, since a server might have forgotten.
pub(crate) struct Exempt {
    /// The share of the time in which that may have happened, or a lock go on that was forgotten.
    pub(crate) time: f64,
    /// How many holders that came one after the other might have had any token, and of how many.
    pub(crate) pairs: (usize, usize),
}

impl Exempt {
    pub(crate) fn is_above(&self, share: f64) -> bool {
        let (exempt, pairs) = self.pairs;
        #[allow(clippy::cast_precision_loss, reason = "some thousands")]
        let of_pairs = exempt as f64 / pairs.max(1) as f64;
        self.time.max(of_pairs) > share
    }
}

/// Checks a journal and a log of holders.
pub(crate) fn check(journal: &str, holders: &str) -> Checked {
    let (events, holds) = (read(journal), holds(holders, Until::LastStep));
    let (failed, leased) = (Failed::of(&events), leased(&events));
    let (mut violations, excused) = exclusion::check(&holds, &leased, &failed);
    let fences = fences::check(&holds, &events, &failed);
    violations.extend(fences.violations);
    let (operations, unserializable) = registers::check(&events);
    violations.extend(unserializable);
    let forgotten: Vec<_> = failed.losses.iter().map(|loss| (loss.from, loss.to)).collect();
    violations.extend(counters::check(&events, &forgotten));
    let (overlong, compared) = leases::check(&holds, &events, &leased, &failed);
    violations.extend(overlong);
    violations.extend(left::check(&events, &failed));
    let (lost, untrue) = ends::check(&events, &failed);
    violations.extend(untrue);
    violations.extend(events.iter().filter_map(after_deadline));
    violations.sort_by_key(|violation| violation.at);
    let exempt = Exempt { time: failed.share_of_time(&events), pairs: (fences.exempt, fences.pairs) };
    Checked { events, holds, excused, late: fences.late, exempt, operations, compared, lost, violations }
}

/// The number of the client that holds.
fn client(hold: &Hold) -> &str {
    hold.token.split('.').next().unwrap_or_default()
}

fn after_deadline(event: &Event) -> Option<Violation> {
    let What::Late { key, by } = &event.what else { return None };
    let what = format!("{} has done something under `{key}` {by:?} after the deadline of its lease", event.who);
    Some(Violation { promise: Promise::Deadlines, what, key: key.clone(), at: event.at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_after_a_deadline_is_a_violation() {
        let checked = check("5 0.1 late x:1 7000000\n", "");
        assert_eq!(
            checked.violations,
            [Violation {
                promise: Promise::Deadlines,
                what: "0.1 has done something under `x:1` 7ms after the deadline of its lease".to_owned(),
                key: "x:1".to_owned(),
                at: 5
            }]
        );
    }
}
