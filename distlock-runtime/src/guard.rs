use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};

use crate::backend::{BackendError, PATIENCE, Released};
use crate::claim::Strays;
use crate::hold::Hold;
use crate::lease::Progress;
use crate::line::{Competitor, Seat, Tenure, Turns};
use crate::manager::{Core, Entered};
use crate::passage::Passage;
use crate::{FencingToken, LockError, LostReason, events};

/// A lock that is held. Dropping it frees the lock without blocking, from any thread, inside or outside a runtime.
///
/// The guard can't stop the code that follows it when the lock is lost: ask the [`lease`](Self::lease), or let
/// [`run`](crate::LockRequest::run) or the attribute watch over a future.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
/// # let locks = distlock::LockManager::in_memory();
/// let guard = locks.lock("order:42").acquire().await?;
/// guard.lease().ensure_held()?;
/// guard.release().await
/// # }
/// ```
#[must_use = "the lock is freed as soon as its guard is dropped"]
pub struct LockGuard {
    lease: Lease,
    /// Earlier requests of this call that have had no answer, and may still set the key.
    strays: Strays,
    /// Whether nothing is left to free.
    freed: bool,
    call: Entered,
    /// What the lock was waited for with, and goes on with to the next caller of this process.
    seat: Option<(Seat, Turns)>,
    /// The turn among those that pass under the same lock, which is not this call's to free.
    inner: Option<Passage>,
    /// The other locks that were asked for together with this one.
    others: Vec<LockGuard>,
}

impl LockGuard {
    /// Takes over a lock that was granted, and is watched.
    pub(crate) fn new(call: Entered, hold: Arc<Hold>, strays: Strays) -> LockGuard {
        LockGuard { lease: Lease { hold }, strays, freed: false, call, seat: None, inner: None, others: Vec::new() }
    }

    /// Passes under a lock that the calling task holds, which stays when this ends.
    pub(crate) fn passing(call: Entered, hold: Arc<Hold>, inner: Passage) -> LockGuard {
        let mut guard = LockGuard::new(call, hold, Strays::default());
        guard.freed = true;
        guard.inner = Some(inner);
        guard
    }

    pub(crate) fn with_seat(mut self, seat: Seat, turns: Turns) -> LockGuard {
        self.seat = Some((seat, turns));
        self
    }

    pub(crate) fn add_strays(&mut self, more: Strays) {
        self.strays.add(more);
    }

    /// The tokens that were minted for later callers are below a newer one: they are not given out.
    pub(crate) fn spend_tokens(&mut self) {
        if let Some((_, turns)) = &mut self.seat {
            turns.last_fence = 0;
        }
    }

    pub(crate) fn with_others(mut self, others: Vec<LockGuard>) -> LockGuard {
        self.others = others;
        self
    }

    /// Whether all that this holds is held, by the clock.
    pub(crate) fn ensure_held(&self) -> Result<(), LockError> {
        self.lease.hold.check_group().map_err(|(lost, reason)| lost.lost_error(reason))
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.call.core
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.lease.hold
    }

    pub(crate) fn ensure_open(&self) -> Result<(), LockError> {
        self.call.core.ensure_open()
    }

    /// The lease under which the lock is held.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The length of the lease: as it was asked for, or as it follows from the manager and `max_hold`.
    pub fn ttl(&self) -> Duration {
        self.lease.hold.terms.ttl
    }

    /// Frees the lock and waits for the answer, no longer than the command timeout and what is left of the lease.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lock had been lost, or the server says that it was no longer ours.
    /// [`LockError::Backend`] if no answer came; the watchdog goes on freeing the lock.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the watchdog frees the lock.
    pub async fn release(mut self) -> Result<(), LockError> {
        match self.free().await {
            Ok(()) => Ok(()),
            Err(NotFreed::Lost(reason)) => Err(self.lease.hold.lost_error(reason)),
            Err(NotFreed::Unanswered(source)) => {
                let operation = format!("release lock `{}`", self.lease.hold.key);
                Err(LockError::Backend { operation, attempts: 1, source })
            }
        }
    }

    /// Frees the lock. What this leaves undone is done when the guard is dropped.
    pub(crate) async fn free(&mut self) -> Result<(), NotFreed> {
        if self.others.is_empty() { self.free_own().await } else { Box::pin(self.free_group()).await }
    }

    /// Frees this and those that were asked for together with it, all at once: they may be on several servers, and none is to
    /// wait for one that is sick. What is not ours any more says more than what is unknown.
    async fn free_group(&mut self) -> Result<(), NotFreed> {
        let mut others = std::mem::take(&mut self.others);
        let others = join_all(others.iter_mut().map(LockGuard::free_own));
        let (mut freed, others) = join(self.free_own(), others).await;
        for other in others {
            match (other, &freed) {
                (Err(NotFreed::Lost(reason)), Ok(()) | Err(NotFreed::Unanswered(_))) => {
                    freed = Err(NotFreed::Lost(reason));
                }
                (Err(error), Ok(())) => freed = Err(error),
                _ => {}
            }
        }
        freed
    }

