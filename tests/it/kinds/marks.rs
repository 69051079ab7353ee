//! A stream of readers starves no writer: one that will come back holds newcomers back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use distlock::backend::{self, Acquired, Attempt, Backend, Entry, MemoryBackend, Released};
use distlock::{Backoff, LockManager, LockRequest};
use redis::cmd;
use tokio::task::JoinHandle;

use super::{
    Kind, LONG, has_shares, holder, is_refused, line_of, mark_of, members, nothing_is_left, owned, stand_in_line,
};
use crate::calls::{FOR_EVER, Failure, asked, brisk, connect};
use harness::eventually::{eventually, soon, within};
use harness::process::Child;
use harness::server::Server;

/// A pause after the first try that is longer than a test: a mark for that is gone only if it is taken back.
fn slow() -> Backoff {
    Backoff::new(FOR_EVER, FOR_EVER).unwrap()
}

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
    let request = Kind::Write.lock(&writer, "k").ttl(FOR_EVER).retry(1).backoff(slow());
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
    let call = tokio::spawn(request.backoff(slow()).acquire());
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
    let forgotten = backend::FORGET + Duration::from_secs(4);
    within(forgotten, "the ghosts to be forgotten", || async { server.dbsize().await == 0 }).await;
}

/// The second one is held back by the mark of the first one, which in turn must not wait for it.
#[tokio::test]
async fn one_that_comes_back_gets_in_before_one_in_line_that_it_holds_back() {
    let server = Server::start().await;
    let managers = [connect(&server.url()).await, connect(&server.url()).await, connect(&server.url()).await];
    // Who holds the lock twice, who comes back, who stands in line, and how many of the first go on.
    for (held, returns, waits, stay) in [
        (Kind::Read, Kind::Permits(5), Kind::Read, 0),
        (Kind::Permits(5), Kind::Read, Kind::Permits(2), 0),
        (Kind::Permits(2), Kind::Permits(5), Kind::Permits(2), 1),
    ] {
        let mut guards = Vec::new();
        for _ in 0..2 {
            guards.push(held.lock(&managers[0], "k").ttl(FOR_EVER).acquire().await.unwrap());
        }
        let pause = Duration::from_secs(1);
        let request = returns.lock(&managers[1], "k").ttl(FOR_EVER).retry(u32::MAX);
        let returning = tokio::spawn(request.backoff(Backoff::new(pause, pause).unwrap()).acquire());
        eventually("the mark", || async { server.exists(&mark_of("k")).await }).await;
        let waiting = tokio::spawn(waits.lock(&managers[2], "k").ttl(FOR_EVER).wait(LONG).acquire());
        stand_in_line(&server, "k", 1).await;
        for guard in guards.drain(stay..) {
            guard.release().await.unwrap();
        }
        let first = soon("the one that comes back", returning).await.unwrap().unwrap();
        assert!(!waiting.is_finished(), "{waits:?} got past {returns:?}");
        first.release().await.unwrap();
        soon("the one in line", waiting).await.unwrap().unwrap().release().await.unwrap();
        for guard in guards {
            guard.release().await.unwrap();
        }
        nothing_is_left(&server).await;
    }
}

/// The backends that keep marks, and how they are asked.
async fn backends(server: &Server) -> [Arc<dyn Backend>; 2] {
    let redis = connect(&server.url()).await.backend();
    redis.prepare().await.unwrap();
    [redis, Arc::new(MemoryBackend::new())]
}

async fn gets(backend: &dyn Backend, entry: Entry<'_>, attempt: Attempt) -> bool {
    matches!(backend.acquire(entry, attempt, &mut None).await.unwrap(), Acquired::Granted(_))
}

const VALUES: [&str; 3] = [
    "00000000-0000-4000-8000-000000000000/one",
    "11111111-1111-4111-8111-111111111111/two",
    "22222222-2222-4222-8222-222222222222/three",
];

