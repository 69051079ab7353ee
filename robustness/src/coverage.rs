//! Whether enough of everything happened for a run to prove something.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use harness::holders::{Hold, Kind};

use crate::client::calls::{Call, EXCLUSIVE, PERMITS, PERMITTED, READERS_AND_WRITERS};
use crate::history::{Event, What, leased};

/// How often each thing happened that has to happen.
#[derive(Debug)]
pub(crate) struct Coverage(BTreeMap<String, usize>);

/// Of a kind of lock: what is called for it. Where fewer of these calls get their locks than this, they need not come to everything.
const KINDS: [(&[Call], usize); 3] = [(&EXCLUSIVE, 200), (&READERS_AND_WRITERS, 100), (&PERMITTED, 100)];
/// What happens often enough for any run.
const ALWAYS: [&str; 2] = ["counted under a lock alone", "dropped before a grant"];
const ALWAYS_WHERE_SHARED: [&str; 3] =
    ["all permits given", "refused a permit at the limit", "a reader beside a reader"];

/// And what does not: with how many grants of which of [`KINDS`] it is to be expected.
const RARE: [(&str, usize, usize); 3] = [
    ("stopped after `max_hold`", 0, 200),
    ("passed on within a process", 0, 600),
    ("a writer waits beside two readers", 1, 200),
];

/// What is known of the call that a worker is in.
struct Current<'a> {
    name: &'a str,
    key: &'a str,
    grants: usize,
}

impl Coverage {
    pub(crate) fn of(events: &[Event], holds: &[Hold], only_exclusive: bool) -> Coverage {
        let kinds = if only_exclusive { &KINDS[..1] } else { &KINDS[..] };
        let grants = kinds.iter().flat_map(|(calls, _)| names(calls));
        let of_shared = ALWAYS_WHERE_SHARED.iter().filter(|_| !only_exclusive);
        let rare = RARE.iter().filter(|(_, kind, _)| *kind == 0 || !only_exclusive).map(|(what, ..)| what);
        let others = ALWAYS.iter().chain(rare).chain(of_shared).map(|what| (*what).to_owned());
        let mut seen = Coverage(grants.chain(others).map(|what| (what, 0)).collect());
        seen.calls(events, holds);
        seen.holds(events, holds);
        seen
    }

    /// What did not happen at all, and should have with so many calls.
    pub(crate) fn missing(&self) -> Vec<&str> {
        self.0.iter().filter(|(what, count)| **count == 0 && self.is_due(what)).map(|(what, _)| &**what).collect()
    }

    fn is_due(&self, what: &str) -> bool {
        let rare = RARE.iter().find(|(rare, ..)| *rare == what).map(|(_, kind, many)| (names(KINDS[*kind].0), *many));
        let mut of_kinds = KINDS.iter().map(|(calls, many)| (names(calls), *many));
        let of_what = rare.or_else(|| of_kinds.find(|(names, _)| names.contains(what)));
        of_what.is_none_or(|(names, many)| names.iter().filter_map(|name| self.0.get(name)).sum::<usize>() >= many)
    }

    fn count(&mut self, what: &str) {
        *self.0.entry(what.to_owned()).or_default() += 1;
    }

    fn calls(&mut self, events: &[Event], holds: &[Hold]) {
        let mut current: BTreeMap<&str, Current<'_>> = BTreeMap::new();
        for event in events {
            match &event.what {
                What::Call(what) => {
                    let (name, key) = what.split_once(' ').unwrap_or((what, ""));
                    if name.starts_with("Write") && held(holds, &format!("rw:{key}"), Kind::Reader, event.at) >= 2 {
                        self.count("a writer waits beside two readers");
                    }
                    current.insert(&event.who, Current { name, key, grants: 0 });
                }
                What::Grant { .. } => {
                    let Some(call) = current.get_mut(&*event.who) else { continue };
                    call.grants += 1;
                    if call.grants == needed(call.name) {
                        self.count(&granted(call.name));
                    }
                }
                What::Counted(_) => self.count("counted under a lock alone"),
                What::Done(how) => {
                    let Some(call) = current.remove(&*event.who) else { continue };
                    self.end(&call, how, holds, event.at);
                }
                _ => {}
            }
        }
    }

    fn end(&mut self, call: &Current<'_>, how: &str, holds: &[Hold], at: u64) {
        let permits = PERMITS as usize;
        match how {
            "lost HeldTooLong" => self.count("stopped after `max_hold`"),
            "dropped" if call.grants == 0 => self.count("dropped before a grant"),
            "busy" if call.name.starts_with("Permit") => {
                let given = held(holds, &format!("p:{}", call.key), Kind::Permits(permits), at);
                if given >= permits {
                    self.count("refused a permit at the limit");
                }
            }
            _ => {}
        }
    }

