use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Handle, Id};

use crate::backend::BackendError;
use crate::backend::redis::RedisBackend;
use crate::clock::Time;
use crate::events;

/// For how long a server may owe an answer before nobody asks it who can do without.
const SILENCE: Duration = Duration::from_millis(50);
/// For how long a server may fail before that is told: an idle connection that was closed is nothing to tell of.
const GRACE: Duration = Duration::from_secs(1);

/// One of the servers.
pub(super) struct Node {
    pub(super) redis: RedisBackend,
    /// Of each runtime by itself: one that nobody drives hears no answers, and says nothing about the server.
    talks: Mutex<Vec<Talk>>,
    /// Since when it has done nothing but fail, in nanoseconds; 0 if it does not.
    fails_since: AtomicU64,
    /// Whether it was told that it has no vote.
    told: AtomicBool,
}

/// What one runtime has asked a server that has had no answer yet.
struct Talk {
    runtime: Option<Id>,
    /// How many requests.
    open: usize,
    /// When the server last answered, or when it was asked the first of those.
    heard: Time,
    /// When all of them are over, if somebody polls them.
    until: Time,
}

impl Node {
    pub(super) fn new(redis: RedisBackend) -> Node {
        Node { redis, talks: Mutex::default(), fails_since: AtomicU64::new(0), told: AtomicBool::new(false) }
    }

    /// Whether an answer can be had at once, as far as is known. If there is no connection, one is begun, so that a server that
    /// comes back is found again.
    pub(super) fn is_ready(&self) -> bool {
        if self.redis.is_ready() {
            let silent = self.is_silent();
            if silent {
                self.fails(&BackendError::unanswered("it does not answer"));
            }
            return !silent;
        }
        if let Some(why) = self.redis.why_unconnected() {
            self.fails(&why);
        }
        self.redis.begin_to_connect();
        false
    }

    /// One that is frozen would have requests pile up in front of it until they time out.
    fn is_silent(&self) -> bool {
        let talks = self.talks();
        if talks.is_empty() {
            return false;
        }
        let (now, runtime) = (Time::now(), runtime());
        let silent = |talk: &Talk| now.saturating_since(talk.heard) > SILENCE && now < talk.until;
        talks.iter().any(|talk| talk.runtime == runtime && silent(talk))
    }

    fn talks(&self) -> MutexGuard<'_, Vec<Talk>> {
        self.talks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request until this is dropped. It is over after `timeout`.
    pub(super) fn ask(self: &Arc<Self>, timeout: Duration) -> Question {
        let (now, runtime) = (Time::now(), runtime());
        let until = now.saturating_add(timeout);
        let mut talks = self.talks();
        match talks.iter_mut().find(|talk| talk.runtime == runtime) {
            Some(talk) => {
                talk.open += 1;
                talk.until = talk.until.max(until);
            }
            None => talks.push(Talk { runtime, open: 1, heard: now, until }),
        }
        Question { node: self.clone(), runtime }
    }

    /// Notes that the server failed. Once that has gone on for a while, it is told.
    pub(super) fn fails(&self, why: &BackendError) {
        let now = Time::now();
        let since = self.fails_since.compare_exchange(0, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed);
        if since.is_err_and(|since| now.saturating_since(Time::from_nanos(since)) >= GRACE) {
            self.has_no_vote(why);
        }
    }

    /// Tells that the server has no vote, unless that is known.
    pub(super) fn has_no_vote(&self, why: &BackendError) {
        if !self.told.swap(true, Ordering::Relaxed) {
            let _ = self.fails_since.compare_exchange(0, Time::now().as_nanos(), Ordering::Relaxed, Ordering::Relaxed);
            events::has_no_vote(self.redis.address(), why);
        }
    }

    /// Notes that the server does as it is asked.
    pub(super) fn works(&self) {
        if self.fails_since.load(Ordering::Relaxed) != 0 {
            self.fails_since.store(0, Ordering::Relaxed);
            if self.told.swap(false, Ordering::Relaxed) {
                events::has_its_vote(self.redis.address());
            }
        }
    }
}

fn runtime() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redis.fmt(f)
    }
}

/// A request that may have no answer yet.
pub(super) struct Question {
    node: Arc<Node>,
    runtime: Option<Id>,
}

impl Question {
    /// Notes what came back.
    pub(super) fn answered<T>(&self, answer: &Result<T, BackendError>) {
        match answer {
            // A key that holds something else is no fault of the server's.
            Err(error) if !error.is_foreign() => {
                self.node.fails(error);
                if error.is_unanswered() {
                    return;
                }
            }
            _ => self.node.works(),
        }
        if let Some(talk) = self.node.talks().iter_mut().find(|talk| talk.runtime == self.runtime) {
            talk.heard = Time::now();
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let mut talks = self.node.talks();
        if let Some(at) = talks.iter().position(|talk| talk.runtime == self.runtime) {
            let over = talks.get_mut(at).is_some_and(|talk| {
                talk.open = talk.open.saturating_sub(1);
                talk.open == 0
            });
            if over {
                talks.swap_remove(at);
            }
        }
    }
}
