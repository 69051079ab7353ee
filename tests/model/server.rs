//! What the server does: each function is one script, and nothing comes between its steps.

use crate::flaw::Flaw;
use crate::time::{CLAIM, FORGET, LIVE, NEVER, NOW, TTL, Tick, closer};

/// What stands in the lock: one for each acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Value {
    pub(crate) client: u8,
    pub(crate) acquisition: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    /// `None` once it has expired: every script takes an expired lock for none.
    pub(crate) lock: Option<Lock>,
    /// In order of arrival.
    pub(crate) queue: Vec<Entry>,
    queue_expires_at: Tick,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    pub(crate) value: Value,
    expires_at: Tick,
    /// Whether its holder came past the queue, and nobody has said in its value yet that others wait.
    unwaited: bool,
}

impl Lock {
    pub(crate) fn without_sign(&self) -> (Value, Tick) {
        (self.value, self.expires_at)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) value: Value,
    /// When the waiter last gave a sign of life.
    seen: Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    /// Enqueues, shows that the waiter lives, and claims the lock when it is the waiter's turn.
    Wait(Value),
    /// Takes the lock if it is free, past the queue.
    Set(Value),
    Renew(Value),
    /// Ends a hold or a wait.
    Release(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Granted,
    Held,
    Extended,
    NotHeld,
    Released,
}

impl Server {
    /// Answers, and says which waiter is to be woken.
    pub(crate) fn handle(&mut self, request: Request, flaw: Flaw) -> (Answer, Option<Value>) {
        match request {
            Request::Wait(value) => self.wait(value, flaw),
            Request::Set(value) => (self.set(value), None),
            Request::Renew(value) => (self.renew(value), None),
            Request::Release(value) => (Answer::Released, self.release(value, flaw)),
        }
    }

    fn wait(&mut self, value: Value, flaw: Flaw) -> (Answer, Option<Value>) {
        if self.is_held_by(value) {
            // It was handed over, or was granted already and the answer was lost.
            return (self.grant(value), None);
        }
        self.enqueue(value, flaw);
        if let Some(lock) = &mut self.lock {
            lock.unwaited = false;
            return (Answer::Held, None);
        }
        if self.first_live(flaw) == Some(value) {
            return (self.grant(value), None);
        }
        (Answer::Held, self.hand_over(flaw))
    }

    fn set(&mut self, value: Value) -> Answer {
        if self.lock.is_some() {
            return Answer::Held;
        }
        self.lock = Some(Lock { value, expires_at: NOW + TTL, unwaited: true });
        Answer::Granted
    }

    fn renew(&mut self, value: Value) -> Answer {
        match self.lock.as_mut().filter(|lock| lock.value == value) {
            Some(lock) => {
                lock.expires_at = NOW + TTL;
                Answer::Extended
            }
            None => Answer::NotHeld,
        }
    }

    fn release(&mut self, value: Value, flaw: Flaw) -> Option<Value> {
        self.dequeue(value);
        if !self.is_held_by(value) && flaw != Flaw::ReleaseOfAnyLock {
            return None;
        }
        // Two scripts: the first frees what nobody has said to wait for.
        if self.lock.take_if(|lock| lock.unwaited).is_some() {
            return None;
        }
        self.hand_over(flaw)
    }

    pub(crate) fn is_held_by(&self, value: Value) -> bool {
        self.lock.as_ref().is_some_and(|lock| lock.value == value)
    }

    fn grant(&mut self, value: Value) -> Answer {
        self.lock = Some(Lock { value, expires_at: NOW + TTL, unwaited: false });
        self.dequeue(value);
        Answer::Granted
    }

    /// Gives the lock to the first waiter for as long as it may take to claim it, or deletes it where nobody waits.
    fn hand_over(&mut self, flaw: Flaw) -> Option<Value> {
        let first = self.first_live(flaw);
        self.lock = first.map(|value| Lock { value, expires_at: NOW + CLAIM, unwaited: false });
        if flaw == Flaw::HandOverForGood
            && let Some(value) = first
        {
            self.lock = Some(Lock { value, expires_at: NEVER, unwaited: false });
            self.dequeue(value);
        }
        first
    }

    /// It stays in the queue until it claims the lock, so that a lost message costs it no turn.
    fn first_live(&self, flaw: Flaw) -> Option<Value> {
        let lives = |entry: &&Entry| entry.seen >= NOW - LIVE || flaw == Flaw::DeadWaitersServed;
        let mut live = self.queue.iter().filter(lives);
        let turn = if flaw == Flaw::LastComeFirstServed { live.next_back() } else { live.next() };
        turn.map(|entry| entry.value)
    }

    fn enqueue(&mut self, value: Value, flaw: Flaw) {
        match self.queue.iter_mut().find(|entry| entry.value == value) {
            Some(entry) => entry.seen = NOW,
            None => self.queue.push(Entry { value, seen: NOW }),
        }
        self.queue.retain(|entry| entry.seen >= NOW - FORGET);
        self.queue_expires_at = if flaw == Flaw::QueueKeptForGood { NEVER } else { NOW + FORGET };
    }

    fn dequeue(&mut self, value: Value) {
        self.queue.retain(|entry| entry.value != value);
        if self.queue.is_empty() {
            self.queue_expires_at = NOW;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock.is_none() && self.queue.is_empty()
    }

    pub(crate) fn tick(&mut self) {
        if let Some(lock) = &mut self.lock {
            lock.expires_at = closer(lock.expires_at);
        }
        self.lock.take_if(|lock| lock.expires_at <= NOW);
        for entry in &mut self.queue {
            // All that was forgotten is alike.
            entry.seen = closer(entry.seen).max(NOW - FORGET - 1);
        }
        self.queue_expires_at = closer(self.queue_expires_at).max(NOW);
        if self.queue_expires_at == NOW {
            self.queue.clear();
        }
    }
}