    fn holds(&mut self, events: &[Event], holds: &[Hold]) {
        let permits = PERMITS as usize;
        let leased = leased(events);
        let mut at_once: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
        let mut last: BTreeMap<(&str, &str), &Hold> = BTreeMap::new();
        for hold in holds {
            let together = at_once.entry(&hold.key).or_default();
            together.retain(|before| hold.from <= before.to);
            together.push(hold);
            match hold.kind {
                Kind::Permits(_) if together.len() == permits => self.count("all permits given"),
                Kind::Reader if together.len() > 1 => self.count("a reader beside a reader"),
                _ => {}
            }
            let before = last.insert((client(hold), &hold.key), hold);
            if let (Some(before), Some(leased)) = (before, leased.get(&*hold.token)) {
                // It goes by a lease that was asked for before another task of its process had begun to hold.
                if worker(before) != worker(hold) && before.to <= hold.from && leased.since <= before.from {
                    self.count("passed on within a process");
                }
            }
        }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<_> = self.0.iter().map(|(what, count)| format!("{what} {count}")).collect();
        f.write_str(&counts.join(", "))
    }
}

fn granted(call: &str) -> String {
    format!("granted {call}")
}

/// A call may be there twice.
fn names(calls: &[Call]) -> BTreeSet<String> {
    calls.iter().map(|call| granted(&format!("{call:?}"))).collect()
}

/// How many bodies have to begin for a call to have done what it is there for.
fn needed(call: &str) -> usize {
    let with_inner =
        [Call::Nested, Call::Siblings, Call::WriteNested, Call::PermitNested].map(|call| format!("{call:?}"));
    if with_inner.iter().any(|name| name == call) { 3 } else { 1 }
}

/// How many of a kind had a key then.
fn held(holds: &[Hold], key: &str, kind: Kind, at: u64) -> usize {
    holds.iter().filter(|hold| hold.kind == kind && hold.key == key && (hold.from..=hold.to).contains(&at)).count()
}

fn worker(hold: &Hold) -> &str {
    hold.token.split('/').next().unwrap_or_default()
}

fn client(hold: &Hold) -> &str {
    hold.token.split('.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use harness::holders::{Until, holds};

    use super::*;
    use crate::history::read;

    fn seen(what: &str, journal: &str, log: &str) -> usize {
        Coverage::of(&read(journal), &holds(log, Until::LastStep), false).0[what]
    }

    #[test]
    fn where_many_calls_have_their_locks_there_is_one_of_each_kind() {
        let missing = |calls: usize, only_exclusive| {
            let calls = "1 0.1 call Tried 1\n1 0.1 grant a 1\n1 0.1 done ok\n".repeat(calls);
            let coverage = Coverage::of(&read(&calls), &[], only_exclusive);
            coverage.missing().into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!([missing(1, false).len(), missing(1, true).len()], [5, 2]);
        let many = missing(KINDS[0].1, false);
        assert!(many.contains(&"granted Guarded".to_owned()) && !many.contains(&"granted ReadTried".to_owned()));
    }

    #[test]
    fn a_nested_call_counts_when_its_outer_body_goes_on() {
        let journal = "1 0.1 call Nested 1\n2 0.1 grant a 1\n3 0.1 grant b 1\n";
        assert_eq!(seen("granted Nested", journal, ""), 0);
        assert_eq!(seen("granted Nested", &format!("{journal}4 0.1 grant c 1\n"), ""), 1);
    }

    #[test]
    fn who_is_busy_is_refused_at_the_limit_only_where_all_permits_are_given() {
        let journal = "1 0.1 call PermitTried 0\n20 0.1 done busy\n";
        let two = "10 start a p3 p:0\n10 start b p3 p:0\n30 step a p3 p:0\n30 step b p3 p:0\n";
        let three = format!("{two}11 start c p3 p:0\n30 step c p3 p:0\n");
        let both = |log| (seen("all permits given", journal, log), seen("refused a permit at the limit", journal, log));
        assert_eq!((both(two), both(&three)), ((0, 0), (1, 1)));
    }

    #[test]
    fn a_writer_that_waits_counts_beside_two_readers() {
        let log = "10 start a r rw:0\n12 start b r rw:0\n30 step a r rw:0\n30 step b r rw:0\n";
        let waiting = |at| seen("a writer waits beside two readers", &format!("{at} 0.1 call WriteTried 0\n"), log);
        assert_eq!((waiting(11), waiting(13)), (0, 1));
        assert_eq!(seen("a reader beside a reader", "", log), 1);
    }

    #[test]
    fn a_lock_is_passed_on_with_a_lease_from_before_its_last_holder() {
        let log = "900000000 start 0.1/a x k\n900000010 step 0.1/a x k\n900000020 start 0.2/b x k\n";
        let journal =
            |asked| format!("900000020 0.2 grant 0.2/b 1\n900000021 0.2 believes t {}\n", asked + 790_000_000);
        let passed_on = |asked| seen("passed on within a process", &journal(asked), log);
        assert_eq!((passed_on(899_999_999), passed_on(900_000_015)), (1, 0));
    }
}
