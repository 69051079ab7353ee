//! The watchdog: it keeps leases alive, tells of their loss, and frees what was left behind.
//!
//! It has a thread, a runtime and (by the way backends connect) a connection of its own, so that nothing that the
//! application does to its own runtime can stop renewals: blocking it, starving it, ending it.

mod reclaim;
mod schedule;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io, thread};

use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::time::Timeout;

use self::reclaim::{Next, Reclaim};
use self::schedule::{Schedule, Work};
use crate::backend::{Backend, BackendError, Entry, Released, Renewed, Route};
use crate::clock::Time;
use crate::hold::Hold;
use crate::lease::{Answer, Progress};
use crate::{LockError, LostReason, events};

/// The handle to a manager's watchdog. The thread ends some time after this is dropped, once all keys are freed.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    runtime: io::Result<Handle>,
}

impl Watchdog {
    /// Starts the thread. If that fails, [`ensure_running`](Self::ensure_running) says so before any lock is taken.
    pub(crate) fn start(backend: Arc<dyn Backend>) -> Watchdog {
        let shared = Arc::new(Shared { backend, state: Mutex::default(), wake: Notify::new(), settled: Notify::new() });
        let runtime = shared.clone().start();
        Watchdog { shared, runtime }
    }

    /// Bounds `future` by a time that the watchdog's runtime counts: the caller's may have no timers, or there may be none.
    pub(crate) fn timeout<F: Future>(&self, time: Duration, future: F) -> Result<Timeout<F>, LockError> {
        let _entered = self.ensure_running()?.enter();
        Ok(tokio::time::timeout(time, future))
    }

    pub(crate) fn ensure_running(&self) -> Result<&Handle, LockError> {
        self.runtime.as_ref().map_err(|error| LockError::Backend {
            operation: "start the watchdog's thread".to_owned(),
            attempts: 1,
            source: BackendError::lasting(error.to_string()),
        })
    }

    /// Lets the backend prepare the watchdog's runtime.
    pub(crate) async fn prepare(&self) -> Result<(), LockError> {
        let backend = self.shared.backend.clone();
        let prepared = self.ensure_running()?.spawn(async move { backend.prepare().await }).await;
        let prepared = prepared.unwrap_or_else(|error| Err(BackendError::lasting(error.to_string())));
        prepared.map_err(|source| LockError::Backend {
            operation: "connect the watchdog".to_owned(),
            attempts: 1,
            source,
        })
    }

    /// Takes a lock under watch that was granted by a request sent at `sent`. Wakes the thread only if it would otherwise
    /// sleep for too long, which is once in a third of the ttl at most.
    pub(crate) fn watch(&self, hold: &Arc<Hold>, sent: Time) {
        let progress = Progress::start(sent, &hold.terms, fastrand::f64());
        hold.start(sent, progress.deadline());
        let mut state = self.shared.lock();
        let at = state.schedule.watch(hold, progress);
        let early = at < state.wakes_at;
        drop(state);
        if early {
            self.shared.wake.notify_one();
        }
    }

    /// Ends the watch over a lock, so that nothing renews it any more.
    pub(crate) fn unwatch(&self, hold: &Arc<Hold>) {
        self.shared.lock().schedule.unwatch(hold);
    }

    /// Frees the key of a lock that was held.
    pub(crate) fn free(&self, hold: &Arc<Hold>) {
        self.shared.reclaim(Reclaim::held(hold.clone()), Time::now());
    }

    /// Frees the key if one of the attempts of unknown outcome, which were sent along `routes`, has set it or still sets it.
    pub(crate) fn free_stray(&self, hold: &Arc<Hold>, routes: Vec<Arc<dyn Route>>) {
        let now = Time::now();
        // With several ways open, none of them can prove that nothing comes along another.
        if routes.len() != 1 {
            self.shared.reclaim(Reclaim::stray(hold.clone(), None), now);
        }
        for route in routes {
            self.shared.reclaim(Reclaim::stray(hold.clone(), Some(route)), now);
        }
    }

