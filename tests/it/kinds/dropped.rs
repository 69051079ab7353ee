//! Calls of all kinds that are dropped at any point leave nothing: no share, no mark, no place in the line.

use std::time::Duration;

use distlock::{Backoff, LockManager};

use super::{Kind, LONG, mark_of, nothing_but, nothing_is_left, owned, shares, stand_in_line};
use crate::calls::{FOR_EVER, Failure, brisk, connect, warm_up};
use crate::ending::{dropped_after, dropped_at_any_point};
use harness::eventually::{eventually, soon};
use harness::proxy::{Proxy, Way};
use harness::server::Server;

/// The ttl is ten minutes: what is free was freed.
async fn runs_for_a_while(kind: Kind, manager: LockManager, key: String) -> Result<(), Failure> {
    let body = async {
        tokio::time::sleep(Duration::from_millis(8)).await; // drops fall into it as well as before and behind it
        Ok::<_, Failure>(())
    };
    kind.lock(&manager, &key).ttl(FOR_EVER).run(body).await
}

#[tokio::test]
async fn a_reader_that_is_dropped_at_any_point_leaves_no_key() {
    dropped_at_any_point(|manager, key| runs_for_a_while(Kind::Read, manager, key)).await;
}

#[tokio::test]
async fn one_with_a_permit_that_is_dropped_at_any_point_leaves_no_key() {
    dropped_at_any_point(|manager, key| runs_for_a_while(Kind::Permits(1), manager, key)).await;
}

#[tokio::test]
async fn a_reader_that_waits_and_is_dropped_at_any_point_leaves_no_key() {
    dropped_at_any_point(|manager, key| async move {
        let guard = Kind::Read.lock(&manager, &key).ttl(FOR_EVER).wait(LONG).acquire().await?;
        // As above.
        tokio::time::sleep(Duration::from_millis(8)).await;
        guard.release().await
    })
    .await;
}

/// What excludes a kind, and so keeps it waiting.
fn opposite(kind: Kind) -> Kind {
    match kind {
        Kind::Plain | Kind::Write => Kind::Read,
        Kind::Read | Kind::Permits(_) => Kind::Write,
    }
}

async fn dropped_around_a_release(kind: Kind) {
    let server = Server::start().await;
    let (holder, manager) = (connect(&server.url()).await, connect(&server.url()).await);
    warm_up(&manager).await;
    // Longer than the test, so that a mark that is left behind is found.
    let slow = Backoff::new(Duration::from_millis(1), FOR_EVER).unwrap();
    for step in 0..120 {
        let guard = opposite(kind).lock(&holder, "k").ttl(FOR_EVER).acquire().await.unwrap();
        let request = kind.lock(&manager, "k").ttl(FOR_EVER);
        let request = match step % 3 {
            0 => request.wait(LONG),
            1 => request.retry(u32::MAX).backoff(brisk()),
            _ => request.retry(u32::MAX).backoff(slow),
        };
        let call = tokio::spawn(request.acquire());
        let release = tokio::spawn(guard.release());
        // The time of the drop is what is tried out.
        tokio::time::sleep(Duration::from_micros(40 * step)).await;
        call.abort();
        drop(call.await);
        release.await.unwrap().unwrap();
        nothing_is_left(&server).await;
    }
}

#[tokio::test]
async fn a_reader_that_is_dropped_while_it_comes_into_its_turn_leaves_no_trace() {
    dropped_around_a_release(Kind::Read).await;
}

#[tokio::test]
async fn a_writer_that_is_dropped_while_it_comes_into_its_turn_leaves_no_trace() {
    dropped_around_a_release(Kind::Write).await;
}

#[tokio::test]
async fn one_that_asks_for_a_permit_and_is_dropped_while_it_comes_into_its_turn_leaves_no_trace() {
    dropped_around_a_release(Kind::Permits(1)).await;
}

/// The reader stays. What the writer has left behind would hold newcomers back for ten minutes.
#[tokio::test]
async fn a_writer_that_is_dropped_at_any_point_while_others_read_holds_nobody_back() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let (reader, writer) = (owned(&server, "reader").await, connect(&link.url()).await);
    let guard = Kind::Read.lock(&reader, "k").ttl(FOR_EVER).acquire().await.unwrap();
    warm_up(&writer).await;
    link.delay(Way::Requests, Duration::from_millis(1));
    link.delay(Way::Replies, Duration::from_millis(1));
    let slow = Backoff::new(Duration::from_millis(2), FOR_EVER).unwrap();
    for step in 0..150 {
        let request = Kind::Write.lock(&writer, "k").ttl(FOR_EVER);
        let request = if step % 2 == 0 { request.wait(LONG) } else { request.retry(u32::MAX).backoff(slow) };
        dropped_after(Duration::from_micros(100) * step, request.acquire()).await;
        if step % 10 < 2 {
            nothing_but(&server, "k").await;
            Kind::Read.lock(&reader, "k").acquire().await.unwrap().release().await.unwrap();
        }
    }
    assert_eq!(shares(&server, "k").await.len(), 1);
    guard.release().await.unwrap();
    nothing_is_left(&server).await;
}

