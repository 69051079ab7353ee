//! Arguments are dropped in the plain function's order, and before the release is sent.

// The parameters are there to be dropped, and the functions to have parameters.
#![allow(unused_variables, unused_assignments, clippy::pedantic, clippy::toplevel_ref_arg)]

use std::cell::RefCell;
use std::sync::Arc;

use distlock::backend::{
    Acquired, Attempt, Backend, BackendError, BoxFuture, Entry, MemoryBackend, Released, Renewed, Route,
};
use distlock::{LockError, LockManager, distributed_lock};

use crate::block_on;

thread_local! {
    /// What happened on this test's thread, in order.
    static EVENTS: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

fn happens(event: &'static str) {
    EVENTS.with_borrow_mut(|events| events.push(event));
}

fn events() -> Vec<&'static str> {
    EVENTS.take()
}

/// Tells when it is dropped.
struct Loud(&'static str);

impl Drop for Loud {
    fn drop(&mut self) {
        happens(self.0);
    }
}

impl Loud {
    fn len(&self) -> Result<usize, LockError> {
        Ok(self.0.len())
    }
}

/// A backend that tells when a release is sent.
#[derive(Debug, Default)]
struct Told(MemoryBackend);

impl Backend for Told {
    fn prepare(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        self.0.prepare()
    }

    fn acquire<'a>(
        &'a self,
        entry: Entry<'a>,
        attempt: Attempt,
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Acquired, BackendError>> {
        self.0.acquire(entry, attempt, route)
    }

    fn release<'a>(&'a self, entry: Entry<'a>) -> BoxFuture<'a, Result<Released, BackendError>> {
        happens("released");
        self.0.release(entry)
    }

    fn renew<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Renewed, BackendError>>> {
        self.0.renew(entries)
    }

    fn release_all<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Released, BackendError>>> {
        self.0.release_all(entries)
    }
}

impl Loud {
    async fn plain_by_value(self, _: Loud, (a, _): (Loud, Loud), mut b: Loud, _c: Loud) -> Result<usize, LockError> {
        let _local = Loud("local");
        b.0 = "b";
        a.len()
    }

    #[distributed_lock(key = "k", global)]
    async fn by_value(self, _: Loud, (a, _): (Loud, Loud), mut b: Loud, _c: Loud) -> Result<usize, LockError> {
        let _local = Loud("local");
        b.0 = "b";
        a.len()
    }

    async fn plain_by_mutable_value(mut self, unused: Loud) -> Result<usize, LockError> {
        self.0 = "self";
        // The temporary lives as long as its edition says.
        Loud("temporary").len()
    }

    #[distributed_lock(key = "k", global)]
    async fn by_mutable_value(mut self, unused: Loud) -> Result<usize, LockError> {
        self.0 = "self";
        // The temporary lives as long as its edition says.
        Loud("temporary").len()
    }
}

async fn plain_moved(a: Loud, b: Loud, ref c: Loud, pair @ (_, _): (Loud, Loud)) -> Result<usize, LockError> {
    drop(b);
    let moved = pair.1;
    if a.0 == "a" {
        return moved.len();
    }
    c.len()
}

#[distributed_lock(key = "k:{a.0}")]
async fn moved(a: Loud, b: Loud, ref c: Loud, pair @ (_, _): (Loud, Loud)) -> Result<usize, LockError> {
    drop(b);
    let moved = pair.1;
    if a.0 == "a" {
        return moved.len();
    }
    c.len()
}

async fn plain_failing(a: Loud, _: Loud) -> Result<usize, LockError> {
    let failed: Result<usize, LockError> = Err(LockError::NotInstalled);
    failed?;
    a.len()
}

#[distributed_lock(key = "k", global)]
async fn failing(a: Loud, _: Loud) -> Result<usize, LockError> {
    let failed: Result<usize, LockError> = Err(LockError::NotInstalled);
    failed?;
    a.len()
}

/// Checks the order of two calls. The release comes after everything that the plain function drops.
fn same<R>(plain: impl Future<Output = R>, locked: impl Future<Output = R>) {
    block_on(async {
        let manager = LockManager::builder().backend(Told::default()).build().await.unwrap();
        plain.await;
        let mut expected = events();
        expected.push("released");
        manager.scope(locked).await;
        assert_eq!(events(), expected);
    });
}

#[test]
fn arguments_are_dropped_in_order_and_before_the_release() {
    let loud = Loud;
    let pair = || (loud("pair.0"), loud("pair.1"));
    same(
        loud("self").plain_by_value(loud("_"), pair(), loud("mut"), loud("_c")),
        loud("self").by_value(loud("_"), pair(), loud("mut"), loud("_c")),
    );
    same(loud("s").plain_by_mutable_value(loud("unused")), loud("s").by_mutable_value(loud("unused")));
    for a in ["a", "other"] {
        same(plain_moved(loud(a), loud("b"), loud("c"), pair()), moved(loud(a), loud("b"), loud("c"), pair()));
    }
    same(plain_failing(loud("a"), loud("_")), failing(loud("a"), loud("_")));
}
