//! What a hold says of the requests for its lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Hold;
use crate::backend::Entry;
use crate::clock::Time;
use crate::options::Terms;

impl Hold {
    pub(crate) fn attempt(&self) -> u64 {
        self.attempt.load(Ordering::Relaxed)
    }

    pub(crate) fn count_attempt(&self) -> u64 {
        self.attempt.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Within which time a refused attempt is followed by another; nothing after the last.
    pub(crate) fn next_try_within(&self) -> Option<Duration> {
        let Terms { retry, backoff, command_timeout, .. } = self.terms;
        (self.attempt() <= u64::from(retry)).then(|| backoff.longest_pause().saturating_add(command_timeout))
    }

    pub(crate) fn may_have_mark(&self) {
        self.marked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_marked(&self) -> bool {
        self.marked.load(Ordering::Relaxed)
    }

    /// The hold as a backend sees it, where an answer is of use for the command timeout.
    pub(crate) fn entry(self: &Arc<Self>) -> Entry<'_> {
        self.entry_within(self.terms.command_timeout)
    }

    pub(crate) fn entry_within(self: &Arc<Self>, timeout: Duration) -> Entry<'_> {
        let entry = self.bare_entry(timeout);
        Entry { waiter: self.waiter.as_deref(), marked: self.is_marked(), hold: Some(self), ..entry }
    }

    /// The same for what leaves the lock as it is.
    pub(crate) fn bare_entry(&self, timeout: Duration) -> Entry<'_> {
        let entry = Entry::new(self.key.as_str(), self.value(), self.terms.ttl, timeout);
        Entry { kind: self.terms.kind, marked: false, ..entry }
    }

    /// How long ago the lock was asked for.
    pub(crate) fn waited(&self) -> Duration {
        Time::now().saturating_since(self.asked)
    }
}
