//! What the journal says, read back.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::client::TTL;

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
    /// A lock stands on the server, and until when at most, by the same token.
    Stands {
        token: String,
        until: u64,
    },
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
    /// From now on a server may have forgotten what it has granted; until the next [`What::Kept`].
    Losing(String),
    Kept,
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
        "stands" => What::Stands { token: words.next()?.to_owned(), until: words.next()?.parse().ok()? },
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
        "losing" => What::Losing(rest.to_owned()),
        "kept" => What::Kept,
        _ => return None,
    })
}

/// Why a server may have forgotten: it may be that its clock was set, so that leases ended early, and no data is gone.
pub(crate) const STEP: &str = "step of the clock";
/// It is one of several independent servers whose clock was set forward: locks that it had granted have ended there alone.
pub(crate) const STEP_OF_ONE: &str = "step of one of several clocks";
/// Another server takes its place, and each that could have confirmed all that was granted.
pub(crate) const CONFIRMED_FAILOVER: &str = "failover, after all replicas had confirmed what was granted";

/// A time in which a server may have forgotten what it had granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) why: String,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Loss {
    pub(crate) fn is_step(&self) -> bool {
        self.why == STEP
    }

    /// Whether one of several servers can give its vote twice.
    pub(crate) fn is_of_one(&self) -> bool {
        self.why == STEP_OF_ONE
    }

    /// Whether what was granted is kept, and only renewals may be forgotten: no replica has to confirm these.
    pub(crate) fn keeps_grants(&self) -> bool {
        self.why == CONFIRMED_FAILOVER
    }
}

/// All such times. One that has no end lasts to the end.
pub(crate) fn losses(events: &[Event]) -> Vec<Loss> {
    let mut losses: Vec<Loss> = Vec::new();
    for event in events {
        match &event.what {
            What::Losing(why) => losses.push(Loss { why: why.clone(), from: event.at, to: u64::MAX }),
            What::Kept => {
                let open = losses.iter_mut().filter(|loss| loss.to == u64::MAX);
                open.for_each(|loss| loss.to = event.at);
            }
            _ => {}
        }
    }
    losses
}

/// When each holder's lock was asked for, as its lease tells, which counts from that: its grant may have been on its way for a while
/// when its body began. For one that was passed on within its process, it is the request by which the lease was last made longer.
pub(crate) fn asked(events: &[Event]) -> BTreeMap<&str, u64> {
    let (mut begun, mut asked) = (BTreeMap::<&str, Vec<&str>>::new(), BTreeMap::new());
    for event in events {
        match &event.what {
            What::Grant { holder, .. } => begun.entry(&event.who).or_default().push(holder),
            What::Believes { until, .. } => {
                let lease = u64::try_from(TTL.as_nanos()).unwrap_or(u64::MAX);
                let holders = begun.remove(&*event.who).unwrap_or_default();
                asked.extend(holders.into_iter().map(|holder| (holder, until.saturating_sub(lease))));
            }
            // It began with a lease that had ended.
            What::Done(_) => drop(begun.remove(&*event.who)),
            _ => {}
        }
    }
    asked
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
        assert_eq!(asked(&events), BTreeMap::from([("a", 800_000_000), ("b", 800_000_000)]));
    }

    #[test]
    fn a_loss_lasts_until_what_is_granted_is_kept_again() {
        let events = read("1 - losing flushed\n2 - kept\n5 - losing failover\n");
        let losses = losses(&events);
        assert_eq!((losses[0].from, losses[0].to), (1, 2));
        assert_eq!((losses[1].from, losses[1].to), (5, u64::MAX));
    }

    #[test]
    #[should_panic(expected = "not a line of a journal: `1 - nonsense`")]
    fn what_is_no_line_is_no_history() {
        read("1 - nonsense");
    }
}