fn entries(kinds: [backend::Kind; 3]) -> [Entry<'static>; 3] {
    [0, 1, 2].map(|at| Entry::new("k", VALUES[at], LONG, LONG).with_kind(kinds[at]))
}

/// Each has left a mark beside those who held the lock, and neither is a newcomer when they are gone.
#[tokio::test]
async fn of_two_that_come_back_to_a_free_lock_one_gets_it() {
    let server = Server::start().await;
    for backend in backends(&server).await {
        let [holder, one, other] = entries([backend::Kind::Permits(5), backend::Kind::Read, backend::Kind::Permits(1)]);
        let [one, other] = [one, other].map(|entry| entry.returning_within(Duration::from_secs(8)));
        assert!(gets(&*backend, holder, Attempt::First).await);
        for entry in [one, other] {
            assert!(!gets(&*backend, entry, Attempt::First).await);
        }
        assert_eq!(backend.release(holder).await.unwrap(), Released::Freed);
        let granted = gets(&*backend, one, Attempt::Repeated).await || gets(&*backend, other, Attempt::Repeated).await;
        assert!(granted, "{backend:?}: nobody holds it, and they hold each other back");
    }
}

/// A mark that was left beside readers, by a writer that finds another writer there when it tries for the last time.
#[tokio::test]
async fn a_last_try_takes_its_mark_back_whoever_has_the_lock_by_then() {
    let server = Server::start().await;
    for backend in backends(&server).await {
        let [reader, writer, another] =
            entries([backend::Kind::Read, backend::Kind::Exclusive, backend::Kind::Exclusive]);
        assert!(gets(&*backend, reader, Attempt::First).await);
        assert!(!gets(&*backend, writer.returning_within(Duration::from_secs(8)), Attempt::First).await);
        assert_eq!(backend.release(reader).await.unwrap(), Released::Freed);
        assert!(gets(&*backend, another, Attempt::Repeated).await);
        assert!(!gets(&*backend, writer, Attempt::Repeated).await);
        assert_eq!(backend.release(another).await.unwrap(), Released::Freed);
        assert!(
            gets(&*backend, reader, Attempt::Repeated).await,
            "{backend:?}: nobody waits, and a reader is held back"
        );
    }
}

#[tokio::test]
async fn a_writer_holds_newcomers_back_for_its_pauses_however_short_its_ttl_is() {
    let server = Server::start().await;
    let (reader, writer) = (owned(&server, "reader").await, owned(&server, "writer").await);
    let guard = Kind::Read.lock(&reader, "k").ttl(FOR_EVER).acquire().await.unwrap();
    let request = Kind::Write.lock(&writer, "k").ttl(Duration::from_millis(200)).retry(u32::MAX);
    let pause = Duration::from_secs(5);
    let call = tokio::spawn(request.backoff(Backoff::new(pause, pause).unwrap()).acquire());
    eventually("the mark", || async { server.exists(&mark_of("k")).await }).await;
    let left = server.pttl(&mark_of("k")).await;
    assert!(left > 4_000, "the writer pauses for five seconds, and its mark stands for {left} ms");
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    guard.release().await.unwrap();
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_writer_that_gives_up_leaves_the_marks_of_others() {
    let server = Server::start().await;
    let another = owned(&server, "another").await;
    let (reader, writer) = with_a_mark(&server).await;
    for _ in 0..3 {
        is_refused(Kind::Write.lock(&another, "k").retry(2).backoff(brisk())).await;
        let one_mark = || async { server.query::<u64>(cmd("ZCARD").arg(mark_of("k"))).await.unwrap() == 1 };
        eventually("its own mark to be taken back", one_mark).await;
        assert_eq!(is_refused(Kind::Read.lock(&another, "k")).await, "writer, which waits for it");
    }
    writer.abort();
    assert!(writer.await.unwrap_err().is_cancelled());
    reader.release().await.unwrap();
    nothing_is_left(&server).await;
}
