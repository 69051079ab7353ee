use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use uuid::Uuid;

use crate::backend::{Backend, Listener};
use crate::events;
use crate::manager::Core;

/// For how long a subscription that failed rests.
const PAUSE: Duration = Duration::from_millis(500);

/// The same where it would fail again until somebody mends something.
const LONG_PAUSE: Duration = Duration::from_secs(10);

/// Those of this manager who stand in lines, to be called when their turns come.
pub(crate) struct Ears {
    /// The manager's name in the lines: 32 characters.
    name: Arc<str>,
    by_token: Arc<ByToken>,
    /// Whether somebody listens to the backend.
    open: Mutex<bool>,
}

#[derive(Default)]
struct ByToken {
    calls: Mutex<HashMap<String, Arc<Notify>>>,
    /// Whether the last try to listen failed: an outage is worth one warning.
    failed: AtomicBool,
}

impl Ears {
    pub(crate) fn new() -> Ears {
        let name = Uuid::new_v4().simple().encode_lower(&mut Uuid::encode_buffer()).into();
        Ears { name, by_token: Arc::default(), open: Mutex::default() }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Has a call for `token` heard.
    pub(crate) fn listen(&self, token: &str) -> Ear {
        let call = Arc::new(Notify::new());
        self.by_token.lock().insert(token.to_owned(), call.clone());
        Ear { by_token: self.by_token.clone(), token: token.to_owned(), call }
    }

    /// Begins to listen to the backend, unless somebody does. The task ends with the watchdog's runtime.
    pub(crate) fn open(&self, core: &Core) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if *open {
            return;
        }
        if let Ok(runtime) = core.watchdog().ensure_running() {
            runtime.spawn(listen(core.shared_backend(), self.name.clone(), self.by_token.clone()));
            *open = true;
        }
    }
}

/// Listens for as long as there is a runtime. What is missed between two subscriptions is found by asking.
async fn listen(backend: Arc<dyn Backend>, name: Arc<str>, by_token: Arc<ByToken>) {
    loop {
        let error = backend.listen(&name, &*by_token).await;
        events::not_listening(&error, by_token.failed());
        tokio::time::sleep(if error.is_passing() { PAUSE } else { LONG_PAUSE }).await;
    }
}

impl ByToken {
    /// Notes that nobody listens, and says whether that is new.
    fn failed(&self) -> bool {
        !self.failed.swap(true, Ordering::Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for ByToken {
    fn connected(&self) {
        self.failed.store(false, Ordering::Relaxed);
        for call in self.lock().values() {
            call.notify_one();
        }
    }

    fn handed_over(&self, token: &str) {
        if let Some(call) = self.lock().get(token) {
            call.notify_one();
        }
    }
}

/// Hears a call for one token, until it is dropped.
pub(crate) struct Ear {
    by_token: Arc<ByToken>,
    token: String,
    call: Arc<Notify>,
}

impl Ear {
    /// Returns when there was a call since the last time.
    pub(crate) async fn called(&self) {
        self.call.notified().await;
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let mut ears = self.by_token.lock();
        // The next caller of this process may stand in the same place, and listen for the same token.
        if ears.get(&self.token).is_some_and(|call| Arc::ptr_eq(call, &self.call)) {
            ears.remove(&self.token);
        }
    }
}