/// Of a group that is dropped together.
#[tokio::test]
async fn hundreds_that_are_dropped_at_once_leave_nothing() {
    let server = Server::start().await;
    let managers = [connect(&server.url()).await, connect(&server.url()).await];
    for _ in 0..5 {
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..200_u64 {
            let (manager, kind) =
                (&managers[usize::from(number % 2 == 0)], Kind::ALL[usize::try_from(number % 4).unwrap()]);
            let request = kind.lock(manager, "k").ttl(FOR_EVER);
            let request = if number % 3 == 0 { request.wait(LONG) } else { request.retry(u32::MAX).backoff(brisk()) };
            tasks.spawn(request.run(async {
                // A body, of which there are some until all are dropped.
                tokio::time::sleep(Duration::from_millis(2)).await;
                Ok::<_, Failure>(())
            }));
        }
        // Some have ended, some hold it, some wait.
        for _ in 0..20 {
            tasks.join_next().await.unwrap().unwrap().unwrap();
        }
        drop(tasks);
        nothing_is_left(&server).await;
        assert!(!server.exists(&mark_of("k")).await);
    }
}

#[tokio::test]
async fn calls_that_are_never_polled_send_nothing() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let monitor = server.monitor().await;
    for kind in Kind::ALL {
        drop(kind.lock(&manager, "k").acquire());
        drop(kind.lock(&manager, "k").wait(LONG).run(async { Ok::<_, Failure>(()) }));
    }
    assert!(monitor.lines_with(&["lock:"]).await.is_empty(), "something was sent");
}

/// Its first pause is a long one, and so is the life of its mark.
#[tokio::test]
async fn a_writer_that_is_dropped_before_it_hears_of_its_first_refusal_holds_nobody_back() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let (reader, writer) = (owned(&server, "reader").await, connect(&link.url()).await);
    let guard = Kind::Read.lock(&reader, "k").ttl(FOR_EVER).acquire().await.unwrap();
    warm_up(&writer).await;
    for waits in [false, true] {
        link.delay(Way::Replies, Duration::from_millis(300));
        let request = Kind::Write.lock(&writer, "k").ttl(FOR_EVER);
        let long = Backoff::new(FOR_EVER, FOR_EVER).unwrap();
        let request = if waits { request.wait(LONG) } else { request.retry(1).backoff(long) };
        let call = tokio::spawn(request.acquire());
        // Its reply is on the way back.
        eventually("the mark", || async { server.exists(&mark_of("k")).await }).await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        link.pass();
        nothing_but(&server, "k").await;
        Kind::Read.lock(&reader, "k").acquire().await.unwrap().release().await.unwrap();
    }
    guard.release().await.unwrap();
    nothing_is_left(&server).await;
}

/// The server has left a mark for it when it gave the lock to those before it.
#[tokio::test]
async fn a_writer_that_leaves_the_line_takes_its_mark_with_it() {
    let server = Server::start().await;
    let managers = [connect(&server.url()).await, connect(&server.url()).await, connect(&server.url()).await];
    let held = managers[0].lock("k").acquire().await.unwrap();
    let reader = tokio::spawn(Kind::Read.lock(&managers[1], "k").wait(LONG).acquire());
    stand_in_line(&server, "k", 1).await;
    let writer = tokio::spawn(Kind::Write.lock(&managers[2], "k").wait(LONG).acquire());
    stand_in_line(&server, "k", 2).await;
    held.release().await.unwrap();
    let reader = soon("the reader", reader).await.unwrap().unwrap();
    eventually("the mark", || async { server.exists(&mark_of("k")).await }).await;
    writer.abort();
    assert!(writer.await.unwrap_err().is_cancelled());
    stand_in_line(&server, "k", 0).await;
    assert!(!server.exists(&mark_of("k")).await, "it holds newcomers back, and is gone");
    Kind::Read.lock(&managers[0], "k").acquire().await.unwrap().release().await.unwrap();
    reader.release().await.unwrap();
    nothing_is_left(&server).await;
}
