use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::FencingToken;
use crate::backend::{Acquired, AcquiredAll, CLAIM, Entry, FORGET, Fencing, PATIENCE, Released, Renewed, Turn};
use crate::clock::Time;

/// All locks, as the scripts of the Redis backend keep them on a server.
#[derive(Default)]
pub(super) struct Locks {
    by_key: HashMap<String, Place>,
    /// The number of keys at which the expired ones are swept out. Nobody may ever ask for them again.
    sweep_at: usize,
    /// One for all keys, so that nothing is left behind of a key.
    last_fence: u64,
    handed_over: Vec<HandedOver>,
}

/// What is known of one key.
#[derive(Default)]
struct Place {
    lock: Option<Lock>,
    line: Vec<Waiter>,
}

struct Lock {
    value: String,
    expires: Time,
}

struct Waiter {
    manager: String,
    value: String,
    seen: Time,
}

/// A call to a waiter whose turn has come.
#[derive(Clone)]
pub(super) struct HandedOver {
    pub(super) waiter: String,
    pub(super) token: String,
}

impl Locks {
    pub(super) fn acquire(&mut self, entry: &Entry<'_>, now: Time) -> Acquired {
        self.sweep(now);
        let place = self.by_key.entry(entry.key.to_owned()).or_default();
        if let Some(held) = place.held(now).filter(|held| held.value != entry.value) {
            return Acquired::Held { value: held.value.clone(), remaining: held.expires.saturating_since(now) };
        }
        place.set(entry, now);
        Acquired::Granted(self.mint(entry.fencing))
    }

    pub(super) fn acquire_all(&mut self, entries: &[Entry<'_>], now: Time) -> AcquiredAll {
        self.sweep(now);
        for (index, entry) in entries.iter().enumerate() {
            let held = self.by_key.get(entry.key).and_then(|place| place.held(now));
            if let Some(held) = held.filter(|held| held.value != entry.value) {
                let remaining = held.expires.saturating_since(now);
                return AcquiredAll::Held { index, value: held.value.clone(), remaining };
            }
        }
        for entry in entries {
            self.by_key.entry(entry.key.to_owned()).or_default().set(entry, now);
        }
        AcquiredAll::Granted(self.mint(entries.first().and_then(|entry| entry.fencing)))
    }

    pub(super) fn mint_held(&mut self, entries: &[Entry<'_>], now: Time) -> Option<FencingToken> {
        let stands = |entry: &Entry<'_>| {
            self.by_key.get(entry.key).and_then(|place| place.held(now)).is_some_and(|held| held.value == entry.value)
        };
        if entries.iter().all(stands) { self.mint(entries.first()?.fencing) } else { None }
    }

    pub(super) fn wait(&mut self, entry: &Entry<'_>, now: Time) -> Turn {
        self.sweep(now);
        let place = self.by_key.entry(entry.key.to_owned()).or_default();
        let holder = place.held(now).map(|held| held.value.clone());
        let ours = holder.as_deref() == Some(entry.value);
        if !ours {
            place.queue(entry, now);
        }
        let first = place.first_live(now) == Some(entry.value);
        if ours || (holder.is_none() && first) {
            place.set(entry, now);
            place.leave(entry);
            let others = !place.line.is_empty();
            return Turn::Come { fencing_token: self.mint(entry.fencing), others };
        }
        if holder.is_none() {
            self.handed_over.extend(place.hand_over(now));
        }
        let (value, remaining) = match place.held(now) {
            Some(held) => (held.value.clone(), held.expires.saturating_since(now)),
            None => (String::new(), Duration::ZERO),
        };
        Turn::Waits { value, remaining, first }
    }

    pub(super) fn renew(&mut self, entry: &Entry<'_>, now: Time) -> Renewed {
        match self.by_key.get_mut(entry.key).and_then(|place| place.lock.as_mut()) {
            Some(lock) if lock.expires > now && lock.value == entry.value => {
                lock.expires = now.saturating_add(entry.ttl);
                Renewed::Extended
            }
            _ => Renewed::NotHeld,
        }
    }

    pub(super) fn release(&mut self, entry: &Entry<'_>, now: Time) -> Released {
        let Some(place) = self.by_key.get_mut(entry.key) else { return Released::NotHeld };
        let left = place.leave(entry);
        let ours = place.held(now).is_some_and(|held| held.value == entry.value);
        if ours {
            place.lock = None;
            self.handed_over.extend(place.hand_over(now));
        }
        if place.is_empty(now) {
            self.by_key.remove(entry.key);
        }
        if ours || left { Released::Freed } else { Released::NotHeld }
    }

    pub(super) fn take_handed_over(&mut self) -> Vec<HandedOver> {
        std::mem::take(&mut self.handed_over)
    }

    /// Mints tokens by the rule of the Redis backend, with this machine for the server whose clock counts.
    fn mint(&mut self, fencing: Option<Fencing>) -> Option<FencingToken> {
        let Fencing { count, above } = fencing?;
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = u64::try_from(time.as_micros()).unwrap_or_default();
        let first = time.max(self.last_fence.max(above) + 1);
        self.last_fence = first + u64::from(count.max(1)) - 1;
        FencingToken::new(first)
    }

    fn sweep(&mut self, now: Time) {
        if self.by_key.len() >= self.sweep_at.max(64) {
            self.by_key.retain(|_, place| !place.is_empty(now));
            self.sweep_at = self.by_key.len().saturating_mul(2);
        }
    }
}

impl Place {
    fn held(&self, now: Time) -> Option<&Lock> {
        self.lock.as_ref().filter(|lock| lock.expires > now)
    }

