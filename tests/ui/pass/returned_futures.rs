//! Functions that are not async, but return a future.
#![deny(warnings)]
#![forbid(unsafe_code)]

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use distlock::{LockError, LockManager, distributed_lock};

type Result<T = ()> = std::result::Result<T, LockError>;
type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
type LocalBoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

#[distributed_lock(key = "order:<id>", lease = lease, retry = 3)]
pub fn opaque(id: u64) -> impl Future<Output = Result<u64>> {
    let doubled = id * 2;
    async move {
        lease.ensure_held()?;
        Ok(doubled)
    }
}

#[distributed_lock(key = "order:<id>", lease = lease)]
pub fn without_move(id: u64) -> impl Future<Output = Result> + Send {
    async { lease.ensure_held() }
}

#[distributed_lock(key = "order:<id>", lease = lease)]
pub fn in_a_loop(id: u64) -> impl Future<Output = Result> {
    let steps: Vec<_> = (0..id).map(|_| async { lease.ensure_held() }).collect();
    async move {
        for step in steps {
            step.await?;
        }
        lease.ensure_held()
    }
}

/// The key may name what the future doesn't capture.
#[distributed_lock(key = "order:<name>:<0>", or_else = move |_| name.len())]
pub fn captures_nothing(name: &'static str) -> impl Future<Output = usize> + Send + 'static {
    std::future::ready(1)
}

#[distributed_lock(key = "order:<name>")]
pub fn captures_less(name: &str) -> impl Future<Output = Result<String>> + Send + use<> {
    let owned = name.to_owned();
    async move { Ok(owned) }
}

#[distributed_lock(key = "order:<name>", or_else = |_| name)]
pub fn borrows<'a>(name: &'a str) -> impl Future<Output = &'a str> + Send + 'a {
    async move { name }
}

#[distributed_lock(key = "order:<id>")]
pub fn boxed(id: u64) -> Pin<Box<dyn Future<Output = Result<u64>> + Send>> {
    if id == 0 {
        return Box::pin(async move { Ok(0) });
    }
    Box::pin(async move { Ok(id) })
}

#[distributed_lock(key = "order:<from>:<to>", lease = lease)]
pub fn aliased((from, to): (u64, u64), mut name: &str) -> BoxFuture<'_, Result<&str>> {
    name = name.trim();
    match from {
        0 => Box::pin(async move { lease.ensure_held().map(|()| name) }),
        _ => Box::pin(async move { lease.ensure_held().map(|()| name) }),
    }
}

#[distributed_lock(key = "order:<id>")]
pub fn local(id: Rc<u64>) -> LocalBoxFuture<'static, Result<Rc<u64>>> {
    Box::pin(async move { Ok(id) })
}

#[distributed_lock(key = "order:<id>")]
pub fn pinned(id: u64) -> Pin<Box<impl Future<Output = Result<impl Iterator<Item = u64>>>>> {
    Box::pin(async move { Ok(std::iter::once(id)) })
}

#[distributed_lock(key = "sum:<items.len()>")]
pub fn generic<'a, T, F, const N: usize>(items: &'a [T; N], by: F) -> impl Future<Output = Result<u64>> + 'a
where
    T: Sync,
    F: for<'x> Fn(&'x T) -> u64 + 'a,
{
    async move { Ok(items.iter().map(by).sum()) }
}

#[distributed_lock(key = "outer:<id>", lease = outer)]
#[distributed_lock(key = "inner:<id>", lease = inner)]
pub fn twice(id: u64) -> Pin<Box<dyn Future<Output = Result<u64>> + Send>> {
    Box::pin(async move {
        outer.ensure_held()?;
        inner.ensure_held()?;
        Ok(id)
    })
}

pub struct Shop {
    id: u64,
    total: u64,
    locks: LockManager,
}

impl Shop {
    #[distributed_lock(key = "shop:<self.id>", manager = self.locks)]
    pub fn by_reference(&self) -> impl Future<Output = Result<u64>> {
        async { Ok(self.total) }
    }

