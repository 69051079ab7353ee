use std::sync::Arc;
use std::time::Duration;

use crate::clock::Time;
use crate::hold::Hold;

/// A lock as a backend sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Entry<'a> {
    /// The key as the application knows it, of 1 to 1,024 bytes.
    pub key: &'a str,
    /// The value: the acquisition's token and the owner's label, `<uuid>/<owner>`; with a slash behind it for the whole lock, unless
    /// the caller may stand in a line. A backend with lines may add to a value that ends with a slash while others wait.
    pub value: &'a str,
    /// After how long the key expires, unless it is renewed.
    pub ttl: Duration,
    /// How long the backend may wait for an answer. To connect may take longer where a lock is acquired, and nowhere else.
    pub timeout: Duration,
    /// Who else may hold the lock at the same time.
    pub kind: Kind,
    /// Within which time the entry will be asked for again if it is refused; nothing if this is the last attempt. Where
    /// those who hold the lock share it with newcomers, these are held back for so long, so that it is free some time.
    pub returning: Option<Duration>,
    /// Whether to mint fencing tokens where the entry is set.
    pub fencing: Option<Fencing>,
    /// The manager, of 32 characters, if the entry may have a place in the line.
    pub waiter: Option<&'a str>,
    /// The value of a reader of the same process that has just got its share, and came with this one: whoever waits came after
    /// both.
    pub(crate) beside: Option<&'a str>,
    /// Whether others may be held back on behalf of this entry.
    pub(crate) marked: bool,
    /// What the entry is made of, where there is more of it.
    pub(crate) hold: Option<&'a Arc<Hold>>,
}

/// Who may hold a lock at the same time. Whatever is of different kinds excludes each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// One holder, also for writing.
    #[default]
    Exclusive,
    /// Any number of readers.
    Read,
    /// So many holders, from 1 to 10,000. Where they disagree on how many, the smallest number counts.
    Permits(u32),
}

impl Kind {
    /// Whether several may hold the lock.
    pub fn is_shared(self) -> bool {
        self != Kind::Exclusive
    }

    /// What the log calls it; nothing for the ordinary.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Kind::Exclusive => None,
            Kind::Read => Some("read"),
            Kind::Permits(_) => Some("permit"),
        }
    }

    pub(crate) fn permits(self) -> Option<u32> {
        if let Kind::Permits(permits) = self { Some(permits) } else { None }
    }
}

/// What fencing tokens are to be minted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fencing {
    /// How many, one above the other. The first is what is returned; the others count as given out.
    pub count: u32,
    /// What they must be above in any case.
    pub above: u64,
}

impl Fencing {
    /// Asks for one token.
    pub const ONE: Fencing = Fencing { count: 1, above: 0 };

    pub(crate) const fn new(count: u32, above: u64) -> Fencing {
        Fencing { count, above }
    }
}

impl<'a> Entry<'a> {
    /// Makes an entry, for tests of a backend.
    pub fn new(key: &'a str, value: &'a str, ttl: Duration, timeout: Duration) -> Entry<'a> {
        Entry {
            key,
            value,
            ttl,
            timeout,
            kind: Kind::Exclusive,
            returning: None,
            fencing: None,
            waiter: None,
            beside: None,
            marked: true,
            hold: None,
        }
    }

    /// The same, of another kind.
    #[must_use]
    pub fn with_kind(self, kind: Kind) -> Entry<'a> {
        Entry { kind, ..self }
    }

    /// The same, to be asked for again within some time if it is refused.
    #[must_use]
    pub fn returning_within(self, time: Duration) -> Entry<'a> {
        Entry { returning: Some(time), ..self }
    }

    /// The same, to mint fencing tokens.
    #[must_use]
    pub fn with_fencing(self, fencing: Fencing) -> Entry<'a> {
        Entry { fencing: Some(fencing), ..self }
    }

    /// The same, of a manager that waits.
    #[must_use]
    pub fn with_waiter(self, waiter: &'a str) -> Entry<'a> {
        Entry { waiter: Some(waiter), ..self }
    }

    /// Notes whether others may be held back on behalf of this entry.
    pub(crate) fn note_mark(&self, by_shares: bool) {
        if let (Some(hold), true) = (self.hold, by_shares) {
            hold.may_have_mark();
        }
    }

    /// The same with what is left of the timeout of something that began at `begin`.
    pub(crate) fn since(self, begin: Time) -> Entry<'a> {
        Entry { timeout: self.timeout.saturating_sub(Time::now().saturating_since(begin)), ..self }
    }
}
