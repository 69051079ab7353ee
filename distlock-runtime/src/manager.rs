use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::{Backend, MemoryBackend};
use crate::builder::LockManagerBuilder;
use crate::clock::Time;
use crate::ears::Ears;
use crate::events::{Audience, Listener};
use crate::hold::Hold;
use crate::key::Keys;
use crate::line::Lines;
use crate::options::{Defaults, Options};
use crate::request::LockRequest;
use crate::run::Prepared;
use crate::traces::Traces;
use crate::watchdog::Watchdog;
use crate::{FencingToken, LockError, LostReason, scope};

/// The way to locks: it knows the server, keeps what is held alive, and frees what is left behind.
///
/// Cheap to clone; the clones share everything. One for a process is enough: make it at the start and
/// [`install`](Self::install) it, or keep it where your services keep their clients.
///
/// # Examples
///
/// ```
/// use distlock::{LockError, LockManager};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let locks = LockManager::in_memory();
/// let receipt: Result<u32, LockError> = locks.lock("order:42").run(async { Ok(7) }).await;
/// assert_eq!(receipt?, 7);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LockManager {
    pub(crate) core: Arc<Core>,
}

impl LockManager {
    /// Connects to the server that `url` names, with everything else at its default. See
    /// [`LockManagerBuilder::url`] for the forms that a URL may have.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] if the URL can't be used; [`LockError::Backend`] if the server can't be connected to
    /// within the connect timeout.
    pub async fn connect(url: &str) -> Result<LockManager, LockError> {
        LockManager::builder().url(url).build().await
    }

    /// Keeps locks in this process alone, for tests and for trying things out.
    pub fn in_memory() -> LockManager {
        LockManager { core: Arc::new(Core::new(Arc::new(MemoryBackend::new()), default_owner(), Defaults::default())) }
    }

    /// Starts a manager with options of its own.
    pub fn builder() -> LockManagerBuilder {
        LockManagerBuilder::new()
    }

    /// Makes this the process's manager: the one that annotated functions use when nothing else is said.
    ///
    /// # Errors
    ///
    /// [`LockError::AlreadyInstalled`] if there is one. It stays.
    pub fn install(&self) -> Result<(), LockError> {
        scope::install(self)
    }

    /// Runs `future` with this manager as the default of annotated functions, before the installed one. Tasks that
    /// `future` spawns do not inherit it.
    ///
    /// # Cancel safety
    ///
    /// As safe as `future`.
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        scope::scope(self.clone(), future)
    }

    /// Asks for the lock on `key`, which is to have 1 to 1,024 bytes.
    pub fn lock(&self, key: impl Into<String>) -> LockRequest {
        LockRequest::new(self.core.clone(), key.into())
    }

    /// Asks for the locks on several keys: all or none of them. They are taken in one order, whatever the order here, and a
    /// key that is named twice counts once. At least one there must be.
    ///
    /// With [`wait`](LockRequest::wait) they are taken one after the other, so that those which are there already wait for
    /// the rest.
    pub fn lock_all<K: Into<String>>(&self, keys: impl IntoIterator<Item = K>) -> LockRequest {
        LockRequest::for_all(self.core.clone(), keys.into_iter().map(Into::into).collect())
    }

    /// What this manager keeps its locks in, for tests of a backend and for managers that share one.
    pub fn backend(&self) -> Arc<dyn Backend> {
        self.core.backend.clone()
    }

    /// Ends the manager: new calls and waiting ones fail with [`LockError::ShuttingDown`], bodies that run may go on
    /// until `deadline` from now, what still runs then is stopped with [`LostReason::Shutdown`], and all keys are freed.
    ///
    /// A guard counts like a body that runs: until it is released or dropped. Bodies under `on_lost = finish` are not stopped, though their keys are freed. If the server can't be reached, this
    /// returns after about two seconds over the deadline, and the keys are left to expire.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the manager stays closed, but what it still holds is released in the ordinary way.
    pub async fn shutdown(&self, deadline: Duration) {
        self.core.shutdown(deadline).await;
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Core { backend, owner, .. } = &*self.core;
        f.debug_struct("LockManager").field("owner", owner).field("backend", backend).finish_non_exhaustive()
    }
}

/// What the clones of a manager share.
pub(crate) struct Core {
    /// No two of a process have the same.
    number: u64,
    backend: Arc<dyn Backend>,
    owner: String,
    defaults: Defaults,
    listener: Option<Arc<Listener>>,
    /// Whether the spans of calls have their keys.
    keys_in_spans: bool,
    watchdog: Watchdog,
    closing: AtomicBool,
    /// How many calls are under way: acquiring, holding or releasing.
    calls: AtomicUsize,
    /// Told of the closing and, from then on, of each call that ends.
    changed: Notify,
    lines: Arc<Lines>,
    ears: Ears,
    /// The highest fencing token that was given out here.
    highest_fence: AtomicU64,
}

impl Core {
    pub(crate) fn new(backend: Arc<dyn Backend>, owner: String, defaults: Defaults) -> Core {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let watchdog = Watchdog::start(backend.clone());
        Core {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            backend,
            owner,
            defaults,
            listener: None,
            keys_in_spans: false,
            watchdog,
            closing: AtomicBool::new(false),
            calls: AtomicUsize::new(0),
            changed: Notify::new(),
            lines: Arc::default(),
            ears: Ears::new(),
            highest_fence: AtomicU64::new(0),
        }
    }

