use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

use super::batch::{Releases, Renewals};
use super::reclaim::Reclaim;
use super::schedule::{Schedule, Work};
use crate::backend::Backend;
use crate::claim::Strays;
use crate::clock::Time;
use crate::events;
use crate::hold::Hold;

/// What the watchdog's thread, what it has under way, and its handle share.
pub(super) struct Shared {
    pub(super) backend: Arc<dyn Backend>,
    state: Mutex<State>,
    /// Told of what the thread has to look at.
    pub(super) wake: Notify,
    /// Told whenever a key has been freed, or given up.
    pub(super) settled: Notify,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) schedule: Schedule,
    /// When the thread wakes by itself, if it is not woken before.
    pub(super) wakes_at: Time,
    /// How many releases are on their way.
    pub(super) releasing: usize,
    pub(super) ending: bool,
}

impl State {
    /// Has the thread awake at some time. Says whether it has to be woken for that.
    pub(super) fn wakes_by(&mut self, at: Time) -> bool {
        let early = at < self.wakes_at;
        self.wakes_at = self.wakes_at.min(at);
        early
    }

    pub(super) fn is_settled(&self) -> bool {
        self.releasing == 0 && !self.schedule.has_urgent_reclaims()
    }
}

impl Shared {
    pub(super) fn new(backend: Arc<dyn Backend>) -> Shared {
        Shared { backend, state: Mutex::default(), wake: Notify::new(), settled: Notify::new() }
    }

    pub(super) fn start(self: Arc<Self>) -> io::Result<Handle> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let handle = runtime.handle().clone();
        thread::Builder::new().name("distlock-watchdog".to_owned()).spawn(move || runtime.block_on(self.work()))?;
        Ok(handle)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing of ours panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn work(self: Arc<Self>) {
        while let Some((work, wakes_at)) = self.take_due() {
            for (hold, reason) in work.losses {
                // In a task, which contains what a waker or a subscriber of the application may do: its panic must not
                // end this thread.
                tokio::spawn(async move { hold.lose(reason) });
            }
            Renewals::send(&self, work.renewals);
            Releases::send(&self, work.reclaims);
            // Cut short by `wake`. To wake once a day costs nothing and stays within what tokio's timers can count.
            let sleep = wakes_at.saturating_since(Time::now()).min(Duration::from_secs(24 * 60 * 60));
            let _ = tokio::time::timeout(sleep, self.wake.notified()).await;
        }
    }

    /// What is due, and when the thread has to look again; nothing once the manager is gone and all keys are free.
    fn take_due(&self) -> Option<(Work, Time)> {
        let mut state = self.lock();
        if state.ending && state.is_settled() && !state.schedule.has_reclaims() {
            return None;
        }
        let now = Time::now();
        let work = state.schedule.take_due(now);
        state.releasing += work.reclaims.len();
        // What this was to wake for may be gone by now, as short locks are. It still wakes then: else the next one would have
        // to wake it again at once.
        let earlier = if state.wakes_at > now { state.wakes_at } else { Time::FAR_FUTURE };
        state.wakes_at = state.schedule.next().min(earlier);
        Some((work, state.wakes_at))
    }

    /// Has a key freed if one of the requests of unknown outcome has set it or still sets it.
    pub(super) fn reclaim_strays(&self, hold: &Arc<Hold>, strays: Strays) {
        // With several ways open, none of them can prove that nothing comes along another.
        if strays.routes.len() != 1 {
            self.reclaim(Reclaim::stray(hold.clone(), None, strays.requests));
        }
        for route in strays.routes {
            self.reclaim(Reclaim::stray(hold.clone(), Some(route), strays.requests));
        }
    }

    /// Has a key freed at once.
    pub(super) fn reclaim(&self, reclaim: Reclaim) {
        let rejected = self.lock().schedule.reclaim(reclaim, Time::now()).err();
        self.wake.notify_one();
        if let Some(reclaim) = rejected {
            events::left_to_expire(&reclaim.hold, "too many keys are waiting to be freed");
        }
    }
}