    async fn free_own(&mut self) -> Result<(), NotFreed> {
        if self.freed {
            return self.end_inside();
        }
        let hold = &self.lease.hold;
        let progress = self.call.core.watchdog().unwatch(hold);
        let remaining = hold.end().map_err(NotFreed::Lost)?;
        if self.pass_on(progress, remaining) {
            return Ok(());
        }
        if let Some((seat, _)) = &self.seat {
            seat.line().expect_within(PATIENCE);
        }
        let hold = &self.lease.hold;
        let timeout = hold.terms.command_timeout.min(remaining);
        let released = self.call.core.backend().release(hold.entry_within(timeout)).await;
        match released {
            Ok(released) => {
                self.freed = true;
                events::released(hold, released);
                if released != Released::Freed {
                    hold.was_gone();
                    return Err(NotFreed::Lost(LostReason::Gone));
                }
                Ok(())
            }
            Err(error) => {
                events::release_failed(hold, &error);
                Err(NotFreed::Unanswered(error))
            }
        }
    }

    /// Ends a call that passed under another lock.
    fn end_inside(&mut self) -> Result<(), NotFreed> {
        let hold = &self.lease.hold;
        let leading = hold.leading();
        let checked = if leading.has_ended() { Err(LostReason::Released) } else { leading.check() };
        if self.inner.take().is_some() {
            hold.ends_inside();
        }
        checked.map_err(NotFreed::Lost)
    }

    /// Leaves the lock to the next caller of this process that waits for it, if there is one and it may have it.
    fn pass_on(&mut self, progress: Option<Progress>, remaining: Duration) -> bool {
        let hold = &self.lease.hold;
        let (Some((seat, turns)), Some(progress)) = (&self.seat, progress) else { return false };
        let fresh = remaining > hold.terms.ttl / 2 && self.strays.requests == 0 && self.ensure_open().is_ok();
        let next = turns.next().filter(|_| fresh && seat.line().waiting() > 0);
        let Some(mut turns) = next else { return false };
        if hold.is_outdone() {
            turns.last_fence = 0;
        }
        let Some(parked) = self.call.core.watchdog().park(hold) else { return false };
        if let Some((seat, _)) = self.seat.take() {
            seat.leave(Competitor::Holding(Tenure { parked, progress, turns }));
        }
        self.freed = true;
        events::passed_on(hold);
        true
    }
}

/// Why a lock was not freed by its holder.
pub(crate) enum NotFreed {
    Lost(LostReason),
    Unanswered(BackendError),
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if !self.freed {
            let progress = self.call.core.watchdog().unwatch(&self.lease.hold);
            let ended = self.lease.hold.end();
            let passed_on = ended.is_ok_and(|remaining| self.pass_on(progress, remaining));
            if !passed_on && ended != Err(LostReason::Gone) {
                self.call.core.watchdog().free(&self.lease.hold);
            }
        }
        if self.inner.is_some() {
            self.lease.hold.ends_inside();
        }
        let (hold, watchdog) = (&self.lease.hold, self.call.core.watchdog());
        let strays = std::mem::take(&mut self.strays);
        if strays.requests > 0 {
            watchdog.free_strays(hold, strays);
        }
        // When nothing of it is left to do.
        if !hold.passes() {
            events::ended(hold);
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard").field("lease", &self.lease).finish_non_exhaustive()
    }
}

/// A view of a lock that is held: cheap to clone and to pass on. It can't release the lock, and doesn't keep it.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
/// # let locks = distlock::LockManager::in_memory();
/// let guard = locks.lock("order:42").acquire().await?;
/// let lease = guard.lease().clone();
/// assert!(lease.is_held() && lease.remaining() > std::time::Duration::from_secs(29));
///
/// guard.release().await?;
/// assert!(lease.ensure_held().is_err());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Lease {
    pub(crate) hold: Arc<Hold>,
}

impl Lease {
    /// The key that is locked, as it was rendered; the first, if there are several.
    pub fn key(&self) -> &str {
        self.hold.key.as_str()
    }

    /// All keys that are locked together, in the order in which they are taken.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.hold.group().map(|hold| hold.key.as_str())
    }

    /// The token of this acquisition: a UUID, which also stands in the log. What stands on the server is the same, unless the
    /// lock came from another caller of this process that had waited for it.
    pub fn token(&self) -> &str {
        self.hold.token()
    }

    /// The fencing token of this acquisition, if one was asked for. A call that passes under another has the other's. One
    /// that passes under another and takes further keys gets a new one, above the last of each, and so does the other: ask
    /// for it again after such a call.
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.hold.fence_of_group()
    }

    /// What is left of the lease if it is not renewed again, by the holder's own careful clock. Zero once the lock is
    /// lost or released. Of several locks this is the least.
    pub fn remaining(&self) -> Duration {
        let remaining = |hold: &Hold| if hold.has_ended() { Duration::ZERO } else { hold.leading().remaining() };
        self.hold.group().map(remaining).min().unwrap_or_default()
    }

    /// Whether the lock is held at this moment.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Asks whether the lock is held, in a form for `?`: for use right before something that can't be taken back.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if it is not, with [`LostReason::Released`] after a release.
    pub fn ensure_held(&self) -> Result<(), LockError> {
        self.hold.check_group().map_err(|(hold, reason)| hold.lost_error(reason))?;
        match self.hold.group().map(Hold::leading).find(|hold| hold.has_ended() || !hold.was_granted()) {
            Some(hold) => Err(hold.lost_error(LostReason::Released)),
            None => Ok(()),
        }
    }

    /// Waits until the lock is lost, and says how. If the lock is released, this waits for ever.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn lost(&self) -> LostReason {
        self.hold.lost_of_group().await
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("keys", &self.keys().collect::<Vec<_>>())
            .field("token", &self.token())
            .field("remaining", &self.remaining())
            .finish()
    }
}
