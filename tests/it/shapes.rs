//! That the lock is held while the body runs, and only then, for every shape of function.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use async_recursion::async_recursion;
use async_trait::async_trait;
use distlock::{Lease, LockError, LockManager, distributed_lock};

use crate::calls::{FOR_EVER, Failure, connect, redis_key};
use harness::eventually::soon;
use harness::server::Server;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a body has to look at its own lock with.
#[derive(Clone)]
struct Probe {
    server: Arc<Server>,
    manager: LockManager,
}

impl Probe {
    async fn start() -> Self {
        let server = Server::start().await;
        let manager = connect(&server.url()).await;
        Self { server: Arc::new(server), manager }
    }

    /// Requires that the lock on the server is this lease's, and returns its key.
    async fn holds(&self, lease: &Lease) -> Result<String, Failure> {
        lease.ensure_held()?;
        let (value, token) = (self.value(lease.key()).await, lease.token().to_string());
        let owner = value.as_deref().and_then(|value| value.strip_prefix(&token));
        assert!(owner.is_some_and(|owner| owner.starts_with('/')), "{value:?} for {lease:?}");
        Ok(lease.key().to_owned())
    }

    async fn value(&self, key: &str) -> Option<String> {
        self.server.get(&redis_key(key)).await
    }

    async fn is_free(&self) -> bool {
        self.server.keys().await.is_empty()
    }

    /// Requires of a call that it locks when it is polled, in its body alone, under `key`.
    async fn locks<F: Future<Output = Result<String, Failure>>>(&self, key: &str, call: impl FnOnce(Probe) -> F) {
        let future = call(self.clone());
        assert!(self.is_free().await, "{key}: locked by making the future");
        // The manager is the one in scope where the future is polled, not where it was made.
        let locked = soon("the call", self.manager.scope(future)).await;
        assert_eq!(locked.unwrap_or_else(|why| panic!("{key}: {why:?}")), key);
        assert!(self.is_free().await, "{key}: still locked after the return");
    }
}

#[distributed_lock(key = "async:<id>", lease = lease)]
async fn asynchronous(id: u8, probe: Probe) -> Result<String, Failure> {
    probe.holds(&lease).await
}

#[distributed_lock(key = "opaque:<id>", lease = lease)]
fn opaque(id: u8, probe: Probe) -> impl Future<Output = Result<String, Failure>> + Send {
    async move { probe.holds(&lease).await }
}

#[distributed_lock(key = "boxed:<id>", lease = lease)]
fn boxed(mut id: u8, probe: &Probe) -> BoxFuture<'_, Result<String, Failure>> {
    id += 1;
    if id == 0 {
        return Box::pin(async { Err(Failure::Body("overflow")) });
    }
    Box::pin(async move { probe.holds(&lease).await })
}

#[distributed_lock(key = "pattern:<id>:<kind>", lease = lease)]
async fn with_patterns((id, _): (u8, u8), [kind, ..]: [&str; 2], probe: Probe) -> Result<String, Failure> {
    probe.holds(&lease).await
}

#[distributed_lock(key = "generic:<N>:<value>", lease = lease)]
async fn generic<T: std::fmt::Display, const N: usize>(value: T, probe: Probe) -> Result<String, Failure> {
    probe.holds(&lease).await
}

macro_rules! made {
    ($name:ident($($param:ident: $ty:ty),*), $ttl:literal, $key:expr, $lease:ident, $body:block) => {
        #[distributed_lock(key = $key, ttl = $ttl, lease = $lease)]
        async fn $name($($param: $ty),*) -> Result<String, Failure> $body
    };
}

made!(made(id: u8, probe: Probe), "20s", format!("made:{id}"), lease, { probe.holds(&lease).await });

#[tokio::test]
async fn functions_are_locked_while_their_body_runs() {
    let probe = Probe::start().await;
    probe.locks("async:1", |probe| asynchronous(1, probe)).await;
    probe.locks("opaque:1", |probe| opaque(1, probe)).await;
    probe.locks("boxed:1", |_| boxed(1, &probe)).await;
    probe.locks("pattern:1:a", |probe| with_patterns((1, 2), ["a", "b"], probe)).await;
    probe.locks("generic:3:x", |probe| generic::<_, 3>('x', probe)).await;
    probe.locks("made:1", |probe| made(1, probe)).await;
}

