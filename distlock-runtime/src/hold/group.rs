//! Locks that were asked for together.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use super::Hold;
use crate::{FencingToken, LostReason};

impl Hold {
    /// The other locks that were asked for together with this one.
    pub(crate) fn others(&self) -> &[Arc<Hold>] {
        self.others.get().map_or(&[], |others| others)
    }

    /// Says which locks are held together with this one, unless that was said before.
    pub(crate) fn set_others(&self, others: Vec<Arc<Hold>>) {
        let _ = self.others.set(others.into());
    }

    /// This lock and those that were asked for together with it.
    pub(crate) fn group(&self) -> impl Iterator<Item = &Hold> {
        std::iter::once(self).chain(self.others().iter().map(|other| &**other))
    }

    /// Whether a group's leases are all good, or how the first was lost that is not.
    pub(crate) fn check_group(&self) -> Result<(), (&Hold, LostReason)> {
        self.group().try_for_each(|hold| {
            let leading = hold.leading();
            let ended = hold.outer.get().is_some() && (leading.has_ended() || hold.has_ended());
            let checked = if ended { Err(LostReason::Released) } else { leading.check() };
            checked.map_err(|reason| (leading, reason))
        })
    }

    /// The token of a group: the highest that one of its locks has. One that nobody asked for says nothing: it came with the
    /// place in the line, and may be below what another of the locks had before.
    pub(crate) fn fence_of_group(&self) -> Option<FencingToken> {
        let asked_for = |hold: &Hold| {
            let leading = hold.leading();
            hold.terms.fencing_token || leading.terms.fencing_token || leading.is_outdone()
        };
        if !self.group().any(asked_for) {
            return None;
        }
        self.group().filter_map(|hold| hold.leading().fence()).max()
    }

    /// Returns once one of a group's leases is lost.
    pub(crate) async fn lost_of_group(&self) -> LostReason {
        if self.others().is_empty() {
            return self.leading().lost().await;
        }
        let mut losses: Vec<_> = self.group().map(|hold| Box::pin(hold.leading().lost())).collect();
        poll_fn(|cx| {
            let first = losses.iter_mut().find_map(|loss| match loss.as_mut().poll(cx) {
                Poll::Ready(reason) => Some(reason),
                Poll::Pending => None,
            });
            first.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
