//! What the journal says, read back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::client::TTL;
use crate::loss::{Ahead, Broken, Loss};

/// A lease as the library counts it: a ttl, without what clocks may differ by.
const LEASE: Duration = TTL.saturating_sub(Duration::from_millis(10));

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// By the clock of all processes, in nanoseconds.
    pub(crate) at: u64,
    pub(crate) who: String,
    pub(crate) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A call begins: the function and its keys.
    Call(String),
    /// A body begins to run: its name in the log of holders, and the fencing token if there is one.
    Grant {
        holder: String,
        fence: Option<u64>,
    },
    /// A body goes by a lease that lasts until then, by the acquisition's token.
    Believes {
        token: String,
        until: u64,
    },
    /// All locks on the server were looked at, not before this. What stood there follows, with the same stamp.
    Looked(u64),
    /// What stood under a key, whose it was, and until when it stands at most.
    Stands {
        key: String,
        token: String,
        owner: String,
        until: u64,
    },
    /// A name on the server that has no expiry, or one that is too far off.
    Endless(String),
    /// A body has done something so long after the deadline of its lease.
    Late {
        key: String,
        by: Duration,
    },
    /// A call has ended, and how.
    Done(String),
    /// A write to a register is sent, with a fencing token.
    Write {
        register: String,
        fence: u64,
        value: u64,
    },
    /// And answered: whether it was taken.
    Wrote(bool),
    /// A read of a register is sent, and answered.
    Read {
        register: String,
    },
    Was(u64),
    /// A counter is read, to be set to one more without a token; and it was set to that.
    Count {
        counter: String,
    },
    Counted(u64),
    /// What was made to fail, or mended.
    Fault(String),
    /// A server has forgotten what it had granted.
    Lost(Loss),
    /// Something was being broken, from when to when.
    Broken(Broken),
    /// The wall clock of a server was ahead.
    Ahead(Ahead),
}

/// Reads a journal, in the order of its stamps.
pub(crate) fn read(text: &str) -> Vec<Event> {
    let mut events: Vec<Event> = text.lines().map(event).collect();
    events.sort_by_key(|event| event.at);
    events
}

fn event(line: &str) -> Event {
    let parsed = (|| {
        let (stamp, rest) = line.split_once(' ')?;
        let (who, rest) = rest.split_once(' ')?;
        Some(Event { at: stamp.parse().ok()?, who: who.to_owned(), what: what(rest)? })
    })();
    parsed.unwrap_or_else(|| panic!("not a line of a journal: `{line}`"))
}

fn what(text: &str) -> Option<What> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let mut words = rest.split(' ');
    Some(match word {
        "call" => What::Call(rest.to_owned()),
        "grant" => {
            What::Grant { holder: words.next()?.to_owned(), fence: words.next().and_then(|fence| fence.parse().ok()) }
        }
        "believes" => What::Believes { token: words.next()?.to_owned(), until: words.next()?.parse().ok()? },
        "looked" => What::Looked(rest.parse().ok()?),
        "stands" => What::Stands {
            key: words.next()?.to_owned(),
            token: words.next()?.to_owned(),
            owner: words.next()?.to_owned(),
            until: words.next()?.parse().ok()?,
        },
        "endless" => What::Endless(rest.to_owned()),
        "late" => What::Late { key: words.next()?.to_owned(), by: Duration::from_nanos(words.next()?.parse().ok()?) },
        "done" => What::Done(rest.to_owned()),
        "write" => What::Write {
            register: words.next()?.to_owned(),
            fence: words.next()?.parse().ok()?,
            value: words.next()?.parse().ok()?,
        },
        "wrote" => What::Wrote(rest == "1"),
        "read" => What::Read { register: words.next()?.to_owned() },
        "was" => What::Was(rest.parse().ok()?),
        "count" => What::Count { counter: words.next()?.to_owned() },
        "counted" => What::Counted(rest.parse().ok()?),
        "fault" => What::Fault(rest.to_owned()),
        "lost" => What::Lost(Loss::read(rest)?),
        "broken" => What::Broken(Broken::read(rest)?),
        "ahead" => What::Ahead(Ahead::read(rest)?),
        _ => return None,
    })
}