struct Shop {
    id: u8,
    probe: Probe,
}

impl Shop {
    #[distributed_lock(key = "shop:<self.id>", lease = lease)]
    async fn by_reference(&self) -> Result<String, Failure> {
        self.probe.holds(&lease).await
    }

    #[distributed_lock(key = "shop:<self.id>", lease = lease)]
    async fn by_mutable_reference(&mut self) -> Result<String, Failure> {
        self.id += 1;
        self.probe.holds(&lease).await
    }

    #[distributed_lock(key = "shop:<self.id>", lease = lease)]
    async fn by_value(mut self) -> Result<String, Failure> {
        self.id += 1;
        self.probe.holds(&lease).await
    }

    #[distributed_lock(key = "shop:<self.id>", lease = lease, manager = self.probe.manager)]
    fn returning(&mut self) -> impl Future<Output = Result<String, Failure>> {
        self.id += 1;
        async { self.probe.holds(&lease).await }
    }
}

#[tokio::test]
async fn methods_are_locked_while_their_body_runs() {
    let probe = Probe::start().await;
    let mut shop = Shop { id: 1, probe: probe.clone() };
    probe.locks("shop:1", |_| shop.by_reference()).await;
    probe.locks("shop:1", |_| shop.by_mutable_reference()).await;
    probe.locks("shop:2", |_| shop.returning()).await;
    probe.locks("shop:3", |_| shop.by_value()).await;
}

trait Native {
    fn probe(&self) -> &Probe;

    async fn declared(&self, id: u8) -> Result<String, Failure>;

    #[distributed_lock(key = "default:<id>", lease = lease)]
    async fn by_default(&self, id: u8) -> Result<String, Failure> {
        self.probe().holds(&lease).await
    }

    #[distributed_lock(key = "returned:<id>", lease = lease)]
    fn returned_by_default(&self, id: u8) -> impl Future<Output = Result<String, Failure>> {
        async move { self.probe().holds(&lease).await }
    }
}

impl Native for Probe {
    fn probe(&self) -> &Probe {
        self
    }

    #[distributed_lock(key = "declared:<id>", lease = lease)]
    async fn declared(&self, id: u8) -> Result<String, Failure> {
        self.holds(&lease).await
    }
}

#[tokio::test]
async fn methods_of_traits_are_locked_while_their_body_runs() {
    let probe = Probe::start().await;
    probe.locks("declared:1", |_| probe.declared(1)).await;
    probe.locks("default:1", |_| probe.by_default(1)).await;
    probe.locks("returned:1", |_| probe.returned_by_default(1)).await;
}

#[async_trait]
trait Repo: Sync {
    fn probe(&self) -> &Probe;

    async fn by_reference(&self, pair: (u8, u8)) -> Result<String, Failure>;
    async fn by_mutable_reference(&mut self, name: &str) -> Result<String, Failure>;
    async fn by_box(self: Box<Self>, id: u8) -> Result<String, Failure>;
    async fn by_arc(self: Arc<Self>, id: u8) -> Result<String, Failure>;

    #[distributed_lock(key = "default:<id>", lease = lease)]
    async fn by_default(&self, id: u8) -> Result<String, Failure> {
        self.probe().holds(&lease).await
    }
}

#[async_trait]
impl Repo for Shop {
    fn probe(&self) -> &Probe {
        &self.probe
    }

    #[distributed_lock(key = "ref:<self.id>:<to>", lease = lease)]
    async fn by_reference(&self, (_, mut to): (u8, u8)) -> Result<String, Failure> {
        to += 1;
        assert_eq!(to, 3);
        self.probe.holds(&lease).await
    }

    #[distributed_lock(key = "mut:<self.id>:<name>", lease = lease)]
    async fn by_mutable_reference(&mut self, name: &str) -> Result<String, Failure> {
        self.id += 1;
        self.probe.holds(&lease).await
    }

