use std::time::Duration;

use super::shares::{Obstacle, Shares};
use crate::backend::{CLAIM, Entry, FORGET, Kind, PATIENCE};
use crate::clock::Time;

/// How many readers, or holders of permits, get a lock in one go.
const MOST: usize = 64;

/// What is known of one key.
#[derive(Default)]
pub(super) struct Place {
    lock: Option<Lock>,
    shares: Shares,
    pub(super) line: Vec<Waiter>,
    /// Who holds newcomers of other kinds back.
    marks: Vec<Mark>,
}

struct Lock {
    value: String,
    expires: Time,
}

struct Mark {
    kind: Kind,
    value: String,
    expires: Time,
}

pub(super) struct Waiter {
    manager: String,
    kind: Kind,
    value: String,
    seen: Time,
}

/// A call to a waiter whose turn has come.
#[derive(Clone)]
pub(super) struct HandedOver {
    pub(super) waiter: String,
    pub(super) token: String,
}

impl Place {
    fn whole(&self, now: Time) -> Option<&Lock> {
        self.lock.as_ref().filter(|lock| lock.expires > now)
    }

    pub(super) fn is_held_by(&self, entry: &Entry<'_>, now: Time) -> bool {
        self.is_held(entry.kind, entry.value, now)
    }

    fn is_held(&self, kind: Kind, value: &str, now: Time) -> bool {
        match kind {
            Kind::Exclusive => self.whole(now).is_some_and(|lock| lock.value == value),
            Kind::Read | Kind::Permits(_) => self.shares.has(kind, value, now),
        }
    }

    /// What keeps one more of a kind from the lock. Who takes the whole lock need not mind a mark, nor a value that has one: two
    /// that come back would hold each other back for nothing. Who waits in line has no value here, and lets them go first.
    pub(super) fn obstacle(&mut self, kind: Kind, value: Option<&str>, now: Time) -> Option<Obstacle> {
        self.shares.purge(now);
        if let Some(lock) = self.whole(now) {
            let remaining = lock.expires.saturating_since(now);
            return Some(Obstacle { who: lock.value.clone(), remaining, held: None });
        }
        let by_mark = || {
            let others = self.marks.iter().filter(|mark| mark.expires > now && mark.kind != kind);
            let mark = others.max_by_key(|mark| mark.expires)?;
            let remaining = mark.expires.saturating_since(now);
            Some(Obstacle { who: format!("{}, which waits for it", mark.value), remaining, held: None })
        };
        self.shares.obstacle(kind, now).or_else(|| {
            let minds = kind.is_shared() && !value.is_some_and(|value| self.has_mark(value, now));
            if minds { by_mark() } else { None }
        })
    }

    /// What keeps a caller that does not stand in line from the lock.
    pub(super) fn refusal(&mut self, entry: &Entry<'_>, now: Time) -> Option<Obstacle> {
        let comes_with = entry.beside.is_some_and(|reader| self.is_held(Kind::Read, reader, now));
        if self.is_held_by(entry, now) || (comes_with && entry.kind == Kind::Read) {
            return None;
        }
        if let Some(obstacle) = self.obstacle(entry.kind, Some(entry.value), now) {
            return Some(obstacle);
        }
        // Whoever has a mark is what the line waits for.
        let waits = entry.kind.is_shared() && !self.has_mark(entry.value, now);
        let first = self.first_waiting(now).filter(|_| waits)?;
        Some(Obstacle { who: format!("{}, which waits for it", first.value), remaining: PATIENCE, held: None })
    }

    /// Leaves a mark, if shares of another kind are in the way of an attempt that will be followed by another; or takes it back.
    pub(super) fn mark_for(&mut self, entry: &Entry<'_>, obstacle: &Obstacle, now: Time) {
        entry.note_mark(obstacle.is_of_others(entry.kind));
        match entry.returning {
            Some(returning) if obstacle.is_of_others(entry.kind) => {
                self.set_mark(entry.kind, entry.value, returning.min(FORGET), now);
            }
            Some(_) => {}
            None => drop(self.drop_mark(entry, now)),
        }
    }

    /// Takes the lock, or a share of it. A request that comes late does not shorten what a later one has got.
    pub(super) fn take(&mut self, entry: &Entry<'_>, now: Time) {
        self.drop_mark(entry, now);
        self.set(entry.kind, entry.value, entry.ttl, now);
    }

