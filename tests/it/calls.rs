//! How the tests call the library, and what they look for on the server.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use distlock::{Backoff, LockError, LockManager, LockRequest, LostReason};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::Dispatch;

use harness::eventually::{eventually, soon};
use harness::monitor::Monitor;
use harness::server::Server;
use harness::topology;

/// A ttl that no test lives to see the end of: what is free before it was freed by somebody.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(600);

/// What bodies fail with.
#[derive(Debug)]
pub(crate) enum Failure {
    Lock(LockError),
    Body(&'static str),
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl Failure {
    /// Why the lock was lost; fails for any other failure.
    pub(crate) fn lost(&self) -> LostReason {
        match self {
            Self::Lock(LockError::Lost { reason, .. }) => *reason,
            other => panic!("not lost, but {other:?}"),
        }
    }
}

/// Where the lock of a key stands on the server.
pub(crate) fn redis_key(key: &str) -> String {
    format!("lock:{{{key}}}")
}

/// A pause between tries that is short beside everything that tests wait for.
pub(crate) fn brisk() -> Backoff {
    Backoff::new(Duration::from_millis(5), Duration::from_millis(20)).unwrap()
}

/// Connects to a server, over the topology of this run of the tests.
pub(crate) async fn connect(url: &str) -> LockManager {
    LockManager::connect(&topology::url(url)).await.unwrap_or_else(|why| panic!("can't connect to {url}: {why}"))
}

/// A body that runs until it is let go, and that says whether it was dropped instead.
#[derive(Clone, Default)]
pub(crate) struct Body(Arc<Signals>);

#[derive(Default)]
struct Signals {
    started: AtomicUsize,
    running: AtomicBool,
    go: AtomicBool,
    changed: Notify,
}

impl Body {
    /// The body's future. It returns `outcome` when [`Self::finish`] is called.
    pub(crate) async fn future<T, E>(self, outcome: Result<T, E>) -> Result<T, E> {
        let running = Running::begin(&self.0);
        while !running.0.go.load(Ordering::SeqCst) {
            // Looked at again now and then, since the signal may come before the wait for it.
            let _ = tokio::time::timeout(Duration::from_millis(5), running.0.changed.notified()).await;
        }
        outcome
    }

    /// How often the body was begun.
    pub(crate) fn starts(&self) -> usize {
        self.0.started.load(Ordering::SeqCst)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.0.running.load(Ordering::SeqCst)
    }

    pub(crate) fn finish(&self) {
        self.0.go.store(true, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }

    /// Waits until the body runs.
    pub(crate) async fn runs(&self) {
        eventually("the body to begin", || async { self.is_running() }).await;
    }
}

struct Running(Arc<Signals>);

impl Running {
    fn begin(signals: &Arc<Signals>) -> Self {
        signals.started.fetch_add(1, Ordering::SeqCst);
        signals.running.store(true, Ordering::SeqCst);
        Self(signals.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::SeqCst);
    }
}

/// A call that holds its lock while the test does something to it.
pub(crate) struct Call<T = ()> {
    pub(crate) body: Body,
    task: JoinHandle<Result<T, Failure>>,
}

impl Call {
    /// Locks `key` for `ttl` at a time, and returns when the body runs.
    pub(crate) async fn holding(manager: &LockManager, key: &str, ttl: Duration) -> Self {
        Self::holding_to_return(manager, key, ttl, Ok(())).await
    }

    /// Makes the request, and returns when the body runs.
    pub(crate) async fn under(request: LockRequest) -> Self {
        let body = Body::default();
        let call = request.run(body.clone().future(Ok(())));
        Self::of(body, tokio::spawn(call)).await
    }
}

impl<T: Send + 'static> Call<T> {
    /// The same for a body that returns something.
    pub(crate) async fn holding_to_return(
        manager: &LockManager,
        key: &str,
        ttl: Duration,
        outcome: Result<T, Failure>,
    ) -> Self {
        let body = Body::default();
        let call = manager.lock(key).ttl(ttl).run(body.clone().future(outcome));
        Self::of(body, tokio::spawn(call)).await
    }

    /// Takes up a call that was begun elsewhere, when its body runs.
    pub(crate) async fn of(body: Body, task: JoinHandle<Result<T, Failure>>) -> Self {
        body.runs().await;
        Self { body, task }
    }

    /// Waits for the call to end by itself. The body is gone by then, whatever the outcome.
    pub(crate) async fn ended(self) -> Result<T, Failure> {
        let outcome = soon("the call to end", self.task).await.unwrap();
        assert!(!self.body.is_running(), "the call returned before its body was dropped");
        outcome
    }

    /// Lets the body come to its end and waits for the call's.
    pub(crate) async fn finished(self) -> Result<T, Failure> {
        self.body.finish();
        self.ended().await
    }
}

/// Waits until the key's life was extended so many times; fails when the key is gone.
pub(crate) async fn sees_renewals(server: &Server, key: &str, times: usize) {
    let name = redis_key(key);
    let (mut last, mut seen) = (server.pttl(&name).await, 0);
    soon("renewals", async {
        while seen < times {
            let now = server.pttl(&name).await;
            assert!(now > 0, "`{name}` is gone, or never expires: PTTL {now}");
            seen += usize::from(now > last);
            last = now;
            // The pause between two looks; renewals are hundreds of milliseconds apart.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Waits until nothing stands under the lock's key.
pub(crate) async fn is_freed(server: &Server, key: &str) {
    let name = redis_key(key);
    eventually(&format!("`{name}` to be freed"), || async { !server.exists(&name).await }).await;
}

/// What a server was asked about a lock: the commands that came over the wire, and not those that a script ran.
pub(crate) async fn asked(monitor: &Monitor<'_>, key: &str) -> Vec<String> {
    let mut lines = monitor.lines_with(&[&redis_key(key)]).await;
    lines.retain(|line| !line.contains(" lua]"));
    lines
}

/// Makes the server know the scripts, so that from now on each call of one is one command.
pub(crate) async fn warm_up(manager: &LockManager) {
    let guard = manager.lock("warm-up").acquire().await.unwrap();
    let refused = manager.lock("warm-up").retry(1).backoff(brisk()).acquire().await;
    assert!(refused.unwrap_err().is_busy());
    guard.release().await.unwrap();
}

/// Has each subscriber that is made from now on asked what it wants to hear, whatever other tests do at the same time.
///
/// While there is only one in the process, and it is that of one thread, `tracing` takes it that nobody wants what another thread comes
/// to first, and keeps to that. So here is one more, that lives for ever.
pub(crate) fn subscribers_are_asked() {
    static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));
    LazyLock::force(&ANOTHER);
}
