//! For tests of applications: locks in memory that fail on demand, and a way to assert that code runs under a lock.
//!
//! # Examples
//!
//! What a service does when its lock is lost in the middle of its work:
//!
//! ```
//! use distlock::test_util::TestBackend;
//! use distlock::{LockError, LockManager, assert_locked, distributed_lock};
//!
//! #[distributed_lock(key = "order:<id>")]
//! async fn pay(id: u64, backend: &TestBackend) -> Result<(), LockError> {
//!     charge(id);
//!     backend.lose(&format!("order:{id}"));
//!     tokio::task::yield_now().await;
//!     unreachable!("the body is stopped here")
//! }
//!
//! /// Must be called under the order's lock alone.
//! fn charge(id: u64) {
//!     assert_locked!("order:{id}");
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
//! let backend = TestBackend::new();
//! let locks = LockManager::builder().backend(backend.clone()).build().await?;
//! locks.scope(async {
//!     let error = pay(42, &backend).await.unwrap_err();
//!     assert!(error.is_lost());
//!
//!     backend.refuse(1);
//!     let error = pay(42, &backend).await.unwrap_err();
//!     assert!(error.is_busy());
//! }).await;
//! # Ok(()) }
//! ```

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::backend::{
    Acquired, AcquiredAll, Attempt, Backend, BackendError, BoxFuture, Entry, Listener, MemoryBackend, Released,
    Renewed, Route, Turn,
};
use crate::hold::Hold;
use crate::{FencingToken, LostReason, nest};

/// Keeps locks in memory, and fails on demand. Clones share everything.
///
/// Faults are about requests, of which an acquire without contention is one, each further try is one, and so is each release and
/// each batch of renewals.
#[derive(Clone, Debug, Default)]
pub struct TestBackend {
    memory: Arc<MemoryBackend>,
    faults: Arc<Mutex<Faults>>,
}

#[derive(Debug, Default)]
struct Faults {
    refused: u32,
    failing: u32,
    replies_dropped: u32,
    delay: Duration,
    /// Who was granted what, to be told of a loss.
    holds: HashMap<String, Vec<Weak<Hold>>>,
}

/// What becomes of one request.
struct Fate {
    refused: bool,
    reply_dropped: bool,
}

impl TestBackend {
    /// Makes a backend without locks and without faults.
    #[must_use]
    pub fn new() -> TestBackend {
        TestBackend::default()
    }

    /// Has the next so many attempts to acquire refused, as if `somebody-else` held the lock for another second.
    pub fn refuse(&self, attempts: u32) {
        self.faults().refused = attempts;
    }

    /// Has the next so many requests fail, as if the server could not be reached. Nothing is carried out.
    pub fn fail(&self, requests: u32) {
        self.faults().failing = requests;
    }

    /// Has the next so many requests carried out, but not answered: who asks waits for its command timeout.
    pub fn drop_replies(&self, requests: u32) {
        self.faults().replies_dropped = requests;
    }

    /// Has every request take so long from now on, on top. One that takes as long as the command timeout is carried out, and not
    /// answered.
    pub fn delay(&self, delay: Duration) {
        self.faults().delay = delay;
    }

    /// Takes the lock on `key` from whoever holds it, from all of them if it is shared, and has them told so at once: their bodies are
    /// stopped where they await. Says whether it was held through this backend.
    pub fn lose(&self, key: &str) -> bool {
        let holds = self.faults().holds.remove(key).unwrap_or_default();
        // One that has ended may have left its value to another.
        let holds = holds.iter().filter_map(Weak::upgrade).filter(|hold| !hold.has_ended());
        let lost = holds.filter(|hold| {
            self.memory.forget(&hold.entry());
            hold.lose(LostReason::Gone)
        });
        lost.count() > 0
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        // Nothing panics while it holds them.
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What becomes of the request that is made now.
    async fn meet(&self, acquires: bool, timeout: Duration) -> Result<Fate, BackendError> {
        let (fate, delay) = {
            let mut faults = self.faults();
            if take(&mut faults.failing) {
                return Err(BackendError::passing("the test backend was told to fail"));
            }
            let (refused, late) = (acquires && take(&mut faults.refused), faults.delay >= timeout);
            (Fate { refused, reply_dropped: late || !refused && take(&mut faults.replies_dropped) }, faults.delay)
        };
        if !delay.is_zero() && delay < timeout {
            tokio::time::sleep(delay).await;
        }
        Ok(fate)
    }

    /// Answers, or does not.
    async fn answer<T>(&self, fate: &Fate, timeout: Duration, answer: T) -> Result<T, BackendError> {
        if fate.reply_dropped {
            let _ = tokio::time::timeout(timeout, pending::<()>()).await;
            return Err(BackendError::unanswered("the test backend was told to drop the reply"));
        }
        Ok(answer)
    }

    fn note(&self, entry: &Entry<'_>) {
        if let Some(hold) = entry.hold {
            let mut faults = self.faults();
            let holds = faults.holds.entry(entry.key.to_owned()).or_default();
            holds.retain(|hold| hold.upgrade().is_some_and(|hold| !hold.has_ended()));
            holds.push(Arc::downgrade(hold));
        }
    }
}

fn take(count: &mut u32) -> bool {
    let any = *count > 0;
    *count = count.saturating_sub(1);
    any
}

fn somebody() -> (String, Duration) {
    ("00000000-0000-4000-8000-000000000000/somebody-else".to_owned(), Duration::from_secs(1))
}

impl Backend for TestBackend {
    fn prepare(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        self.memory.prepare()
    }

    fn acquires_all_at_once(&self) -> bool {
        true
    }

    fn only_exclusive(&self) -> Option<&'static str> {
        None
    }

    fn passed_on(&self, entry: Entry<'_>) {
        self.note(&entry);
    }

