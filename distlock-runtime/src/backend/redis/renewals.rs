//! Renewals. A server that has many locks of ours is told of all of them in one command: that costs less than as many commands do,
//! here and there.

use std::time::Duration;

use futures_util::future::join;
use redis::Value;

use super::live::Live;
use super::scripts::{RENEW_ALL, command_to_renew, renewal};
use super::{RedisBackend, renewed};
use crate::backend::{BackendError, Entry, Renewed};
use crate::clock::Time;

type Answers = Vec<Result<i64, BackendError>>;

impl RedisBackend {
    /// Starts the expiry of each anew.
    pub(super) async fn renew_all(&self, entries: &[Entry<'_>]) -> Vec<Result<Renewed, BackendError>> {
        let (begin, timeout) = (Time::now(), entries.iter().map(|entry| entry.timeout).min().unwrap_or_default());
        let answers = match self.live(timeout).await {
            Ok(live) => live.renew_all(entries, begin, timeout).await,
            Err(error) => all(entries.len(), &error),
        };
        answers.into_iter().map(|answer| answer.map(renewed)).collect()
    }
}

impl Live {
    /// Whole locks in one command, where all names may stand in one: in a cluster those of other slots may not. Shares each by
    /// its own.
    async fn renew_all(&self, entries: &[Entry<'_>], begin: Time, timeout: Duration) -> Answers {
        let is_whole = |entry: &&Entry<'_>| !entry.kind.is_shared() && !self.is_sharded();
        let (whole, others): (Vec<&Entry<'_>>, Vec<&Entry<'_>>) = entries.iter().partition(is_whole);
        if whole.len() < 2 {
            return self.call_all(renewal, entries, begin, timeout).await;
        }
        let others: Vec<Entry<'_>> = others.into_iter().copied().collect();
        let together = self.renew_together(&whole, begin, timeout);
        let (whole, others) = if others.is_empty() {
            (together.await, Vec::new())
        } else {
            join(together, self.call_all(renewal, &others, begin, timeout)).await
        };
        // In the order in which they were asked for.
        let (mut whole, mut others) = (whole.into_iter(), others.into_iter());
        let too_few = || Err(BackendError::unanswered("the server answered too few"));
        let answers = entries.iter().map(|entry| if is_whole(&entry) { whole.next() } else { others.next() });
        answers.map(|answer| answer.unwrap_or_else(too_few)).collect()
    }

    async fn renew_together(&self, entries: &[&Entry<'_>], begin: Time, timeout: Duration) -> Answers {
        let names: Vec<_> = entries.iter().map(|entry| self.name(entry.key)).collect();
        let command = |how: &str, text: &str| command_to_renew(how, text, &names, entries);
        let left = timeout.saturating_sub(Time::now().saturating_since(begin));
        match self.call_script(&RENEW_ALL, command, left).await {
            Ok(Value::Array(answers)) if answers.len() == entries.len() => {
                answers.iter().map(|answer| self.number(answer)).collect()
            }
            Ok(other) => all(entries.len(), &self.unexpected(&other)),
            // What the server has against one of them, or against so many at once, it may not have against each.
            Err(error) if !error.is_passing() => {
                let entries: Vec<Entry<'_>> = entries.iter().map(|entry| **entry).collect();
                self.call_all(renewal, &entries, begin, timeout).await
            }
            Err(error) => all(entries.len(), &error),
        }
    }
}

fn all(count: usize, error: &BackendError) -> Answers {
    (0..count).map(|_| Err(error.copy())).collect()
}
