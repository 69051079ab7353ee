//! A grant that arrives when its lease is over. Our own backends give up before, so this one answers late.

use std::sync::Arc;
use std::time::Duration;

use distlock::LockManager;
use distlock::backend::{
    Acquired, Attempt, Backend, BackendError, BoxFuture, Entry, MemoryBackend, Released, Renewed, Route,
};

use crate::calls::{Body, Failure, brisk};

const TTL: Duration = Duration::from_secs(1);

/// Grants at once and, at the first attempt of a call, tells of it only after the ttl.
#[derive(Debug, Default)]
struct LateGrants(MemoryBackend);

impl Backend for LateGrants {
    fn prepare(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        self.0.prepare()
    }

    fn acquire<'a>(
        &'a self,
        entry: Entry<'a>,
        attempt: Attempt,
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Acquired, BackendError>> {
        Box::pin(async move {
            let answer = self.0.acquire(entry, attempt, route).await;
            if attempt == Attempt::First {
                // The delay is the fault that this backend is for.
                tokio::time::sleep(TTL * 2).await;
            }
            answer
        })
    }

    fn release<'a>(&'a self, entry: Entry<'a>) -> BoxFuture<'a, Result<Released, BackendError>> {
        self.0.release(entry)
    }

    fn renew<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Renewed, BackendError>>> {
        self.0.renew(entries)
    }

    fn release_all<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Released, BackendError>>> {
        self.0.release_all(entries)
    }
}

async fn manager() -> LockManager {
    LockManager::builder().backend(LateGrants::default()).build().await.unwrap()
}

#[tokio::test]
async fn a_late_grant_is_none() {
    let (manager, body) = (manager().await, Body::default());
    let outcome: Result<(), Failure> = manager.lock("k").ttl(TTL).run(body.clone().future(Ok(()))).await;
    let Err(Failure::Lock(error)) = outcome else { panic!("{outcome:?}") };
    assert!(!error.is_lost(), "what was never had can't be lost: {error:?}");
    assert_eq!(body.starts(), 0, "the body ran under a lease that was over");
    assert!(manager.lock("k").ttl(TTL).acquire().await.is_err(), "a guard of a lease that was over");
}

#[tokio::test]
async fn a_late_grant_is_followed_by_the_next_try() {
    let guard = manager().await.lock("k").ttl(TTL).retry(1).backoff(brisk()).acquire().await.unwrap();
    assert!(guard.lease().is_held());
}
