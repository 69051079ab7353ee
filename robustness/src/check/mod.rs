//! What is promised, held against what was done.
//!
//! - `exclusion`: never two holders that exclude each other, but where `TOPOLOGIES.md` allows it: a server has forgotten what it had
//!   granted. Then for no longer than the lease that it had granted.
//! - `fences`: the fencing tokens of a key rise from holder to holder, whatever is forgotten.
//! - `registers`: what is written with fencing tokens is linearizable.
//! - `counters`: what is read, and then written without a token, is not lost, but where a server has forgotten.
//! - `leases`: nobody believes in a lease for longer than the server keeps the lock (looked at on one server).
//! - `ends`: nobody is told that its lock is lost before its lease ends, but where a server has forgotten it.
//! - no body does anything after the deadline of its lease.
//!
//! That all is free in the end, and nothing is left, is looked at in the end, by `run`.

mod exclusion;
mod fences;
mod registers;
mod counters;
mod leases;
mod ends;

use harness::holders::{Hold, Until, holds};

use crate::history::{Event, What, asked, losses, read};

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
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
    /// How many writes and reads of registers were checked.
    pub(crate) operations: usize,
    /// How many beliefs in leases were compared with what stood on the server.
    pub(crate) compared: usize,
    /// How many calls ended as lost, and were checked for that.
    pub(crate) lost: usize,
    pub(crate) violations: Vec<Violation>,
}

/// Checks a journal and a log of holders.
pub(crate) fn check(journal: &str, holders: &str) -> Checked {
    let (events, holds) = (read(journal), holds(holders, Until::LastStep));
    let losses = losses(&events);
    let (mut violations, excused) = exclusion::check(&holds, &asked(&events), &losses);
    let (unfenced, late) = fences::check(&holds, &events, &losses);
    violations.extend(unfenced);
    let (operations, unserializable) = registers::check(&events);
    violations.extend(unserializable);
    let forgotten: Vec<_> = losses.iter().map(|loss| (loss.from, loss.to)).collect();
    violations.extend(counters::check(&events, &forgotten));
    let (overlong, compared) = leases::check(&events);
    violations.extend(overlong);
    let (lost, untrue) = ends::check(&events, &losses);
    violations.extend(untrue);
    violations.extend(events.iter().filter_map(after_deadline));
    violations.sort_by_key(|violation| violation.at);
    Checked { events, holds, excused, late, operations, compared, lost, violations }
}

fn after_deadline(event: &Event) -> Option<Violation> {
    let What::Late { key, by } = &event.what else { return None };
    let what = format!("{} has done something under `{key}` {by:?} after the deadline of its lease", event.who);
    Some(Violation { what, key: key.clone(), at: event.at })
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
                what: "0.1 has done something under `x:1` 7ms after the deadline of its lease".to_owned(),
                key: "x:1".to_owned(),
                at: 5
            }]
        );
    }
}