    #[distributed_lock(key = "box:<self.id>:<id>", lease = lease)]
    async fn by_box(mut self: Box<Self>, id: u8) -> Result<String, Failure> {
        self.id += id;
        self.probe.holds(&lease).await
    }

    #[distributed_lock(key = "arc:<self.id>:<id>", lease = lease)]
    async fn by_arc(self: Arc<Self>, id: u8) -> Result<String, Failure> {
        self.probe.holds(&lease).await
    }
}

#[tokio::test]
async fn methods_of_async_traits_are_locked_while_their_body_runs() {
    let probe = Probe::start().await;
    let shop = || Shop { id: 1, probe: probe.clone() };
    let mut mine: Box<dyn Repo + Send> = Box::new(shop());
    probe.locks("ref:1:2", |_| mine.by_reference((1, 2))).await;
    probe.locks("mut:1:a", |_| mine.by_mutable_reference("a")).await;
    probe.locks("default:5", |_| mine.by_default(5)).await;
    probe.locks("box:2:3", |_| mine.by_box(3)).await;
    probe.locks("arc:1:3", |_| Arc::new(shop()).by_arc(3)).await;
}

#[async_recursion]
#[distributed_lock(key = "depth:<depth>", lease = lease)]
async fn recursion_above(depth: u8, probe: &Probe) -> Result<String, Failure> {
    if depth > 0 {
        let below = recursion_above(depth - 1, probe).await?;
        assert_eq!(probe.value(&below).await, None, "the inner call has returned");
    }
    probe.holds(&lease).await
}

#[distributed_lock(key = "depth:<depth>", lease = lease)]
#[async_recursion]
async fn recursion_below(depth: u8, probe: &Probe) -> Result<String, Failure> {
    if depth > 0 {
        let below = recursion_below(depth - 1, probe).await?;
        assert_eq!(probe.value(&below).await, None, "the inner call has returned");
    }
    probe.holds(&lease).await
}

#[tokio::test]
async fn recursive_functions_are_locked_while_their_body_runs() {
    let probe = Probe::start().await;
    probe.locks("depth:2", |_| recursion_above(2, &probe)).await;
    probe.locks("depth:2", |_| recursion_below(2, &probe)).await;
}

#[distributed_lock(key = "outer:<id>", lease = outer)]
#[distributed_lock(key = "inner:<id>", lease = inner)]
async fn twice(id: u8, probe: Probe) -> Result<String, Failure> {
    probe.holds(&outer).await?;
    probe.holds(&inner).await
}

#[distributed_lock(key = "outer:<id>", lease = outer)]
#[distributed_lock(key = "inner:<id>", lease = inner)]
fn twice_boxed(id: u8, probe: Probe) -> BoxFuture<'static, Result<String, Failure>> {
    Box::pin(async move {
        probe.holds(&outer).await?;
        probe.holds(&inner).await
    })
}

#[tokio::test]
async fn two_locks_are_both_held() {
    let probe = Probe::start().await;
    probe.locks("inner:1", |probe| twice(1, probe)).await;
    probe.locks("inner:1", |probe| twice_boxed(1, probe)).await;
}

#[tokio::test]
async fn two_locks_are_taken_in_the_order_written_and_freed_in_the_other() {
    let probe = Probe::start().await;
    for call in [Box::pin(twice(1, probe.clone())) as BoxFuture<'_, _>, twice_boxed(1, probe.clone())] {
        let monitor = probe.server.monitor().await;
        probe.manager.scope(call).await.unwrap();
        let mut lines = monitor.lines_with(&["lock:{"]).await;
        // What scripts do is part of the call of the script, and the bodies only look.
        lines.retain(|line| !line.contains(" lua]") && !line.contains("\"GET\""));
        let mut order: Vec<bool> = lines.iter().map(|line| line.contains("lock:{outer:1}")).collect();
        order.dedup();
        assert_eq!(order, [true, false, true], "the outer, all of the inner, the outer: {lines:#?}");
    }
}