/// The lease of a holder, as its body saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leased {
    /// When its lock was asked for, as the lease tells, which counts from that: its grant may have been on its way for a while when its
    /// body began. For one that was passed on within its process, or passes under another, it is the request by which the lease was
    /// last made longer.
    pub(crate) since: u64,
    /// That of its acquisition.
    pub(crate) token: String,
    /// Whether the library makes it longer.
    pub(crate) is_renewed: bool,
    /// Until when it believed to have it, and when it did so.
    pub(crate) beliefs: Vec<(u64, u64)>,
}

/// The leases of all holders, by their names in the log of holders. None for one that began when its lease had ended.
pub(crate) fn leased(events: &[Event]) -> BTreeMap<&str, Leased> {
    let mut current: BTreeMap<&str, (Vec<&str>, bool)> = BTreeMap::new();
    let (mut leased, mut unwatched) = (BTreeMap::<&str, Leased>::new(), BTreeSet::new());
    for event in events {
        match &event.what {
            What::Call(what) if what.starts_with("Unwatched ") => drop(unwatched.insert(&*event.who)),
            What::Call(_) => drop(unwatched.remove(&*event.who)),
            What::Grant { holder, .. } => {
                let (holders, has_begun) = current.entry(&event.who).or_default();
                if std::mem::take(has_begun) {
                    holders.clear();
                }
                holders.push(holder);
            }
            What::Believes { token, until } => {
                let Some((holders, has_begun)) = current.get_mut(&*event.who) else { continue };
                *has_begun = true;
                for holder in holders {
                    let leased = leased.entry(holder).or_insert_with(|| Leased {
                        since: since(*until),
                        token: token.clone(),
                        is_renewed: !unwatched.contains(&*event.who),
                        beliefs: Vec::new(),
                    });
                    leased.beliefs.push((event.at, *until));
                }
            }
            What::Done(_) => drop(current.remove(&*event.who)),
            _ => {}
        }
    }
    leased
}

/// When a lease was asked for that lasts until then.
pub(crate) fn since(until: u64) -> u64 {
    until.saturating_sub(nanos(LEASE))
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_read_in_the_order_of_its_stamps() {
        let events = read("5 0.1 done ok\n1 0.1 call exclusive x:1\n3 0.1 grant x:1 17\n4 0.1 grant x:2 -\n");
        let what: Vec<_> = events.into_iter().map(|event| event.what).collect();
        let grant = |holder: &str, fence| What::Grant { holder: holder.to_owned(), fence };
        assert_eq!(
            what,
            [
                What::Call("exclusive x:1".to_owned()),
                grant("x:1", Some(17)),
                grant("x:2", None),
                What::Done("ok".to_owned())
            ]
        );
    }

    #[test]
    fn a_lease_tells_when_its_lock_was_asked_for() {
        let events = read(
            "900000000 0.1 grant a 1\n900000000 0.1 grant b 1\n900000001 0.1 believes t 1600000000\n900000002 0.1 believes t 1900000000\n",
        );
        let lease = Leased {
            since: 810_000_000,
            token: "t".to_owned(),
            is_renewed: true,
            beliefs: vec![(900_000_001, 1_600_000_000), (900_000_002, 1_900_000_000)],
        };
        assert_eq!(leased(&events), BTreeMap::from([("a", lease.clone()), ("b", lease)]));
    }

    #[test]
    fn what_is_nested_has_a_lease_of_its_own_from_then_on() {
        let events = read("1 0.1 grant a 1\n2 0.1 believes t 900000000\n3 0.1 grant b 1\n4 0.1 believes t 900000000\n");
        let begins = |holder| leased(&events)[holder].beliefs.iter().map(|(at, _)| *at).collect::<Vec<_>>();
        assert_eq!((begins("a"), begins("b")), (vec![2], vec![4]));
    }

    #[test]
    #[should_panic(expected = "not a line of a journal: `1 - nonsense`")]
    fn what_is_no_line_is_no_history() {
        read("1 - nonsense");
    }
}