    /// The same, where an application listens, and where it wants keys in its traces.
    pub(crate) fn observed(self, listener: Option<Listener>, keys_in_spans: bool) -> Core {
        Core { listener: listener.map(Arc::new), keys_in_spans, ..self }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    pub(crate) fn lines(&self) -> &Arc<Lines> {
        &self.lines
    }

    pub(crate) fn ears(&self) -> &Ears {
        &self.ears
    }

    pub(crate) fn shared_backend(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }

    /// What the next fencing token must be above, by what is known here. It makes up for a server that has forgotten.
    pub(crate) fn highest_fence(&self) -> u64 {
        self.highest_fence.load(Ordering::Relaxed)
    }

    pub(crate) fn note_fence(&self, token: FencingToken) {
        self.highest_fence.fetch_max(token.get(), Ordering::Relaxed);
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    pub(crate) fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }

    /// Connects, for the caller and for the watchdog.
    pub(crate) async fn connect(&self) -> Result<(), LockError> {
        let connected = self.backend.prepare().await;
        connected.map_err(|source| LockError::Backend { operation: "connect".to_owned(), attempts: 1, source })?;
        self.watchdog.prepare().await
    }

    /// Makes a call ready: every option has its value, and the acquisition its token.
    pub(crate) fn prepare(self: Arc<Self>, keys: Keys, options: &Options, function: Option<&'static str>) -> Prepared {
        let terms = options.resolve(&self.defaults)?;
        if let (Some(option), Some(why)) = (options.beyond_exclusive(), self.backend.only_exclusive()) {
            return Err(LockError::InvalidOption { option, reason: why.to_owned() });
        }
        let (first, others) = keys.in_order();
        let key = self.keys_in_spans.then_some(first.as_str());
        let audience = Audience::of_call(function, key, self.listener.as_ref());
        let waiter = || terms.wait.is_some().then(|| self.ears.name().clone());
        let traces = || (!self.backend.reuses_values()).then(|| Arc::new(Traces::new(self.watchdog.sweeper())));
        let hold = |key, audience| Arc::new(Hold::new(key, &self.owner, terms, audience, waiter(), traces()));
        let others: Vec<_> = others.into_iter().map(|key| hold(key, audience.clone())).collect();
        let first = hold(first, audience);
        if !others.is_empty() {
            first.set_others(others);
        }
        Ok((self, first))
    }

    pub(crate) fn ensure_open(&self) -> Result<(), LockError> {
        self.watchdog.ensure_running()?;
        if self.closing.load(Ordering::SeqCst) { Err(LockError::ShuttingDown) } else { Ok(()) }
    }

    /// Waits for some time, or fails when the manager is closed.
    pub(crate) async fn pause(&self, time: Duration) -> Result<(), LockError> {
        self.watchdog.timeout(time, self.closed())?.await.map_or(Ok(()), Err)
    }

    async fn closed(&self) -> LockError {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Err(error) = self.ensure_open() {
                return error;
            }
            changed.await;
        }
    }

    /// Waits for `event` until some time, or fails when the manager is closed. Nothing if the time comes first.
    pub(crate) async fn by<F: Future>(&self, until: Time, event: F) -> Result<Option<F::Output>, LockError> {
        let mut event = pin!(event);
        let first = async {
            let mut closed = pin!(self.closed());
            poll_fn(|cx| match event.as_mut().poll(cx) {
                Poll::Ready(happened) => Poll::Ready(Ok(happened)),
                Poll::Pending => closed.as_mut().poll(cx).map(Err),
            })
            .await
        };
        let time = until.saturating_since(Time::now());
        self.watchdog.timeout(time, first)?.await.ok().transpose()
    }

    /// The same, also while the manager is shutting down.
    pub(crate) async fn by_any_means<F: Future>(&self, until: Time, event: F) -> Result<Option<F::Output>, LockError> {
        Ok(self.watchdog.timeout(until.saturating_since(Time::now()), event)?.await.ok())
    }

    /// Counts in a call that goes on inside of another.
    pub(crate) fn enter_again(self: &Arc<Self>) -> Entered {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Entered { core: self.clone() }
    }

    /// Counts a call in, if the manager takes any.
    pub(crate) fn enter(self: Arc<Self>) -> Result<Entered, LockError> {
        // In this order: a shutdown that this misses counts this call.
        let entered = Entered { core: self };
        entered.core.calls.fetch_add(1, Ordering::SeqCst);
        entered.core.ensure_open()?;
        Ok(entered)
    }

    async fn shutdown(&self, deadline: Duration) {
        self.closing.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
        self.wait_for(deadline, self.idle()).await;

        let stopped = self.watchdog.lose_all(LostReason::Shutdown);
        // Whoever was stopped frees its key when its body is dropped. Who does not come to that, because its runtime is
        // busy or its guard is kept, has it freed here.
        self.wait_for(GRACE, self.idle()).await;
        stopped.iter().filter(|hold| !hold.has_ended()).for_each(|hold| self.watchdog.free(hold));
        self.wait_for(GRACE, self.watchdog.settled()).await;
    }

    async fn wait_for(&self, time: Duration, event: impl Future<Output = ()>) {
        // Without a watchdog there is nothing to wait for: no lock was ever taken.
        if let Ok(event) = self.watchdog.timeout(time, event) {
            let _ = event.await;
        }
    }

    /// Returns once no call is under way.
    async fn idle(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.calls.load(Ordering::SeqCst) == 0 {
                return;
            }
            changed.await;
        }
    }
}

/// A call that is counted, until this is dropped.
pub(crate) struct Entered {
    pub(crate) core: Arc<Core>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.core.calls.fetch_sub(1, Ordering::SeqCst);
        if self.core.closing.load(Ordering::SeqCst) {
            self.core.changed.notify_waiters();
        }
    }
}

/// For how long a shutdown waits for each of its last two steps.
const GRACE: Duration = Duration::from_secs(1);

pub(crate) fn default_owner() -> String {
    format!("{}/{}", host(), std::process::id())
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    // No silent default: what can't be read is called so.
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unknown-host".to_owned())
}