    /// Sets the lock. A request that comes late does not shorten what a later one has got.
    fn set(&mut self, entry: &Entry<'_>, now: Time) {
        let ours = self.held(now).filter(|held| held.value == entry.value).map(|held| held.expires);
        let expires = now.saturating_add(entry.ttl).max(ours.unwrap_or(now));
        self.lock = Some(Lock { value: entry.value.to_owned(), expires });
    }

    /// Takes a place in the line, or gives a sign of life.
    fn queue(&mut self, entry: &Entry<'_>, now: Time) {
        self.line.retain(|waiter| waiter.value == entry.value || now.saturating_since(waiter.seen) < FORGET);
        if let Some(waiter) = self.line.iter_mut().find(|waiter| waiter.value == entry.value) {
            waiter.seen = now;
        } else {
            let manager = entry.waiter.unwrap_or_default().to_owned();
            self.line.push(Waiter { manager, value: entry.value.to_owned(), seen: now });
        }
    }

    fn leave(&mut self, entry: &Entry<'_>) -> bool {
        let before = self.line.len();
        self.line.retain(|waiter| waiter.value != entry.value);
        self.line.len() < before
    }

    fn live(&self, now: Time) -> Option<&Waiter> {
        self.line.iter().find(|waiter| now.saturating_since(waiter.seen) <= PATIENCE)
    }

    fn first_live(&self, now: Time) -> Option<&str> {
        self.live(now).map(|waiter| waiter.value.as_str())
    }

    /// Gives the free lock to the first in the line who is alive.
    fn hand_over(&mut self, now: Time) -> Option<HandedOver> {
        let waiter = self.live(now)?;
        let token = waiter.value.split('/').next().unwrap_or_default().to_owned();
        let call = HandedOver { waiter: waiter.manager.clone(), token };
        self.lock = Some(Lock { value: waiter.value.clone(), expires: now.saturating_add(CLAIM) });
        Some(call)
    }

    fn is_empty(&self, now: Time) -> bool {
        self.held(now).is_none() && self.line.iter().all(|waiter| now.saturating_since(waiter.seen) >= FORGET)
    }
}