    /// Declares all locks lost, and hands them out.
    pub(crate) fn lose_all(&self, reason: LostReason) -> Vec<Arc<Hold>> {
        let held = self.shared.lock().schedule.take_all();
        for hold in &held {
            hold.lose(reason);
        }
        held
    }

    /// Returns once no key waits to be freed.
    pub(crate) async fn settled(&self) {
        loop {
            let mut settled = std::pin::pin!(self.shared.settled.notified());
            settled.as_mut().enable();
            if self.shared.lock().is_settled() {
                return;
            }
            settled.await;
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.lock().ending = true;
        self.shared.wake.notify_one();
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").finish_non_exhaustive()
    }
}

struct Shared {
    backend: Arc<dyn Backend>,
    state: Mutex<State>,
    wake: Notify,
    settled: Notify,
}

#[derive(Default)]
struct State {
    schedule: Schedule,
    /// When the thread wakes by itself. Set by it before it sleeps.
    wakes_at: Time,
    /// How many releases are on their way.
    releasing: usize,
    ending: bool,
}

impl State {
    fn is_settled(&self) -> bool {
        self.releasing == 0 && !self.schedule.has_reclaims()
    }
}

impl Shared {
    fn start(self: Arc<Self>) -> io::Result<Handle> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let handle = runtime.handle().clone();
        thread::Builder::new().name("distlock-watchdog".to_owned()).spawn(move || runtime.block_on(self.work()))?;
        Ok(handle)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing of ours panics while it holds the lock; what else the schedule went through, it is still the best there is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn work(self: Arc<Self>) {
        loop {
            let Some((work, wakes_at)) = self.take_due() else { return };
            for (hold, reason) in work.losses {
                // In a task, which contains what a waker or a subscriber of the application may do: its panic must not end
                // this thread.
                tokio::spawn(async move { hold.lose(reason) });
            }
            self.clone().renew(work.renewals);
            self.clone().release(work.reclaims);
            let sleep = wakes_at.saturating_since(Time::now());
            // Cut short by `wake`; so long a sleep is no end of it, but what tokio's timers can count.
            let _ = tokio::time::timeout(sleep.min(Duration::from_secs(24 * 60 * 60)), self.wake.notified()).await;
        }
    }

    /// What is due, and when the thread has to look again; nothing once the manager is gone and all keys are free.
    fn take_due(&self) -> Option<(Work, Time)> {
        let mut state = self.lock();
        if state.ending && state.is_settled() {
            return None;
        }
        let work = state.schedule.take_due(Time::now());
        state.releasing += work.reclaims.len();
        state.wakes_at = state.schedule.next();
        Some((work, state.wakes_at))
    }

    /// Sends renewals, those with the same timeout together: a lock with a short ttl is no reason to give up early on others.
    fn renew(self: Arc<Self>, mut holds: Vec<Arc<Hold>>) {
        holds.sort_by_key(|hold| hold.terms.command_timeout);
        for batch in holds.chunk_by(|a, b| a.terms.command_timeout == b.terms.command_timeout) {
            let renewals = Renewals { shared: self.clone(), sent: Time::now(), holds: batch.to_vec() };
            tokio::spawn(renewals.run());
        }
    }

    fn release(self: Arc<Self>, reclaims: Vec<Reclaim>) {
        let (by_route, mut others): (Vec<_>, Vec<_>) =
            reclaims.into_iter().partition(|reclaim| reclaim.route.is_some());
        for reclaim in by_route {
            tokio::spawn(Releases { shared: self.clone(), reclaims: vec![reclaim] }.run_by_route());
        }
        others.sort_by_key(|reclaim| reclaim.hold.terms.command_timeout);
        while let Some(first) = others.first() {
            let timeout = first.hold.terms.command_timeout;
            let rest = others.split_off(others.partition_point(|other| other.hold.terms.command_timeout == timeout));
            tokio::spawn(Releases { shared: self.clone(), reclaims: std::mem::replace(&mut others, rest) }.run());
        }
    }

