use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, RedisError};
use tokio::runtime::{self, Handle};
use tokio::task::AbortHandle;

use super::errors::explain_connect;
use super::live::{Live, Site};
use crate::backend::BackendError;
use crate::clock::Time;

/// The connections to one server: one for each Tokio runtime that asks.
///
/// A connection is driven by a task of the runtime that made it. If that runtime ended, or was blocked, calls on any
/// other would fail or hang with it; and the watchdog must not wait for anybody.
pub(super) struct Connections {
    client: Client,
    site: Arc<Site>,
    connect_timeout: Duration,
    slots: RwLock<Vec<Slot>>,
}

impl Connections {
    pub(super) fn new(client: Client, prefix: String, connect_timeout: Duration) -> Connections {
        let address = client.get_connection_info().addr().to_string();
        let site = Arc::new(Site { address, prefix });
        Connections { client, site, connect_timeout, slots: RwLock::default() }
    }

    /// The running runtime's connection, made anew if there is none that works.
    ///
    /// # Errors
    ///
    /// Nothing was sent if it fails.
    pub(super) async fn get(self: &Arc<Self>) -> Result<Arc<Live>, BackendError> {
        let Ok(runtime) = Handle::try_current() else {
            return Err(BackendError::lasting("no Tokio runtime is running here; one with I/O and time is needed"));
        };
        match self.usable(runtime.id()) {
            Some(live) => Ok(live),
            // In a box, since to connect takes a large future, which every command would otherwise carry with it.
            None => Box::pin(self.connect(runtime)).await,
        }
    }

    fn usable(&self, id: runtime::Id) -> Option<Arc<Live>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let live = slots.iter().find(|slot| slot.id == id)?.live.as_ref()?;
        (!live.is_broken()).then(|| live.clone())
    }

    async fn connect(self: &Arc<Self>, runtime: Handle) -> Result<Arc<Live>, BackendError> {
        match tokio::time::timeout(self.connect_timeout, self.connect_once(runtime)).await {
            Ok(connected) => connected.map_err(|error| explain_connect(error, &self.site.address)),
            Err(_) => Err(BackendError::passing(format!(
                "{} could not be connected to within {:?}",
                self.site.address, self.connect_timeout
            ))),
        }
    }

    async fn connect_once(self: &Arc<Self>, runtime: Handle) -> Result<Arc<Live>, RedisError> {
        let id = runtime.id();
        let gate = self.gate(&runtime);
        let mut failure = gate.lock().await;
        if let Some(live) = self.usable(id) {
            return Ok(live);
        }
        if let Some(failure) = failure.as_ref().filter(|failure| Time::now() < failure.until) {
            return Err(failure.error.clone());
        }
        match self.open().await {
            Ok(live) => {
                *failure = None;
                let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
                slots.iter_mut().filter(|slot| slot.id == id).for_each(|slot| slot.live = Some(live.clone()));
                Ok(live)
            }
            Err(error) => {
                let pause = Duration::from_millis(fastrand::u64(25..75));
                *failure = Some(Failure { error: error.clone(), until: Time::now().saturating_add(pause) });
                Err(error)
            }
        }
    }

    /// The gate of the running runtime's slot, which is made if there is none.
    fn gate(self: &Arc<Self>, runtime: &Handle) -> Arc<Gate> {
        let find = |slots: &[Slot]| slots.iter().find(|slot| slot.id == runtime.id()).map(|slot| slot.gate.clone());
        if let Some(gate) = find(&self.slots.read().unwrap_or_else(PoisonError::into_inner)) {
            return gate;
        }
        // Before the lock is taken: a runtime that is ending drops the slot's sentry at once, which takes the lock itself.
        let new = Slot::new(runtime, Arc::downgrade(self));
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread of the same runtime may have been faster.
        if let Some(gate) = find(&slots) {
            return gate;
        }
        let gate = new.gate.clone();
        slots.push(new);
        gate
    }

    async fn open(&self) -> Result<Arc<Live>, RedisError> {
        let broken = Arc::new(AtomicBool::new(false));
        // The bounds are set by our callers: on each command, and on the whole of connecting.
        let mut config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        if self.client.get_connection_info().redis_settings().protocol().supports_resp3() {
            config = config.set_push_sender(end_watcher(&broken));
        }
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Arc::new(Live::new(connection, broken, self.site.clone())))
    }
}

/// Over RESP3 the client tells of a connection's end by a push, so that the next command need not find out by failing.
fn end_watcher(broken: &Arc<AtomicBool>) -> impl Fn(PushInfo) -> Result<(), redis::aio::SendError> + use<> {
    let broken = broken.clone();
    move |push| {
        if push.kind == PushKind::Disconnection {
            broken.store(true, Ordering::Release);
        }
        Ok(())
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client's own text would show the password.
        f.debug_struct("Connections").field("address", &self.site.address).finish_non_exhaustive()
    }
}

/// One runtime's place for its connection.
struct Slot {
    id: runtime::Id,
    live: Option<Arc<Live>>,
    gate: Arc<Gate>,
    /// The task that takes the slot away when its runtime ends.
    sentry: AbortHandle,
}

/// One attempt to connect at a time, whoever needs it; the others wait for its outcome.
type Gate = tokio::sync::Mutex<Option<Failure>>;

struct Failure {
    error: RedisError,
    /// Until then nobody tries again: a server that comes back is met by few connections, not by a storm.
    until: Time,
}

impl Slot {
    fn new(runtime: &Handle, connections: Weak<Connections>) -> Slot {
        let id = runtime.id();
        let leaver = Leaver { connections, id };
        let sentry = runtime.spawn(async move {
            let _leaver = leaver;
            std::future::pending::<()>().await;
        });
        Slot { id, live: None, gate: Arc::default(), sentry: sentry.abort_handle() }
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
    id: runtime::Id,
}

impl Drop for Leaver {
    fn drop(&mut self) {
        if let Some(connections) = self.connections.upgrade() {
            let mut slots = connections.slots.write().unwrap_or_else(PoisonError::into_inner);
            slots.retain(|slot| slot.id != self.id);
        }
    }
}
