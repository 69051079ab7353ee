//! What is left behind on nodes that did not answer.

use std::sync::Arc;
use std::time::Duration;

use super::super::redis::RedisBackend;
use super::Owned;
use crate::backend::{Backend, Released};
use crate::clock::Time;

/// For how long a request that had no answer is thought to be still under way, once its node answers again.
const LONGEST_DELAY: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

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