    #[distributed_lock(key = "shop:<self.id>")]
    pub fn by_mutable_reference(&mut self) -> impl Future<Output = Result<&mut u64>> + Send {
        self.id += 1;
        let total = &mut self.total;
        async move { Ok(total) }
    }

    #[distributed_lock(key = "shop:<self.id>")]
    pub fn boxed_by_mutable_reference(&mut self) -> Pin<Box<dyn Future<Output = Result<&mut u64>> + Send + '_>> {
        self.id += 1;
        let total = &mut self.total;
        Box::pin(async move { Ok(total) })
    }

    #[distributed_lock(key = "shop:<self.id>")]
    pub fn by_value(mut self) -> impl Future<Output = Result<Self>> {
        self.total += 1;
        async move { Ok(self) }
    }

    #[distributed_lock(key = "shop:<self.id>")]
    pub fn by_arc(self: Arc<Self>) -> impl Future<Output = Result<u64>> + Send + 'static {
        async move { Ok(self.total) }
    }

    #[distributed_lock(key = "shop:<self.id>")]
    pub fn by_pin(self: Pin<&mut Self>) -> impl Future<Output = Result<u64>> + Send {
        async move { Ok(self.total) }
    }
}

/// What a `tower::Service` has.
pub trait Service {
    type Future: Future<Output = Result>;

    fn id(&self) -> u64;

    fn call(&mut self) -> Self::Future;

    fn declared(&self, id: u64) -> impl Future<Output = Result<u64>> + Send;

    fn asynchronous(&self, id: u64) -> impl Future<Output = Result<u64>> + Send;

    #[expect(async_fn_in_trait)]
    async fn returned(&self, id: u64) -> Result<u64>;

    #[distributed_lock(key = "default:<id>:{self.id()}")]
    fn by_default(&self, id: u64) -> impl Future<Output = Result<u64>> {
        async move { Ok(id) }
    }
}

impl Service for Shop {
    type Future = Pin<Box<dyn Future<Output = Result> + Send>>;

    fn id(&self) -> u64 {
        self.id
    }

    #[distributed_lock(key = "service:<self.id>")]
    fn call(&mut self) -> Pin<Box<dyn Future<Output = Result> + Send>> {
        Box::pin(async { Ok(()) })
    }

    #[distributed_lock(key = "asynchronous:<id>")]
    async fn asynchronous(&self, id: u64) -> Result<u64> {
        Ok(id + self.total)
    }

    #[distributed_lock(key = "returned:<id>")]
    fn returned(&self, id: u64) -> impl Future<Output = Result<u64>> {
        async move { Ok(id + self.total) }
    }

    #[distributed_lock(key = "declared:<id>")]
    fn declared(&self, id: u64) -> impl Future<Output = Result<u64>> + Send {
        async move { Ok(id + self.total) }
    }
}

fn send<T: Send>(_: T) {}
fn lasting<T: 'static>(_: T) {}

fn main() {
    let shop = || Shop { id: 1, total: 2, locks: LockManager::in_memory() };
    let mut mine = shop();
    send(opaque(1));
    send(in_a_loop(1));
    lasting(captures_nothing("a"));
    lasting(captures_less(&String::from("a")));
    send(borrows("a"));
    send(boxed(1));
    send(aliased((1, 2), "a"));
    send(twice(1));
    send(mine.by_reference());
    send(mine.by_mutable_reference());
    send(mine.boxed_by_mutable_reference());
    send(Pin::new(&mut mine).by_pin());
    send(mine.call());
    send(mine.declared(1));
    send(mine.asynchronous(1));
    let _ = mine.returned(1);
    send(generic(&[1, 2], |x| *x));
    lasting(Arc::new(shop()).by_arc());
    send(shop().by_value());
    let _ = (local(Rc::new(1)), pinned(1), without_move(1), mine.by_default(1));
}
