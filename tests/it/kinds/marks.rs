//! A stream of readers starves no writer: one that will come back holds newcomers back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use distlock::{Backoff, LockManager, LockRequest};
use tokio::task::JoinHandle;

use super::{Kind, LONG, has_shares, holder, is_refused, line_of, mark_of, members, nothing_is_left, owned};
use crate::calls::{FOR_EVER, Failure, asked, brisk, connect};
use crate::harness::eventually::{eventually, soon, within};
use crate::harness::process::Child;
use crate::harness::server::Server;

/// Many who hold a lock together, so that it is never free, as long as this lives.
struct Stream {
    inside: Arc<AtomicUsize>,
    starts: Vec<Arc<AtomicUsize>>,
    ends: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Stream {
    async fn of(kind: Kind, managers: &[LockManager]) -> Self {
        let mut stream = Self { inside: Arc::default(), starts: Vec::new(), ends: Arc::default(), tasks: Vec::new() };
        for number in 0..20 {
            let (starts, manager) = (Arc::new(AtomicUsize::new(0)), managers[number % managers.len()].clone());
            stream.starts.push(starts.clone());
            let (inside, ends) = (stream.inside.clone(), stream.ends.clone());
            stream.tasks.push(tokio::spawn(async move {
                while !ends.load(Ordering::SeqCst) {
                    let request = kind.lock(&manager, "k").ttl(LONG).retry(u32::MAX).backoff(brisk());
                    let guard = request.acquire().await.unwrap();
                    starts.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_add(1, Ordering::SeqCst);
                    // How long one of them holds it.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            }));
        }
        let flows = || async { stream.starts.iter().all(|starts| starts.load(Ordering::SeqCst) >= 2) };
        eventually("the stream to flow", flows).await;
        stream
    }

    fn starts(&self) -> Vec<usize> {
        self.starts.iter().map(|starts| starts.load(Ordering::SeqCst)).collect()
    }

    async fn end(self) {
        self.ends.store(true, Ordering::SeqCst);
        for task in self.tasks {
            soon("the stream to end", task).await.unwrap();
        }
    }
}

/// A writer gets in when those who were in have gone out: of whom each may have been about to come in when the writer
/// came, but none comes in once more.
async fn gets_in(server: &Server, kind: Kind, ask: impl Fn(LockRequest) -> LockRequest, sign: &str) {
    let mut managers = Vec::new();
    for _ in 0..4 {
        managers.push(connect(&server.url()).await);
    }
    let stream = Stream::of(kind, &managers).await;
    let writer = owned(server, "writer").await;
    for round in 0..3 {
        let waiting = tokio::spawn(ask(Kind::Write.lock(&writer, "k").ttl(LONG)).acquire());
        eventually("the writer to ask", || async { server.exists(sign).await || waiting.is_finished() }).await;
        let before = stream.starts();
        let guard = soon("the writer", waiting).await.unwrap().unwrap();
        assert_eq!(stream.inside.load(Ordering::SeqCst), 0, "beside the writer");
        let after = stream.starts();
        let twice = before.iter().zip(&after).filter(|(before, after)| **after > **before + 1).count();
        assert_eq!(twice, 0, "round {round}: so many came in again before the writer: {before:?}, {after:?}");
        guard.release().await.unwrap();
        let flows = || async { stream.starts().iter().zip(&after).all(|(now, then)| now > then) };
        eventually("the stream to flow again", flows).await;
    }
    stream.end().await;
    nothing_is_left(server).await;
}

#[tokio::test]
async fn a_writer_that_waits_gets_in_under_twenty_overlapping_readers() {
    let server = Server::start().await;
    gets_in(&server, Kind::Read, |request| request.wait(LONG), &line_of("k")).await;
}

#[tokio::test]
async fn a_writer_that_tries_again_gets_in_under_twenty_overlapping_readers() {
    let server = Server::start().await;
    gets_in(&server, Kind::Read, |request| request.retry(u32::MAX), &mark_of("k")).await;
}

#[tokio::test]
async fn a_writer_gets_in_under_twenty_who_hold_permits() {
    let server = Server::start().await;
    gets_in(&server, Kind::Permits(20), |request| request.wait(LONG), &line_of("k")).await;
    gets_in(&server, Kind::Permits(20), |request| request.retry(u32::MAX), &mark_of("k")).await;
}

#[tokio::test]
async fn several_writers_get_in_under_a_stream_of_readers() {
    let server = Server::start().await;
    let managers = [connect(&server.url()).await, connect(&server.url()).await];
    let stream = Stream::of(Kind::Read, &managers).await;
    let mut writers = Vec::new();
    for number in 0..6 {
        let request = Kind::Write.lock(&connect(&server.url()).await, "k").ttl(LONG);
        let request = if number % 2 == 0 { request.wait(LONG) } else { request.retry(u32::MAX) };
        let inside = stream.inside.clone();
        writers.push(tokio::spawn(request.run(async move {
            assert_eq!(inside.load(Ordering::SeqCst), 0, "beside a writer");
            Ok::<_, Failure>(())
        })));
    }
    for writer in writers {
        soon("a writer", writer).await.unwrap().unwrap();
    }
    stream.end().await;
    nothing_is_left(&server).await;
}

/// A reader holds the lock, and a writer has been refused that will come back, but not as long as this test lives.
async fn with_a_mark(server: &Server) -> (distlock::LockGuard, JoinHandle<()>) {
    let reader = Kind::Read.lock(&owned(server, "reader").await, "k").ttl(FOR_EVER).acquire().await.unwrap();
    let writer = owned(server, "writer").await;
    let pause = Backoff::new(FOR_EVER, FOR_EVER).unwrap();
    let request = Kind::Write.lock(&writer, "k").ttl(FOR_EVER).retry(u32::MAX).backoff(pause);
    let writer = tokio::spawn(async move { drop(request.acquire().await) });
    eventually("the mark", || async { server.exists(&mark_of("k")).await }).await;
    (reader, writer)
}

/// The first pause is the longest here, so that there is none after it.
#[tokio::test]
async fn a_writer_holds_newcomers_back_from_its_first_refusal_on() {
    let server = Server::start().await;
    let (manager, writer) = (owned(&server, "reader").await, owned(&server, "writer").await);
    let reader = Kind::Read.lock(&manager, "k").ttl(FOR_EVER).acquire().await.unwrap();
    let monitor = server.monitor().await;
    let request = Kind::Write.lock(&writer, "k").ttl(FOR_EVER).retry(1);
    let call = tokio::spawn(request.backoff(Backoff::new(FOR_EVER, FOR_EVER).unwrap()).acquire());
    eventually("its refusal", || async { !asked(&monitor, "k").await.is_empty() }).await;
    eventually("the mark", || async { server.exists(&mark_of("k")).await }).await;
    assert_eq!(is_refused(Kind::Read.lock(&manager, "k")).await, "writer, which waits for it");
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    reader.release().await.unwrap();
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_newcomer_is_told_whom_it_gives_way_to_and_who_holds_the_lock_goes_on() {
    let server = Server::start().await;
    let newcomer = owned(&server, "newcomer").await;
    let (reader, writer) = with_a_mark(&server).await;
    for kind in [Kind::Read, Kind::Permits(2)] {
        let told = is_refused(kind.lock(&newcomer, "k").retry(2).backoff(brisk())).await;
        let expected = if kind == Kind::Read { "writer, which waits for it" } else { "reader" };
        assert!(told == expected || told == "writer, which waits for it", "{kind:?}: {told}");
    }
    assert_eq!(members(&server, "k").await, [format!("r:{}/reader", reader.lease().token())]);
    reader.lease().ensure_held().unwrap();
    reader.release().await.unwrap();
    // The writer's pause is long, and nobody is let past it meanwhile but another writer.
    is_refused(Kind::Read.lock(&newcomer, "k")).await;
    Kind::Write.lock(&newcomer, "k").acquire().await.unwrap().release().await.unwrap();
    writer.abort();
    assert!(writer.await.unwrap_err().is_cancelled());
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_reader_is_renewed_while_a_writer_holds_newcomers_back() {
    let server = Server::start().await;
    let manager = owned(&server, "reader").await;
    let reader = Kind::Read.lock(&manager, "k").ttl(Duration::from_millis(1_500)).acquire().await.unwrap();
    for waits in [true, false] {
        let request = Kind::Write.lock(&connect(&server.url()).await, "k").ttl(LONG);
        let request = if waits { request.wait(LONG) } else { request.retry(u32::MAX).backoff(brisk()) };
        let writer = tokio::spawn(request.acquire());
        // Two ttls: only renewals keep it.
        tokio::time::sleep(Duration::from_secs(3)).await;
        reader.lease().ensure_held().unwrap();
        assert!(!writer.is_finished());
        writer.abort();
        assert!(writer.await.unwrap_err().is_cancelled());
    }
    reader.release().await.unwrap();
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_writer_that_is_dropped_between_its_tries_holds_nobody_back() {
    let server = Server::start().await;
    let newcomer = owned(&server, "newcomer").await;
    let (reader, writer) = with_a_mark(&server).await;
    writer.abort();
    assert!(writer.await.unwrap_err().is_cancelled());
    eventually("the mark to be gone", || async { !server.exists(&mark_of("k")).await }).await;
    Kind::Read.lock(&newcomer, "k").acquire().await.unwrap().release().await.unwrap();
    reader.release().await.unwrap();
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_writer_that_gives_up_holds_nobody_back() {
    let server = Server::start().await;
    let (one, other) = (owned(&server, "one").await, owned(&server, "other").await);
    let reader = Kind::Read.lock(&one, "k").ttl(LONG).acquire().await.unwrap();
    for retry in 0..4 {
        let request = Kind::Write.lock(&other, "k").retry(retry).backoff(brisk());
        assert_eq!(is_refused(request).await, "one");
        let newcomer = || async {
            match Kind::Read.lock(&other, "k").acquire().await {
                Ok(guard) => guard.release().await.is_ok(),
                Err(_) => false,
            }
        };
        if retry == 0 {
            assert!(newcomer().await, "one that tries but once holds nobody back at all");
        }
        eventually("a newcomer", newcomer).await;
    }
    assert_eq!(holder(Kind::Write.lock(&other, "k").acquire().await), "one");
    reader.release().await.unwrap();
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn the_mark_of_a_writer_that_dies_ends_with_it() {
    let server = Server::start().await;
    let manager = owned(&server, "living").await;
    for how in ["wait", "retry"] {
        let reader = Kind::Read.lock(&manager, "k").ttl(FOR_EVER).acquire().await.unwrap();
        let child = Child::spawn("kinds: wait to write", &[&server.url(), "k", how]).await;
        child.event("asks").await;
        let is_held_back = || async {
            match Kind::Read.lock(&manager, "k").acquire().await {
                Ok(guard) => guard.release().await.is_err(),
                Err(error) => error.is_busy(),
            }
        };
        eventually("the writer to hold newcomers back", is_held_back).await;
        child.kill();
        // A waiter may be silent for a second, and one that tries pauses for less; the rest is for two slow cores.
        let may_enter = || async { !is_held_back().await };
        within(Duration::from_secs(6), "a newcomer", may_enter).await;
        reader.lease().ensure_held().unwrap();
        reader.release().await.unwrap();
        has_shares(&server, "k", 0).await;
    }
    let forgotten = distlock::backend::FORGET + Duration::from_secs(4);
    within(forgotten, "the ghosts to be forgotten", || async { server.dbsize().await == 0 }).await;
}
