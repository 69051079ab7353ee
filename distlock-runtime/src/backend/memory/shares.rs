use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use crate::backend::Kind;
use crate::clock::Time;

/// What the readers of one lock have, or the holders of its permits: each until a time of its own.
#[derive(Default)]
pub(super) struct Shares {
    by_value: HashMap<String, (Kind, Time)>,
    /// The same from the first to expire to the last.
    by_expiry: BTreeSet<(Time, String)>,
    /// How many hold permits by each number of them that was asked for.
    asked: BTreeMap<u32, usize>,
}

/// What keeps somebody from a lock.
pub(super) struct Obstacle {
    /// Who it is, for people.
    pub(super) who: String,
    pub(super) remaining: Duration,
    /// The kind of the shares that are held, if that is it.
    pub(super) held: Option<Kind>,
}

impl Obstacle {
    /// Whether shares of another kind are what is in the way.
    pub(super) fn is_of_others(&self, kind: Kind) -> bool {
        self.held.is_some_and(|held| held != kind)
    }
}

impl Shares {
    /// Forgets what has expired by now.
    pub(super) fn purge(&mut self, now: Time) {
        while let Some((expires, value)) = self.by_expiry.first().filter(|(expires, _)| *expires <= now).cloned() {
            self.by_expiry.remove(&(expires, value.clone()));
            if let Some((kind, _)) = self.by_value.remove(&value) {
                self.count_out(kind);
            }
        }
    }

    pub(super) fn is_empty(&self, now: Time) -> bool {
        self.by_expiry.last().is_none_or(|(expires, _)| *expires <= now)
    }

    pub(super) fn has(&self, kind: Kind, value: &str, now: Time) -> bool {
        self.by_value.get(value).is_some_and(|(held, expires)| *held == kind && *expires > now)
    }

    /// Adds a share, or starts its expiry anew.
    pub(super) fn join(&mut self, kind: Kind, value: &str, expires: Time) {
        match self.by_value.get(value).map(|(_, known)| *known) {
            Some(known) => drop(self.by_expiry.remove(&(known, value.to_owned()))),
            None => self.count_in(kind),
        }
        self.by_expiry.insert((expires, value.to_owned()));
        self.by_value.insert(value.to_owned(), (kind, expires));
    }

    /// Starts the expiry of a share anew, if it has not expired.
    pub(super) fn renew(&mut self, kind: Kind, value: &str, expires: Time, now: Time) -> bool {
        let held = self.has(kind, value, now);
        if held {
            self.join(kind, value, expires);
        }
        held
    }

    /// Gives a share back. Says whether it had not expired.
    pub(super) fn part(&mut self, kind: Kind, value: &str, now: Time) -> bool {
        let held = self.has(kind, value, now);
        if held && let Some((kind, expires)) = self.by_value.remove(value) {
            self.by_expiry.remove(&(expires, value.to_owned()));
            self.count_out(kind);
        }
        held
    }

    /// What keeps one more of a kind from joining. What has expired is forgotten by now.
    pub(super) fn obstacle(&self, kind: Kind, now: Time) -> Option<Obstacle> {
        let (first, last) = (self.by_expiry.first()?, self.by_expiry.last()?);
        let fewest = self.asked.keys().next().copied();
        let held = fewest.map_or(Kind::Read, Kind::Permits);
        let (expires, value) = match (kind, fewest) {
            (Kind::Permits(wanted), Some(fewest)) => {
                let most = usize::try_from(fewest.min(wanted)).unwrap_or(usize::MAX);
                if self.by_value.len() < most {
                    return None;
                }
                first
            }
            (Kind::Read, None) => return None,
            _ => last,
        };
        let mut who = match self.by_value.len() - 1 {
            0 => value.clone(),
            1 => format!("{value} and 1 other"),
            others => format!("{value} and {others} others"),
        };
        if let (Kind::Permits(wanted), Some(fewest)) = (kind, fewest)
            && fewest < wanted
        {
            let whose = if self.by_value.len() == 1 { "who" } else { "of whom one" };
            who = format!("{who}, {whose} asked for permits = {fewest}");
        }
        Some(Obstacle { who, remaining: expires.saturating_since(now), held: Some(held) })
    }

    fn count_in(&mut self, kind: Kind) {
        if let Kind::Permits(permits) = kind {
            *self.asked.entry(permits).or_default() += 1;
        }
    }

    fn count_out(&mut self, kind: Kind) {
        if let Kind::Permits(permits) = kind
            && let Some(count) = self.asked.get_mut(&permits)
        {
            *count -= 1;
            if *count == 0 {
                self.asked.remove(&permits);
            }
        }
    }
}
