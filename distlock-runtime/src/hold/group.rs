//! What a hold has to do with others: what its call was granted in the end, what it passes under, and what was asked for
//! together with it.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::Poll;

use super::Hold;
use super::state::ENDED;
use crate::{FencingToken, LostReason};

impl Hold {
    /// Notes what an attempt of the same call was granted.
    pub(crate) fn stands_for(&self, granted: &Arc<Hold>) {
        if !std::ptr::eq(self, Arc::as_ptr(granted)) {
            let _ = self.granted.set(granted.clone());
        }
    }

    pub(super) fn current(&self) -> &Hold {
        self.granted.get().map_or(self, |granted| granted)
    }

    /// Passes under another lock, which lasts longer than this.
    pub(crate) fn pass_under(self: &Arc<Self>, outer: Arc<Hold>) {
        let mut nested = outer.leading().nested.lock().unwrap_or_else(PoisonError::into_inner);
        nested.retain(|nested| nested.strong_count() > 0);
        nested.push(Arc::downgrade(self));
        drop(nested);
        let _ = self.outer.set(outer);
    }

    /// The lock whose lease counts: this one, or the one that it passes under.
    pub(crate) fn leading(&self) -> &Hold {
        let hold = self.current();
        hold.outer.get().map_or(hold, |outer| outer.leading())
    }

    /// A call that passed under another lock is over.
    pub(crate) fn ends_inside(&self) {
        self.state.0.store(ENDED, Ordering::Release);
    }

    /// The other locks that were asked for together with this one.
    pub(crate) fn others(&self) -> &[Arc<Hold>] {
        self.current().others.get().map_or(&[], |others| others)
    }

    /// Says which locks are held together with this one, unless that was said before.
    pub(crate) fn set_others(&self, others: Vec<Arc<Hold>>) {
        let _ = self.others.set(others.into());
    }

    /// This lock and those that were asked for together with it.
    pub(crate) fn group(&self) -> impl Iterator<Item = &Hold> {
        std::iter::once(self.current()).chain(self.others().iter().map(|other| &**other))
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
