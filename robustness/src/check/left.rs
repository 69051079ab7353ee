//! Nothing stands on the server for longer than somebody needs it: not without an end, and not after the calls that it is for.

use std::collections::BTreeMap;

use super::{Promise, Violation};
use crate::client::calls::{Call, EXCLUSIVE, PERMITTED, READERS_AND_WRITERS};
use crate::client::{TTL, owner};
use crate::history::{Event, What, nanos};
use crate::loss::Failed;

/// How long a crowded machine may take from the end of a call to the end of its lock, which nobody waits for where the call was dropped.
const FREED: u64 = 350_000_000;
/// A client that has not been heard of for so long may stand still, as all of a crowded machine may.
const SILENT: u64 = 250_000_000;
/// What stands for longer than a lease was set when the server's clock was ahead, by this at most.
const STEP: u64 = 12_000_000_000;

/// The calls of one client.
#[derive(Default)]
struct Calls<'a> {
    open: BTreeMap<&'a str, &'a str>,
    /// Those that have ended a moment ago.
    done: Vec<(u64, &'a str)>,
    /// When anything was heard of it last.
    heard: u64,
}

impl Calls<'_> {
    fn needs(&self, key: &str, since: u64) -> bool {
        let done = self.done.iter().filter(|(at, _)| *at >= since).map(|(_, call)| call);
        self.open.values().chain(done).any(|call| may_need(call, key))
    }
}

/// Looks at each lock that is seen on the server: whose it is, and whether that client has had a call for it a moment ago. Tells of
/// each but once.
pub(super) fn check(events: &[Event], failed: &Failed) -> Vec<Violation> {
    let mut clients: BTreeMap<String, Calls<'_>> = BTreeMap::new();
    let mut violations: BTreeMap<&str, Violation> = BTreeMap::new();
    // When each value was first seen under its key.
    let (mut first, mut looked) = (BTreeMap::<(&str, &str), u64>::new(), 0);
    for event in events {
        if event.who != "-" {
            clients.entry(owner_of(&event.who)).or_default().heard = event.at;
        }
        match &event.what {
            What::Call(what) => drop(clients.entry(owner_of(&event.who)).or_default().open.insert(&event.who, what)),
            What::Done(_) => {
                let calls = clients.entry(owner_of(&event.who)).or_default();
                calls.done.retain(|(at, _)| *at + 2 * FREED > event.at);
                calls.done.extend(calls.open.remove(&*event.who).map(|what| (event.at, what)));
            }
            What::Looked(sent) => looked = *sent,
            What::Endless(name) => {
                let what = format!("on the server stands {name}, which is to have an end within a day");
                let key = key_of(name).to_owned();
                violations.entry(name).or_insert(Violation { promise: Promise::Left, what, key, at: event.at });
            }
            What::Stands { key, token, owner, until } => {
                let is_needed = clients.get(owner).is_none_or(|calls| {
                    calls.heard + SILENT < looked || calls.needs(key, looked.saturating_sub(FREED))
                });
                let first = *first.entry((key, token)).or_insert(looked);
                let long = if *until > event.at + nanos(TTL) { STEP } else { FREED };
                let from = looked.saturating_sub(long).min(first);
                if !is_needed && !may_be_left(owner, key, from, event.at, failed) {
                    let what =
                        format!("`{key}` is held for {owner} ({token}), which has had no call for it for a while");
                    let key = key.clone();
                    violations.entry(token).or_insert(Violation { promise: Promise::Left, what, key, at: event.at });
                }
            }
            _ => {}
        }
    }
    violations.into_values().collect()
}

/// Whether something was in the way when this was to be given back. What was given back since a server saved its data is there again.
fn may_be_left(owner: &str, key: &str, from: u64, to: u64, failed: &Failed) -> bool {
    let client = owner.strip_prefix("client-").unwrap_or_default();
    failed.hindered(client, from, to) || failed.forgetting(key, from, to).next().is_some()
}

/// Whether a call is for a key, or might be: `<function> <number>`, where several keys have any number.
fn may_need(call: &str, key: &str) -> bool {
    let (Some((function, number)), Some((kind, of_key))) = (call.split_once(' '), key.split_once(':')) else {
        return true;
    };
    let is_any = |names: &[Call]| names.iter().any(|name| format!("{name:?}") == function);
    let is_kind = match kind {
        "x" => is_any(&EXCLUSIVE),
        "rw" => is_any(&READERS_AND_WRITERS),
        _ => is_any(&PERMITTED),
    };
    is_kind && (number == of_key || function.starts_with("Both"))
}

/// Of the client that a worker belongs to.
fn owner_of(worker: &str) -> String {
    worker.split('.').next().and_then(|number| number.parse().ok()).map_or_else(String::new, owner)
}

fn key_of(name: &str) -> &str {
    name.split(['{', '}']).nth(1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::read;

    fn is_wrong(journal: &str) -> bool {
        let events = read(journal);
        !check(&events, &Failed::of(&events)).is_empty()
    }

    /// A call from 10 to 50 ms, and what is seen at 600 ms.
    fn seen_late(more: &str) -> bool {
        let calls = "10000000 7.1 call Tried 1\n50000000 7.1 done dropped\n500000000 7.4 call Tried 3\n";
        is_wrong(&format!("{calls}{more}600000000 - looked 590000000\n600000000 - stands x:1 t client-7 700000000\n"))
    }

    #[test]
    fn what_stands_long_after_its_call_was_left_behind() {
        assert!(seen_late(""));
        assert!(!is_wrong(
            "10 7.1 call Tried 1\n600000000 - looked 590000000\n600000000 - stands x:1 t client-7 700000000\n"
        ));
    }

    #[test]
    fn a_client_that_stands_still_is_not_late() {
        let calls = "10000000 7.1 call Tried 1\n50000000 7.1 done dropped\n";
        let seen = "600000000 - looked 590000000\n600000000 - stands x:1 t client-7 700000000\n";
        assert!(!is_wrong(&format!("{calls}{seen}")));
    }

    #[test]
    fn another_call_of_its_client_may_need_it() {
        assert!(!seen_late("300000000 7.2 call Waited 1\n"));
        assert!(!seen_late("300000000 7.2 call BothTried 2\n400000000 7.2 done ok\n"));
        assert!(seen_late("300000000 7.2 call Waited 2\n300000000 7.3 call ReadTried 1\n300000000 8.1 call Tried 1\n"));
    }

    #[test]
    fn who_is_broken_gives_nothing_back() {
        assert!(!seen_late("45000000 - broken 7 40000000 45000000\n"));
        assert!(!seen_late("45000000 - broken server 40000000 45000000\n"));
        assert!(seen_late("45000000 - broken 8 40000000 45000000\n"));
    }

    #[test]
    fn what_has_no_end_is_wrong() {
        assert!(is_wrong("5 - endless lock:{x:1}:fence (-1 ms)\n"));
    }
}
