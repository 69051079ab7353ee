use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use super::place::{HandedOver, Place};
use crate::FencingToken;
use crate::backend::{Acquired, AcquiredAll, Entry, Fencing, PATIENCE, Released, Renewed, Turn};
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

impl Locks {
    pub(super) fn acquire(&mut self, entry: &Entry<'_>, now: Time) -> Acquired {
        self.sweep(now);
        let place = self.place(entry);
        if let Some(obstacle) = place.refusal(entry, now) {
            place.mark_for(entry, &obstacle, now);
            return Acquired::Held { value: obstacle.who, remaining: obstacle.remaining };
        }
        place.take(entry, now);
        Acquired::Granted(self.mint(entry.fencing))
    }

    pub(super) fn acquire_all(&mut self, entries: &[Entry<'_>], now: Time) -> AcquiredAll {
        self.sweep(now);
        for (index, entry) in entries.iter().enumerate() {
            if let Some(obstacle) = self.place(entry).refusal(entry, now) {
                // On all of them: one that is free now must not be taken by newcomers while the others are waited for.
                for entry in entries {
                    self.place(entry).mark_for(entry, &obstacle, now);
                }
                return AcquiredAll::Held { index, value: obstacle.who, remaining: obstacle.remaining };
            }
        }
        for entry in entries {
            self.place(entry).take(entry, now);
        }
        AcquiredAll::Granted(self.mint(entries.first().and_then(|entry| entry.fencing)))
    }

    pub(super) fn mint_held(&mut self, entries: &[Entry<'_>], now: Time) -> Option<FencingToken> {
        let stands = |entry: &Entry<'_>| self.by_key.get(entry.key).is_some_and(|place| place.is_held_by(entry, now));
        if entries.iter().all(stands) { self.mint(entries.first()?.fencing) } else { None }
    }

    pub(super) fn wait(&mut self, entry: &Entry<'_>, now: Time) -> Turn {
        self.sweep(now);
        let place = self.place(entry);
        if !place.is_held_by(entry, now) {
            place.queue(entry, now);
        }
        let first = place.is_first(entry, now);
        let mut calls = Vec::new();
        if !first && place.obstacle(entry.kind, None, now).is_none() {
            calls = place.hand_on(now);
        }
        let obstacle = place.obstacle(entry.kind, None, now);
        let turn = if place.is_held_by(entry, now) || (first && obstacle.is_none()) {
            place.leave(entry, now);
            place.take(entry, now);
            if entry.kind.is_shared() {
                calls.extend(place.hand_on(now));
            }
            None
        } else {
            let by_others = obstacle.as_ref().is_some_and(|obstacle| obstacle.is_of_others(entry.kind));
            entry.note_mark(by_others);
            if first && by_others {
                place.set_mark(entry.kind, entry.value, PATIENCE, now);
            }
            let (value, remaining) = obstacle.map_or_else(Default::default, |by| (by.who, by.remaining));
            Some(Turn::Waits { value, remaining, first })
        };
        let others = !place.line.is_empty();
        self.handed_over.extend(calls);
        turn.unwrap_or_else(|| Turn::Come { fencing_token: self.mint(entry.fencing), others })
    }

    pub(super) fn renew(&mut self, entry: &Entry<'_>, now: Time) -> Renewed {
        let renewed = self.by_key.get_mut(entry.key).is_some_and(|place| place.renew(entry, now));
        if renewed { Renewed::Extended } else { Renewed::NotHeld }
    }

    pub(super) fn release(&mut self, entry: &Entry<'_>, now: Time) -> Released {
        let Some(place) = self.by_key.get_mut(entry.key) else { return Released::NotHeld };
        let left = place.leave(entry, now);
        let freed = place.free(entry, now);
        if freed || left {
            self.handed_over.extend(place.hand_on(now));
        }
        if place.is_empty(now) {
            self.by_key.remove(entry.key);
        }
        match (freed, left) {
            (true, _) => Released::Freed,
            (false, true) => Released::Left,
            (false, false) => Released::NotHeld,
        }
    }

    fn place(&mut self, entry: &Entry<'_>) -> &mut Place {
        self.by_key.entry(entry.key.to_owned()).or_default()
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
