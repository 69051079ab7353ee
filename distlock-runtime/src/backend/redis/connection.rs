use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::dial::{Dialer, Outcome};
use super::live::{Live, Site};
use crate::backend::BackendError;

/// The connections to one server: one for each Tokio runtime that asks.
///
/// A connection is driven by a task of the runtime that made it. If that runtime ended, or was blocked, calls on any
/// other would fail or hang with it; and the watchdog must not wait for anybody.
pub(super) struct Connections {
    dialer: Dialer,
    slots: RwLock<Vec<Slot>>,
}

/// One runtime's place for its connection.
struct Slot {
    /// No two slots have the same, also where two threads make one for the same runtime.
    number: u64,
    id: runtime::Id,
    /// The latest attempt to connect, and with it the connection that it made.
    attempt: Option<Attempt>,
    /// The task that takes the slot away when its runtime ends, and until then looks out for failovers.
    sentry: AbortHandle,
}

/// Filled once the attempt is over.
type Attempt = watch::Receiver<Option<Outcome>>;

impl Connections {
    pub(super) fn new(dialer: Dialer) -> Connections {
        Connections { dialer, slots: RwLock::default() }
    }

    pub(super) fn site(&self) -> &Site {
        self.dialer.site()
    }

    pub(super) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// The running runtime's connection. If there is none that works, one is made, and waited for as long as `patience`
    /// lasts.
    ///
    /// # Errors
    ///
    /// Nothing was sent if it fails.
    ///
    /// # Cancel safety
    ///
    /// The attempt to connect goes on, so that the next caller finds it further on.
    pub(super) async fn get(self: &Arc<Self>, patience: Duration) -> Result<Arc<Live>, BackendError> {
        match self.at_once()? {
            Some(live) => Ok(live),
            // In a box, since its future is larger than what every command should carry with it.
            None => Box::pin(self.connect(patience)).await,
        }
    }

    /// The running runtime's connection, if there is one that works.
    pub(super) fn at_once(&self) -> Result<Option<Arc<Live>>, BackendError> {
        runtime().map(|runtime| self.usable(runtime.id()))
    }

    /// Whether the running runtime has a connection that works.
    pub(super) fn is_ready(&self) -> bool {
        self.at_once().is_ok_and(|live| live.is_some())
    }

    /// Why the running runtime has no connection, if the last attempt to make one has failed.
    pub(super) fn why_none(&self) -> Option<BackendError> {
        let id = Handle::try_current().ok()?.id();
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let attempt = slots.iter().find(|slot| slot.id == id)?.attempt.as_ref()?;
        let outcome = attempt.borrow();
        outcome.as_ref()?.as_ref().err().map(|why| why.clone().explain(&self.dialer.site().address))
    }

    /// Begins to make a connection for the running runtime, unless there is one or it is being made.
    pub(super) fn begin(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.iter().find(|slot| slot.id == runtime.id());
        let begun = slot.and_then(|slot| slot.attempt.as_ref()).is_some_and(is_current);
        drop(slots);
        if !begun {
            // Whoever needs it joins it later.
            drop(self.join_attempt(&runtime));
        }
    }

    fn usable(&self, id: runtime::Id) -> Option<Arc<Live>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let attempt = slots.iter().find(|slot| slot.id == id)?.attempt.as_ref()?;
        let outcome = attempt.borrow();
        outcome.as_ref()?.as_ref().ok().filter(|live| live.is_usable()).cloned()
    }

    async fn connect(self: &Arc<Self>, patience: Duration) -> Result<Arc<Live>, BackendError> {
        let Site { address, .. } = self.dialer.site();
        let ended = || BackendError::passing(format!("the runtime ended while it was connecting to {address}"));
        let mut attempt = self.join_attempt(&runtime()?).ok_or_else(ended)?;
        match tokio::time::timeout(patience, attempt.wait_for(Option::is_some)).await {
            Ok(Ok(outcome)) => {
                let outcome = outcome.clone().ok_or_else(ended)?;
                outcome.map_err(|unreachable| unreachable.explain(address))
            }
            Ok(Err(_)) => Err(ended()),
            Err(_) => Err(BackendError::passing(format!("{address} could not be connected to within {patience:?}"))),
        }
    }

    /// Joins the attempt that is under way, or starts one: whoever needs it, there is one at a time. Nothing if the runtime
    /// is ending.
    fn join_attempt(self: &Arc<Self>, runtime: &Handle) -> Option<Attempt> {
        self.ensure_slot(runtime);
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.iter_mut().find(|slot| slot.id == runtime.id())?;
        if let Some(attempt) = slot.attempt.as_ref().filter(|attempt| is_current(attempt)) {
            return Some(attempt.clone());
        }
        let (outcome, attempt) = watch::channel(None);
        let connections = self.clone();
        let again = slot.attempt.is_some();
        runtime.spawn(async move { outcome.send_replace(Some(connections.dialer.dial(again).await)) });
        slot.attempt = Some(attempt.clone());
        Some(attempt)
    }

    fn ensure_slot(self: &Arc<Self>, runtime: &Handle) {
        let has_one = |slots: &[Slot]| slots.iter().any(|slot| slot.id == runtime.id());
        if has_one(&self.slots.read().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        // Before the lock is taken: a runtime that is ending drops the sentry at once, which takes the lock itself.
        let slot = Slot::new(runtime, self);
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread of the same runtime may have been faster.
        if !slot.sentry.is_finished() && !has_one(&slots) {
            slots.push(slot);
        }
    }
}

fn runtime() -> Result<Handle, BackendError> {
    let none = |_| BackendError::lasting("no Tokio runtime is running here; one with I/O and time is needed");
    Handle::try_current().map_err(none)
}

/// Whether this attempt is under way, or has made a connection that works.
fn is_current(attempt: &Attempt) -> bool {
    match &*attempt.borrow() {
        None => attempt.has_changed().is_ok(),
        Some(Ok(live)) => live.is_usable(),
        Some(Err(_)) => false,
    }
}

impl Slot {
    fn new(runtime: &Handle, connections: &Arc<Connections>) -> Slot {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (leaver, dialer) =
            (Leaver { connections: Arc::downgrade(connections), number }, connections.dialer.clone());
        let sentry = runtime.spawn(async move {
            let _leaver = leaver;
            dialer.watch().await;
        });
        Slot { number, id: runtime.id(), attempt: None, sentry: sentry.abort_handle() }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.sentry.abort();
    }
}

/// Takes a runtime's slot away when it is dropped, which the runtime does with all its tasks when it ends.
struct Leaver {
    connections: Weak<Connections>,
    number: u64,
}

impl Drop for Leaver {
    fn drop(&mut self) {
        let Some(connections) = self.connections.upgrade() else { return };
        let left = {
            let mut slots = connections.slots.write().unwrap_or_else(PoisonError::into_inner);
            slots.extract_if(.., |slot| slot.number == self.number).collect::<Vec<_>>()
        };
        // What it drops may have more to do than is good under a lock.
        drop(left);
    }
}
