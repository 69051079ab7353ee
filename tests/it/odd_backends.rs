//! Backends from outside that misbehave in ways that our own don't: late, by panics, by too few answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::backend::{
    Acquired, Attempt, Backend, BackendError, BoxFuture, Entry, MemoryBackend, Released, Renewed, Route,
};
use distlock::{LockManager, LostReason};

use crate::calls::{Body, Call, FOR_EVER, Failure, brisk};
use harness::eventually::{eventually, soon};

const TTL: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Grants at once and, at the first attempt of a call, tells of it only after the ttl.
    LateGrant,
    /// Panics instead of renewing or releasing in a batch, the first two times.
    Panics,
    /// Has no answers for a batch, the first two times.
    NoAnswers,
    /// Has the answer to the first renewal when the watchdog's thread stands still until the lease is over, as a paused
    /// process does.
    HeldUp,
}

#[derive(Debug)]
struct Odd {
    memory: MemoryBackend,
    fault: Fault,
    batches: AtomicUsize,
}

impl Odd {
    /// Whether a batch gets its answers.
    fn answers(&self) -> bool {
        let first_two = self.batches.fetch_add(1, Ordering::SeqCst) < 2;
        match self.fault {
            Fault::LateGrant | Fault::HeldUp => true,
            Fault::Panics if first_two => panic!("the backend panics, as this test wants it to"),
            Fault::Panics | Fault::NoAnswers => !first_two,
        }
    }
}

impl Backend for Odd {
    fn prepare(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        self.memory.prepare()
    }

    fn acquire<'a>(
        &'a self,
        entry: Entry<'a>,
        attempt: Attempt,
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Acquired, BackendError>> {
        Box::pin(async move {
            let answer = self.memory.acquire(entry, attempt, route).await;
            if self.fault == Fault::LateGrant && attempt == Attempt::First {
                // The delay is the fault.
                tokio::time::sleep(entry.ttl * 2).await;
            }
            answer
        })
    }

    fn release<'a>(&'a self, entry: Entry<'a>) -> BoxFuture<'a, Result<Released, BackendError>> {
        self.memory.release(entry)
    }

    fn renew<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Renewed, BackendError>>> {
        Box::pin(async move {
            let first = self.batches.load(Ordering::SeqCst) == 0;
            let answers = if self.answers() { self.memory.renew(entries).await } else { Vec::new() };
            if self.fault == Fault::HeldUp && first {
                // The fault.
                std::thread::sleep(entries[0].ttl);
            }
            answers
        })
    }

    fn release_all<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Released, BackendError>>> {
        Box::pin(async move { if self.answers() { self.memory.release_all(entries).await } else { Vec::new() } })
    }
}

async fn manager(fault: Fault) -> (LockManager, Arc<Odd>) {
    let odd = Arc::new(Odd { memory: MemoryBackend::new(), fault, batches: AtomicUsize::new(0) });
    let manager = LockManager::builder().backend(odd.clone()).build().await.unwrap();
    (manager, odd)
}

#[tokio::test]
async fn a_late_grant_is_none() {
    let ((manager, _), body) = (manager(Fault::LateGrant).await, Body::default());
    let ttl = Duration::from_secs(1);
    let outcome: Result<(), Failure> = manager.lock("k").ttl(ttl).run(body.clone().future(Ok(()))).await;
    let Err(Failure::Lock(error)) = outcome else { panic!("{outcome:?}") };
    assert!(!error.is_lost(), "what was never had can't be lost: {error:?}");
    assert_eq!(body.starts(), 0, "the body ran under a lease that was over");
    assert!(manager.lock("k").ttl(ttl).acquire().await.is_err(), "a guard of a lease that was over");
}

#[tokio::test]
async fn a_late_grant_is_followed_by_the_next_try() {
    let (manager, _) = manager(Fault::LateGrant).await;
    let request = manager.lock("k").ttl(Duration::from_secs(1)).retry(1).backoff(brisk());
    assert!(request.acquire().await.unwrap().lease().is_held());
}

async fn is_kept_and_freed_all_the_same(fault: Fault) {
    let (manager, odd) = manager(fault).await;
    let call = Call::holding(&manager, "k", TTL).await;
    // Two renewals without an answer, and one with.
    eventually("the third renewal", async || odd.batches.load(Ordering::SeqCst) >= 3).await;
    call.finished().await.unwrap_or_else(|why| panic!("{fault:?} lost the lock: {why:?}"));

    let guard = manager.lock("k").ttl(FOR_EVER).acquire().await.unwrap();
    odd.batches.store(0, Ordering::SeqCst);
    drop(guard);
    let request = manager.lock("k").retry(1_000).backoff(brisk());
    request.acquire().await.unwrap_or_else(|why| panic!("{fault:?} left the key: {why}")).release().await.unwrap();
    assert!(odd.batches.load(Ordering::SeqCst) >= 3, "the fault was not there");
}

#[tokio::test]
async fn a_backend_that_panics_costs_a_try() {
    is_kept_and_freed_all_the_same(Fault::Panics).await;
}

#[tokio::test]
async fn a_backend_that_answers_too_few_costs_a_try() {
    is_kept_and_freed_all_the_same(Fault::NoAnswers).await;
}

/// The extension is refused, since the lease is over by then; and that is told, though the lock has left the schedule.
#[tokio::test]
async fn an_extension_that_comes_too_late_ends_the_call() {
    let (manager, _) = manager(Fault::HeldUp).await;
    // Nothing but the loss polls this body.
    let body = std::future::pending::<Result<(), Failure>>();
    let call = tokio::spawn(manager.lock("k").ttl(Duration::from_millis(900)).run(body));
    let failure = soon("the call to end", call).await.unwrap().unwrap_err();
    assert_eq!(failure.lost(), LostReason::Expired);
}