    fn acquire<'a>(
        &'a self,
        entry: Entry<'a>,
        attempt: Attempt,
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Acquired, BackendError>> {
        Box::pin(async move {
            let fate = self.meet(true, entry.timeout).await?;
            if fate.refused {
                let (value, remaining) = somebody();
                return Ok(Acquired::Held { value, remaining });
            }
            let acquired = self.memory.acquire(entry, attempt, route).await?;
            if matches!(acquired, Acquired::Granted(_)) {
                self.note(&entry);
            }
            self.answer(&fate, entry.timeout, acquired).await
        })
    }

    fn wait<'a>(
        &'a self,
        entry: Entry<'a>,
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Turn, BackendError>> {
        Box::pin(async move {
            let fate = self.meet(true, entry.timeout).await?;
            if fate.refused {
                let (value, remaining) = somebody();
                return Ok(Turn::Waits { value, remaining, first: false });
            }
            let turn = self.memory.wait(entry, route).await?;
            if matches!(turn, Turn::Come { .. }) {
                self.note(&entry);
            }
            self.answer(&fate, entry.timeout, turn).await
        })
    }

    fn listen<'a>(&'a self, waiter: &'a str, listener: &'a dyn Listener) -> BoxFuture<'a, BackendError> {
        Backend::listen(&*self.memory, waiter, listener)
    }

    fn acquire_all<'a>(
        &'a self,
        entries: &'a [Entry<'a>],
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<AcquiredAll, BackendError>> {
        Box::pin(async move {
            let fate = self.meet(true, timeout(entries)).await?;
            if fate.refused {
                let (value, remaining) = somebody();
                return Ok(AcquiredAll::Held { index: 0, value, remaining });
            }
            let acquired = self.memory.acquire_all(entries, route).await?;
            if matches!(acquired, AcquiredAll::Granted(_)) {
                for entry in entries {
                    self.note(entry);
                }
            }
            self.answer(&fate, timeout(entries), acquired).await
        })
    }

    fn mint<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Result<Option<FencingToken>, BackendError>> {
        Box::pin(async move {
            let fate = self.meet(false, timeout(entries)).await?;
            let token = self.memory.mint(entries).await?;
            self.answer(&fate, timeout(entries), token).await
        })
    }

    fn release<'a>(&'a self, entry: Entry<'a>) -> BoxFuture<'a, Result<Released, BackendError>> {
        Box::pin(async move {
            let fate = self.meet(false, entry.timeout).await?;
            let released = self.memory.release(entry).await?;
            self.answer(&fate, entry.timeout, released).await
        })
    }

    fn renew<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Renewed, BackendError>>> {
        Box::pin(async move {
            let fate = match self.meet(false, timeout(entries)).await {
                Ok(fate) => fate,
                Err(error) => return entries.iter().map(|_| Err(error.copy())).collect(),
            };
            let renewed = self.memory.renew(entries).await;
            match self.answer(&fate, timeout(entries), renewed).await {
                Ok(renewed) => renewed,
                Err(error) => entries.iter().map(|_| Err(error.copy())).collect(),
            }
        })
    }

    fn release_all<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Released, BackendError>>> {
        Box::pin(async move {
            let fate = match self.meet(false, timeout(entries)).await {
                Ok(fate) => fate,
                Err(error) => return entries.iter().map(|_| Err(error.copy())).collect(),
            };
            let released = self.memory.release_all(entries).await;
            match self.answer(&fate, timeout(entries), released).await {
                Ok(released) => released,
                Err(error) => entries.iter().map(|_| Err(error.copy())).collect(),
            }
        })
    }
}

fn timeout(entries: &[Entry<'_>]) -> Duration {
    entries.iter().map(|entry| entry.timeout).min().unwrap_or_default()
}

/// The keys of the locks under which the calling code runs, of whatever kind and manager: those of the bodies that its task is in,
/// annotated functions and [`run`](crate::LockRequest::run). A lock that is lost does not count, and one that is held by a guard
/// is not known.
pub fn held_keys() -> Vec<String> {
    nest::held().into_iter().map(|(key, _)| key).collect()
}

/// The same of those locks that nobody else can have at the same time: without those for reading, and those with permits.
pub fn exclusively_held_keys() -> Vec<String> {
    nest::held().into_iter().filter(|(_, kind)| !kind.is_shared()).map(|(key, _)| key).collect()
}

/// Asserts that the calling code runs under a lock: under the one on the key that is given as for `format!`, or under any. After
/// `exclusive:`, one that is shared with others is not enough. See [`held_keys`](crate::test_util::held_keys).
///
/// # Panics
///
/// If it does not, with the keys under which it runs.
///
/// # Examples
///
/// ```
/// use distlock::{LockError, LockManager, assert_locked};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::in_memory();
/// let id = 42;
/// locks.lock("order:42").run(async {
///     assert_locked!();
///     assert_locked!("order:{id}");
///     assert_locked!(exclusive: "order:{id}");
///     Ok::<_, LockError>(())
/// }).await
/// # }
/// ```
#[macro_export]
macro_rules! assert_locked {
    () => {{
        let held = $crate::test_util::held_keys();
        assert!(!held.is_empty(), "this code must run under a lock, and runs under none");
    }};
    (exclusive: $($key:tt)+) => {{
        let (key, held) = (::std::format!($($key)+), $crate::test_util::exclusively_held_keys());
        assert!(held.contains(&key), "this code must run under the lock on `{key}` alone, and has exclusively {held:?}");
    }};
    ($($key:tt)+) => {{
        let (key, held) = (::std::format!($($key)+), $crate::test_util::held_keys());
        assert!(held.contains(&key), "this code must run under the lock on `{key}`, and runs under {held:?}");
    }};
}
