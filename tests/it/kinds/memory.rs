//! The memory backend has the same kinds as a server: here where much happens at once, which the conformance suite leaves out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::backend::MemoryBackend;
use distlock::{LockError, LockManager};
use tokio::sync::Barrier;

use super::{Kind, LONG};
use crate::calls::{FOR_EVER, Failure, brisk};
use harness::eventually::{eventually, soon};

async fn managers<const N: usize>() -> [LockManager; N] {
    let backend = Arc::new(MemoryBackend::new());
    let mut managers = Vec::new();
    for _ in 0..N {
        managers.push(LockManager::builder().backend(backend.clone()).build().await.unwrap());
    }
    managers.try_into().ok().unwrap()
}

/// Whether nobody holds the lock and nobody stands in its way.
async fn is_free(manager: &LockManager) -> bool {
    match manager.lock("k").acquire().await {
        Ok(guard) => guard.release().await.is_ok(),
        Err(_) => false,
    }
}

#[tokio::test]
async fn never_more_are_in_than_may_be_in_memory() {
    let managers = managers::<3>().await;
    // Readers count one, those with permits a thousand, and writers a million.
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..24_usize {
        let (manager, inside) = (managers[number % 3].clone(), inside.clone());
        let (kind, weight) = match number % 4 {
            0 | 1 => (Kind::Read, 1),
            2 => (Kind::Permits(2), 1_000),
            _ => (Kind::Write, 1_000_000),
        };
        tasks.spawn(async move {
            for turn in 0..16 {
                let request = kind.lock(&manager, "k").ttl(FOR_EVER);
                let request = if turn % 2 == 0 { request.wait(LONG) } else { request.retry(u32::MAX).backoff(brisk()) };
                let body = async {
                    let now = inside.fetch_add(weight, Ordering::SeqCst) + weight;
                    assert!(matches!(now, 1..=1_000 | 2_000 | 1_000_000), "{now} at once");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(weight, Ordering::SeqCst);
                    Ok::<_, Failure>(())
                };
                request.run(body).await.unwrap();
            }
        });
    }
    let all = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
    tokio::time::timeout(LONG, all).await.expect("all turns");
    assert!(is_free(&managers[0]).await);
}

#[tokio::test]
async fn a_writer_gets_in_under_overlapping_readers_in_memory() {
    let [readers, writer] = managers().await;
    let mut stream = tokio::task::JoinSet::new();
    let starts = Arc::new(AtomicUsize::new(0));
    for _ in 0..20 {
        let (readers, starts) = (readers.clone(), starts.clone());
        stream.spawn(async move {
            loop {
                let request = Kind::Read.lock(&readers, "k").ttl(LONG).retry(u32::MAX).backoff(brisk());
                let guard = request.acquire().await.unwrap();
                starts.fetch_add(1, Ordering::SeqCst);
                // How long one of them holds it.
                tokio::time::sleep(Duration::from_millis(20)).await;
                guard.release().await.unwrap();
            }
        });
    }
    for waits in [true, false] {
        let before = starts.load(Ordering::SeqCst);
        eventually("the stream to flow", || async { starts.load(Ordering::SeqCst) > before + 40 }).await;
        let request = Kind::Write.lock(&writer, "k");
        let request = if waits { request.wait(LONG) } else { request.retry(u32::MAX) };
        soon("the writer", request.acquire()).await.unwrap().release().await.unwrap();
    }
    stream.shutdown().await;
    eventually("the readers to be gone", || is_free(&writer)).await;
}

#[tokio::test]
async fn two_readers_that_want_to_write_both_end_in_memory() {
    let [manager] = managers().await;
    let both = Arc::new(Barrier::new(2));
    let tasks = [(); 2].map(|()| {
        let (theirs, both) = (manager.clone(), both.clone());
        let body = async move {
            both.wait().await;
            let outcome = Kind::Write.lock(&theirs, "k").wait(FOR_EVER).run(async { Ok::<_, Failure>(()) }).await;
            both.wait().await;
            outcome
        };
        tokio::spawn(Kind::Read.lock(&manager, "k").ttl(FOR_EVER).run(body))
    });
    for task in tasks {
        let outcome = soon("both", task).await.unwrap();
        assert!(matches!(outcome, Err(Failure::Lock(LockError::UpgradeNotSupported { .. }))), "{outcome:?}");
    }
    assert!(is_free(&manager).await);
}

#[tokio::test]
async fn calls_that_are_dropped_in_memory_leave_nothing() {
    let [holder, manager] = managers().await;
    for (kind, opposite) in [
        (Kind::Read, Kind::Write),
        (Kind::Write, Kind::Read),
        (Kind::Permits(1), Kind::Plain),
        (Kind::Plain, Kind::Permits(2)),
    ] {
        for step in 0..60 {
            let guard = opposite.lock(&holder, "k").ttl(FOR_EVER).acquire().await.unwrap();
            let request = kind.lock(&manager, "k").ttl(FOR_EVER);
            let slow = distlock::Backoff::new(Duration::from_millis(1), FOR_EVER).unwrap();
            let request = if step % 2 == 0 { request.wait(LONG) } else { request.retry(u32::MAX).backoff(slow) };
            let call = tokio::spawn(request.acquire());
            for _ in 0..step {
                tokio::task::yield_now().await;
            }
            let release = tokio::spawn(guard.release());
            for _ in 0..step % 7 {
                tokio::task::yield_now().await;
            }
            call.abort();
            drop(call.await);
            release.await.unwrap().unwrap();
            eventually("nothing to be left", || is_free(&holder)).await;
            // A mark would hold back those who share.
            let reads = || async {
                match Kind::Read.lock(&holder, "k").acquire().await {
                    Ok(guard) => guard.release().await.is_ok(),
                    Err(_) => false,
                }
            };
            eventually("nobody to be held back", reads).await;
        }
    }
}
