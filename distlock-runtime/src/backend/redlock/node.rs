use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::backend::BackendError;
use crate::backend::redis::RedisBackend;
use crate::clock::Time;

/// For how long a server may owe an answer before nobody asks it who can do without.
const SILENCE: Duration = Duration::from_millis(50);

/// One of the servers.
pub(super) struct Node {
    pub(super) redis: RedisBackend,
    /// How many requests have had no answer yet.
    open: AtomicU64,
    /// When it last answered, or when it was asked the first of those, in nanoseconds.
    heard: AtomicU64,
}

impl Node {
    pub(super) fn new(redis: RedisBackend) -> Node {
        Node { redis, open: AtomicU64::new(0), heard: AtomicU64::new(0) }
    }

    /// Whether an answer can be had at once, as far as is known. If there is no connection, one is begun, so that a server that
    /// comes back is found again.
    pub(super) fn is_ready(&self) -> bool {
        if self.redis.is_ready() {
            return !self.is_silent();
        }
        self.redis.begin_to_connect();
        false
    }

    /// One that is frozen would have requests pile up in front of it until they time out.
    fn is_silent(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
            && Time::now().saturating_since(Time::from_nanos(self.heard.load(Ordering::Relaxed))) > SILENCE
    }

    /// Counts a request until this is dropped.
    pub(super) fn ask(self: &Arc<Self>) -> Question {
        if self.open.fetch_add(1, Ordering::Relaxed) == 0 {
            self.heard.store(Time::now().as_nanos(), Ordering::Relaxed);
        }
        Question(self.clone())
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redis.fmt(f)
    }
}

/// A request that may have no answer yet.
pub(super) struct Question(Arc<Node>);

impl Question {
    /// Notes that something came back.
    pub(super) fn answered<T>(&self, answer: &Result<T, BackendError>) {
        if answer.as_ref().err().is_none_or(|error| !error.is_unanswered()) {
            self.0.heard.store(Time::now().as_nanos(), Ordering::Relaxed);
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