    fn set(&mut self, kind: Kind, value: &str, ttl: Duration, now: Time) {
        let expires = now.saturating_add(ttl);
        if kind.is_shared() {
            self.shares.join(kind, value, expires);
            return;
        }
        let ours = self.whole(now).filter(|lock| lock.value == value).map(|lock| lock.expires);
        self.lock = Some(Lock { value: value.to_owned(), expires: expires.max(ours.unwrap_or(now)) });
    }

    pub(super) fn renew(&mut self, entry: &Entry<'_>, now: Time) -> bool {
        let expires = now.saturating_add(entry.ttl);
        if entry.kind.is_shared() {
            return self.shares.renew(entry.kind, entry.value, expires, now);
        }
        match &mut self.lock {
            Some(lock) if lock.expires > now && lock.value == entry.value => {
                lock.expires = expires;
                true
            }
            _ => false,
        }
    }

    /// Frees the lock, or gives a share of it back, if it is the entry's.
    pub(super) fn free(&mut self, entry: &Entry<'_>, now: Time) -> bool {
        if entry.kind.is_shared() {
            return self.shares.part(entry.kind, entry.value, now);
        }
        let ours = self.is_held_by(entry, now);
        if ours {
            self.lock = None;
        }
        ours
    }

    /// Takes a place in the line, or gives a sign of life.
    pub(super) fn queue(&mut self, entry: &Entry<'_>, now: Time) {
        self.line.retain(|waiter| waiter.value == entry.value || now.saturating_since(waiter.seen) < FORGET);
        if let Some(waiter) = self.line.iter_mut().find(|waiter| waiter.value == entry.value) {
            waiter.seen = now;
        } else {
            let manager = entry.waiter.unwrap_or_default().to_owned();
            self.line.push(Waiter { manager, kind: entry.kind, value: entry.value.to_owned(), seen: now });
        }
    }

    /// Gives up a place in the line and a mark. Says whether there were any.
    pub(super) fn leave(&mut self, entry: &Entry<'_>, now: Time) -> bool {
        let before = self.line.len();
        self.line.retain(|waiter| waiter.value != entry.value);
        self.drop_mark(entry, now) || self.line.len() < before
    }

    /// The first in the line who is alive and has not been given the lock.
    fn first_waiting(&self, now: Time) -> Option<&Waiter> {
        let mut live = self.line.iter().filter(|waiter| now.saturating_since(waiter.seen) <= PATIENCE);
        live.find(|waiter| !waiter.kind.is_shared() || !self.is_held(waiter.kind, &waiter.value, now))
    }

    pub(super) fn is_first(&self, entry: &Entry<'_>, now: Time) -> bool {
        self.first_waiting(now).is_some_and(|waiter| waiter.value == entry.value)
    }

    /// Gives the lock to those at the head of the line who can have it. If it is shared by then, the next one holds newcomers
    /// back.
    pub(super) fn hand_on(&mut self, now: Time) -> Vec<HandedOver> {
        let mut calls = Vec::new();
        while calls.len() < MOST {
            let Some(waiter) = self.first_waiting(now) else { break };
            let (kind, value) = (waiter.kind, waiter.value.clone());
            if self.is_held(kind, &value, now) {
                break;
            }
            let token = value.split('/').next().unwrap_or_default().to_owned();
            let call = HandedOver { waiter: waiter.manager.clone(), token };
            if let Some(obstacle) = self.obstacle(kind, None, now) {
                if obstacle.is_of_others(kind) {
                    self.set_mark(kind, &value, PATIENCE, now);
                }
                break;
            }
            self.set(kind, &value, CLAIM, now);
            calls.push(call);
            if !kind.is_shared() {
                break;
            }
        }
        calls
    }

    pub(super) fn set_mark(&mut self, kind: Kind, value: &str, stay: Duration, now: Time) {
        self.marks.retain(|mark| mark.expires > now && mark.value != value);
        self.marks.push(Mark { kind, value: value.to_owned(), expires: now.saturating_add(stay) });
    }

    fn has_mark(&self, value: &str, now: Time) -> bool {
        self.marks.iter().any(|mark| mark.value == value && mark.expires > now)
    }

    fn drop_mark(&mut self, entry: &Entry<'_>, now: Time) -> bool {
        let any = self.has_mark(entry.value, now);
        self.marks.retain(|mark| mark.value != entry.value);
        any
    }

    pub(super) fn is_empty(&self, now: Time) -> bool {
        let marked = self.marks.iter().any(|mark| mark.expires > now);
        let waits = self.line.iter().any(|waiter| now.saturating_since(waiter.seen) < FORGET);
        self.whole(now).is_none() && self.shares.is_empty(now) && !marked && !waits
    }
}
