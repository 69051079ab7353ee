//! What is left behind on nodes that did not answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::super::redis::RedisBackend;
use super::Owned;
use crate::backend::{Backend, Released};
use crate::clock::Time;

/// For how long a request that had no answer is thought to be still under way, once its node answers again.
const LONGEST_DELAY: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// On which nodes which values are being freed.
#[derive(Default)]
pub(super) struct Debts(Mutex<Vec<(usize, String)>>);

/// A debt, until this is dropped.
pub(super) struct Debt {
    debts: Arc<Debts>,
    node: usize,
    value: String,
}

impl Debts {
    pub(super) fn begin(self: &Arc<Self>, node: usize, value: &str) -> Debt {
        self.lock().push((node, value.to_owned()));
        Debt { debts: self.clone(), node, value: value.to_owned() }
    }

    pub(super) fn owes(&self, node: usize, value: &str) -> bool {
        self.lock().iter().any(|(of, owed)| *of == node && owed == value)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(usize, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        let mut debts = self.debts.lock();
        if let Some(at) = debts.iter().position(|(node, value)| *node == self.node && *value == self.value) {
            debts.swap_remove(at);
        }
    }
}

/// Frees an entry on one node, again and again: until the node says so, or has long said that it is not there, or the
/// entry has expired.
///
/// An answer that it is not there is no proof at first. A request may have been sent along a connection that is gone by
/// now, and still arrive.
pub(super) async fn free_later(node: Arc<RedisBackend>, owned: Arc<Owned>) {
    let expired = Time::now().saturating_add(owned.ttl);
    let (mut until, mut pause) = (expired, Duration::from_millis(20));
    loop {
        match node.release_all(&[owned.entry()]).await.pop() {
            Some(Ok(Released::Freed)) => return,
            Some(Ok(Released::NotHeld)) => until = until.min(Time::now().saturating_add(LONGEST_DELAY)),
            Some(Err(_)) | None => {}
        }
        if Time::now().saturating_add(pause) > until {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