#[tokio::test]
async fn of_two_locks_the_one_that_is_refused_is_named_and_the_other_freed() {
    let probe = Probe::start().await;
    for refused in ["outer:2", "inner:2"] {
        probe.server.set_for(&redis_key(refused), "another/holder", FOR_EVER).await;
        for call in [Box::pin(twice(2, probe.clone())) as BoxFuture<'_, _>, twice_boxed(2, probe.clone())] {
            let error = probe.manager.scope(call).await.unwrap_err();
            let Failure::Lock(LockError::Busy { key, .. }) = error else { panic!("{error:?}") };
            assert_eq!(key, refused);
        }
        assert!(probe.server.del(&redis_key(refused)).await);
        assert!(probe.is_free().await, "{refused} was refused, and the other is still locked");
    }
}

#[tracing::instrument(skip_all)]
#[distributed_lock(key = "span:<id>", lease = lease)]
async fn span_inside(id: u8, probe: Probe) -> Result<String, Failure> {
    probe.holds(&lease).await
}

#[distributed_lock(key = "span:<id>", lease = lease)]
#[tracing::instrument(skip_all)]
async fn span_around(id: u8, probe: Probe) -> Result<String, Failure> {
    probe.holds(&lease).await
}

#[tokio::test]
async fn functions_with_spans_are_locked_while_their_body_runs() {
    let probe = Probe::start().await;
    probe.locks("span:1", |probe| span_inside(1, probe)).await;
    probe.locks("span:1", |probe| span_around(1, probe)).await;
}

#[distributed_lock(key = "test", global, or_else = |error| assert!(matches!(error, LockError::NotInstalled)))]
#[tokio::test]
async fn a_test_below_the_attribute_runs_under_its_lock() {
    unreachable!("without a manager, no body runs");
}

#[rstest::rstest]
#[case::first(1)]
#[case::second(2)]
#[tokio::test]
async fn a_parameter_of_a_test_is_in_its_key(#[case] id: u8) {
    #[distributed_lock(key = "case:<id>", lease = lease)]
    async fn body(id: u8, probe: Probe) -> Result<String, Failure> {
        probe.holds(&lease).await
    }
    let probe = Probe::start().await;
    probe.locks(&format!("case:{id}"), |probe| body(id, probe)).await;
}

#[distributed_lock(key = "above:<id>", lease = lease, manager = LockManager::in_memory())]
#[rstest::rstest]
#[case::first(1)]
#[tokio::test]
async fn the_cases_below_the_attribute_run_under_its_lock(#[case] id: u8) -> Result<(), LockError> {
    assert_eq!(lease.key(), format!("above:{id}"));
    lease.ensure_held()
}

#[distributed_lock(key = "statements:<id>", lease = lease)]
fn with_statements(mut id: u8, steps: &mut Vec<&'static str>) -> impl Future<Output = Result<u8, Failure>> + use<> {
    steps.push("made");
    id += 1;
    async move {
        assert_eq!(lease.key(), "statements:1", "the key is made before the body's statements");
        Ok(id)
    }
}

#[tokio::test]
async fn statements_before_the_future_run_when_the_function_is_called() {
    let manager = LockManager::in_memory();
    let mut steps = Vec::new();
    let future = with_statements(1, &mut steps);
    assert_eq!(steps, ["made"]);
    assert_eq!(manager.scope(future).await.unwrap(), 2);
}

#[distributed_lock(key = "refused", global)]
fn refused(ran: &mut bool) -> impl Future<Output = Result<(), Failure>> {
    async move {
        *ran = true;
        Ok(())
    }
}

#[tokio::test]
async fn a_returned_future_does_not_run_without_its_lock() {
    let manager = LockManager::in_memory();
    let guard = manager.lock("refused").acquire().await.unwrap();
    let mut ran = false;
    let busy = manager.scope(refused(&mut ran)).await.unwrap_err();
    assert!(matches!(busy, Failure::Lock(LockError::Busy { .. })), "{busy:?}");
    guard.release().await.unwrap();
    let nowhere = refused(&mut ran).await.unwrap_err();
    assert!(matches!(nowhere, Failure::Lock(LockError::NotInstalled)), "{nowhere:?}");
    assert!(!ran);
}

#[tokio::test]
async fn a_returned_future_that_ended_can_be_polled_again() {
    let mut ran = false;
    let mut future = Box::pin(refused(&mut ran));
    assert!(future.as_mut().await.is_err());
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}
