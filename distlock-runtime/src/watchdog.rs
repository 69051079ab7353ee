//! The watchdog: it keeps leases alive, tells of their loss, and frees what was left behind.
//!
//! It has a thread, a runtime and (by the way backends connect) a connection of its own, so that nothing that the
//! application does to its own runtime can stop renewals: blocking it, starving it, ending it.

mod thread;
mod batch;
mod schedule;
mod reclaim;
mod parked;

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use tokio::runtime::Handle;
use tokio::time::Timeout;

pub(crate) use self::parked::{Left, Parked};
use self::reclaim::Reclaim;
use self::thread::Shared;
use crate::backend::{Backend, BackendError};
use crate::claim::Strays;
use crate::clock::Time;
use crate::hold::Hold;
use crate::lease::Progress;
use crate::{LockError, LostReason};

/// The handle to a manager's watchdog. The thread ends some time after this is dropped, once all keys are freed.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    runtime: io::Result<Handle>,
}

/// A way to have keys freed, for who has no manager at hand.
#[derive(Clone)]
pub(crate) struct Sweeper(Arc<Shared>);

impl Sweeper {
    /// Frees a key wherever it is or may come to be.
    pub(crate) fn sweep(&self, hold: &Arc<Hold>) {
        self.0.reclaim(Reclaim::stray(hold.clone(), None, 1));
    }
}

impl Watchdog {
    /// Starts the thread. If that fails, [`ensure_running`](Self::ensure_running) says so before any lock is taken.
    pub(crate) fn start(backend: Arc<dyn Backend>) -> Watchdog {
        let shared = Arc::new(Shared::new(backend));
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
        hold.start(sent, progress.end(&hold.terms));
        self.add(hold, progress);
    }

    /// Goes on with the watch over a lock that another caller of this process has passed on. Wakes the thread as
    /// [`watch`](Self::watch) does.
    pub(crate) fn watch_on(&self, hold: &Arc<Hold>, progress: Progress) {
        let now = Time::now();
        let progress = progress.passed_on(now, &hold.terms);
        hold.start(now, progress.end(&hold.terms));
        self.add(hold, progress);
    }

    fn add(&self, hold: &Arc<Hold>, progress: Progress) {
        let mut state = self.shared.lock();
        let at = state.schedule.watch(hold, progress);
        let early = state.wakes_by(at);
        drop(state);
        if early {
            self.shared.wake.notify_one();
        }
    }

    /// Ends the watch over a lock, so that nothing renews it any more. Returns how far it had come, if it was watched.
    pub(crate) fn unwatch(&self, hold: &Arc<Hold>) -> Option<Progress> {
        self.shared.lock().schedule.unwatch(hold)
    }

    /// Keeps a lock for the next caller of this process, for no longer than [`CLAIM`]. Nothing if that can't be.
    pub(crate) fn park(&self, hold: &Arc<Hold>) -> Option<Parked> {
        Parked::new(&self.shared, hold)
    }

    /// Keeps a place in the line for the next caller of this process.
    pub(crate) fn leave(&self, hold: &Arc<Hold>) -> Left {
        Left::new(&self.shared, hold)
    }

    pub(crate) fn sweeper(&self) -> Sweeper {
        Sweeper(self.shared.clone())
    }

    /// Frees the key of a lock that was held.
    pub(crate) fn free(&self, hold: &Arc<Hold>) {
        self.shared.reclaim(Reclaim::held(hold.clone()));
    }

    /// Frees the key if one of the requests of unknown outcome has set it or still sets it.
    pub(crate) fn free_strays(&self, hold: &Arc<Hold>, strays: Strays) {
        self.shared.reclaim_strays(hold, strays);
    }

    /// Declares all locks lost, and hands them out.
    pub(crate) fn lose_all(&self, reason: LostReason) -> Vec<Arc<Hold>> {
        let held = self.shared.lock().schedule.take_all();
        for hold in &held {
            hold.lose(reason);
        }
        held
    }

    /// Returns once no key is known that waits to be freed. What may still come to be there goes on being looked for.
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
