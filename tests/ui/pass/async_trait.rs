//! `#[async_trait]` above ours has made a boxed future of the method before it is locked.
#![deny(warnings)]
#![forbid(unsafe_code)]

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use async_trait::async_trait;
use distlock::{LockError, LockManager, distributed_lock};

type Result<T = ()> = std::result::Result<T, LockError>;

#[async_trait]
trait Repo<K: std::fmt::Display + Send + Sync + 'static>: Sync {
    const KIND: &'static str;

    fn id(&self) -> u64;

    async fn declared(&self);

    async fn by_reference(&self, key: K, amount: u64) -> Result<u64>;

    async fn by_mutable_reference<'a>(&'a mut self, name: &'a str) -> Result<&'a str>;

    async fn by_value(self) -> Result<Self>
    where
        Self: Sized;

    async fn by_box(self: Box<Self>, id: &K) -> Result<Box<Self>>;

    async fn by_arc(self: Arc<Self>) -> Result<u64>;

    async fn by_pin(self: Pin<&mut Self>) -> Result<u64>;

    async fn without_self(id: u64) -> Result
    where
        Self: Sized;

    async fn patterns(&self, pair: (u64, u64), list: &[u64], rest: u64) -> Result<u64>;

    #[distributed_lock(key = "default:{Self::KIND}:{self.id()}:<key>", lease = lease, retry = 2)]
    async fn by_default(&self, key: K) -> Result<u64> {
        lease.ensure_held()?;
        self.id().checked_add(1).ok_or(LockError::NotInstalled)
    }

    #[distributed_lock(key = "nothing:<key>", or_else = |_| ())]
    async fn returns_nothing(&self, key: &K) {}
}

struct Pg {
    id: u64,
    total: u64,
    locks: LockManager,
}

#[async_trait]
impl<K: std::fmt::Display + Send + Sync + 'static> Repo<K> for Pg {
    const KIND: &'static str = "pg";

    fn id(&self) -> u64 {
        self.id
    }

    async fn declared(&self) {}

    #[distributed_lock(key = "{<Self as Repo<K>>::KIND}:<self.id>:<key>", manager = self.locks, lease = lease)]
    async fn by_reference(&self, key: K, amount: u64) -> Result<u64> {
        lease.ensure_held()?;
        let _: Box<dyn std::fmt::Display + Send> = Box::new(key);
        Ok(self.total + amount)
    }

    #[distributed_lock(key = "pg:<self.id>:<name>", lease = lease)]
    async fn by_mutable_reference<'a>(&'a mut self, name: &'a str) -> Result<&'a str> {
        lease.ensure_held()?;
        self.total += 1;
        if self.total > 3 {
            return Ok("");
        }
        Ok(name)
    }

    #[distributed_lock(key = "pg:<self.id>")]
    async fn by_value(mut self) -> Result<Self> {
        self.total += 1;
        Ok(self)
    }

    #[distributed_lock(key = "pg:<self.id>:<id>")]
    async fn by_box(mut self: Box<Self>, id: &K) -> Result<Box<Self>> {
        self.total += 1;
        Ok(self)
    }

    #[distributed_lock(key = "pg:<self.id>")]
    async fn by_arc(self: Arc<Self>) -> Result<u64> {
        Ok(self.total)
    }

    #[distributed_lock(key = "pg:<self.id>")]
    async fn by_pin(mut self: Pin<&mut Self>) -> Result<u64> {
        self.total += 1;
        Ok(self.total)
    }

    #[distributed_lock(key = "pg:<id>")]
    async fn without_self(id: u64) -> Result {
        Ok(())
    }

    #[distributed_lock(key = "pg:<from>:<list.len()>:<rest>")]
    async fn patterns(&self, (from, _): (u64, u64), list: &[u64], mut rest: u64) -> Result<u64> {
        rest += 1;
        Ok(from + rest + list.len() as u64)
    }
}

#[async_trait(?Send)]
trait Local {
    async fn run(&self, id: Rc<u64>) -> Result<Rc<u64>>;
}

#[async_trait(?Send)]
impl Local for Pg {
    #[distributed_lock(key = "outer:<id>", lease = outer)]
    #[distributed_lock(key = "inner:<id>", lease = inner)]
    async fn run(&self, id: Rc<u64>) -> Result<Rc<u64>> {
        outer.ensure_held()?;
        inner.ensure_held()?;
        Ok(id)
    }
}

fn send<T: Send>(_: T) {}

fn main() {
    let pg = || Pg { id: 1, total: 2, locks: LockManager::in_memory() };
    let mut mine = pg();
    send(Repo::<u8>::by_reference(&mine, 1, 2));
    send(Repo::<u8>::by_mutable_reference(&mut mine, "a"));
    send(Repo::<u8>::by_value(pg()));
    send(Repo::<u8>::by_box(Box::new(pg()), &1));
    send(Repo::<u8>::by_arc(Arc::new(pg())));
    send(Repo::<u8>::by_pin(Pin::new(&mut mine)));
    send(<Pg as Repo<u8>>::without_self(1));
    send(Repo::<u8>::patterns(&mine, (1, 2), &[3], 4));
    send(Repo::<u8>::by_default(&mine, 1));
    send(Repo::<u8>::returns_nothing(&mine, &1));
    send(Repo::<u8>::declared(&mine));
    let _ = mine.run(Rc::new(1));
}