    fn reclaim(&self, reclaim: Reclaim, at: Time) {
        let rejected = self.lock().schedule.reclaim(reclaim, at).err();
        if let Some(reclaim) = rejected {
            events::left_to_expire(&reclaim.hold, "too many keys are waiting to be freed");
        }
        self.wake.notify_one();
    }
}

/// Renewals on their way. Whatever becomes of the backend's answer, the schedule gets one for each lock.
struct Renewals {
    shared: Arc<Shared>,
    sent: Time,
    holds: Vec<Arc<Hold>>,
}

impl Renewals {
    async fn run(mut self) {
        let entries: Vec<Entry<'_>> = self.holds.iter().map(|hold| hold.entry()).collect();
        let answers = self.shared.backend.renew(&entries).await;
        drop(entries);
        let holds = std::mem::take(&mut self.holds);
        for (hold, answer) in holds.iter().zip(answers) {
            self.answered(hold, answer);
        }
        self.shared.wake.notify_one();
    }

    fn answered(&self, hold: &Arc<Hold>, answer: Result<Renewed, BackendError>) {
        let now = Time::now();
        match answer {
            Ok(Renewed::Extended) => {
                self.shared.lock().schedule.answered(hold, Answer::Extended, self.sent, now);
                events::renewed(hold);
            }
            Ok(Renewed::NotHeld) => {
                self.shared.lock().schedule.answered(hold, Answer::Lost, self.sent, now);
                hold.lose(LostReason::Gone);
            }
            Err(error) => {
                self.shared.lock().schedule.answered(hold, Answer::Unknown, self.sent, now);
                events::renewal_unanswered(hold, &error);
            }
        }
    }
}

impl Drop for Renewals {
    /// A backend from outside may panic. That is no answer, so the renewal is tried again.
    fn drop(&mut self) {
        for hold in std::mem::take(&mut self.holds) {
            self.answered(&hold, Err(BackendError::unanswered("the backend panicked")));
        }
        self.shared.wake.notify_one();
    }
}

/// Releases on their way.
struct Releases {
    shared: Arc<Shared>,
    reclaims: Vec<Reclaim>,
}

impl Releases {
    async fn run(mut self) {
        let entries: Vec<Entry<'_>> = self.reclaims.iter().map(|reclaim| reclaim.hold.entry()).collect();
        let answers = self.shared.backend.release_all(&entries).await;
        drop(entries);
        self.answered(answers);
    }

    async fn run_by_route(mut self) {
        let mut answers = Vec::with_capacity(1);
        for reclaim in &self.reclaims {
            if let Some(route) = &reclaim.route {
                answers.push(route.release(reclaim.hold.entry()).await);
            }
        }
        self.answered(answers);
    }

    fn answered(&mut self, answers: Vec<Result<Released, BackendError>>) {
        let reclaims = std::mem::take(&mut self.reclaims);
        let count = reclaims.len();
        for (reclaim, answer) in reclaims.into_iter().zip(answers) {
            self.shared.released(reclaim, &answer);
        }
        self.shared.lock().releasing -= count;
        self.shared.wake.notify_one();
        self.shared.settled.notify_waiters();
    }
}

impl Drop for Releases {
    fn drop(&mut self) {
        if !self.reclaims.is_empty() {
            let answers = self.reclaims.iter().map(|_| Err(BackendError::unanswered("the backend panicked"))).collect();
            self.answered(answers);
        }
    }
}

impl Shared {
    fn released(&self, mut reclaim: Reclaim, answer: &Result<Released, BackendError>) {
        match answer {
            Ok(released) => events::released(&reclaim.hold, *released),
            Err(error) => events::release_unanswered(&reclaim.hold, error),
        }
        match reclaim.answered(answer.as_ref().copied(), Time::now()) {
            Next::At(at) => self.reclaim(reclaim, at),
            Next::GivenUp if answer.is_err() => events::left_to_expire(&reclaim.hold, "no answer within its ttl"),
            Next::GivenUp | Next::Done => {}
        }
    }
}
