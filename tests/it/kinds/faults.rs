//! Shares, permits and marks beside faults of links and servers.

use std::time::Duration;

use distlock::{LockError, LockRequest, LostReason};
use tokio::runtime::Builder;

use super::{
    Kind, LONG, has_shares, is_refused, line_of, mark_of, members, nothing_but, nothing_is_left, owned, shares,
};
use crate::calls::{Call, FOR_EVER, Failure, brisk, connect, redis_key, warm_up};
use harness::eventually::{eventually, soon};
use harness::holders::{Log, NotingPolls, Until, assert_no_overlap};
use harness::proxy::{Proxy, Trip, Way};
use harness::server::Server;

/// With one permit, who would take its own share for somebody else's would wait for itself.
#[tokio::test]
async fn a_share_whose_answer_was_lost_is_recognised_and_counts_once() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    for kind in [Kind::Permits(1), Kind::Read] {
        for waits in [false, true] {
            // Its scripts are there by then.
            kind.lock(&manager, "k").wait(LONG).acquire().await.unwrap().release().await.unwrap();
            kind.lock(&manager, "k").acquire().await.unwrap().release().await.unwrap();
            link.arm(&redis_key("k"), 0, Trip::LoseReply(Duration::ZERO));
            let request = kind.lock(&manager, "k").ttl(LONG);
            let request = if waits { request.wait(LONG) } else { request.retry(10).backoff(brisk()) };
            let guard = soon("the lock", request.acquire()).await.unwrap();
            assert_eq!(members(&server, "k").await.len(), 1, "{kind:?}, waits: {waits}");
            guard.release().await.unwrap();
            nothing_is_left(&server).await;
        }
    }
}

#[tokio::test]
async fn what_a_dropped_call_has_set_without_hearing_of_it_is_freed() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let (manager, other) = (connect(&link.url()).await, owned(&server, "other").await);
    warm_up(&manager).await;
    for kind in [Kind::Read, Kind::Permits(2)] {
        for waits in [false, true] {
            let kept = kind.lock(&other, "k").ttl(FOR_EVER).acquire().await.unwrap();
            link.delay(Way::Replies, Duration::from_millis(300));
            let request = kind.lock(&manager, "k").ttl(FOR_EVER);
            let request = if waits { request.wait(LONG) } else { request };
            let call = tokio::spawn(request.acquire());
            // Its reply is on the way back.
            has_shares(&server, "k", 2).await;
            call.abort();
            drop(call.await);
            link.pass();
            has_shares(&server, "k", 1).await;
            kept.release().await.unwrap();
            nothing_is_left(&server).await;
        }
    }
}

/// A release must not come before what it is to free.
#[tokio::test]
async fn a_late_request_of_one_that_is_gone_leaves_no_share() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    warm_up(&manager).await;
    for kind in [Kind::Read, Kind::Permits(2), Kind::Write] {
        kind.lock(&manager, "k").acquire().await.unwrap().release().await.unwrap();
        let monitor = server.monitor().await;
        link.arm(&redis_key("k"), 0, Trip::Late(Duration::from_millis(1_500)));
        let error = kind.lock(&manager, "k").ttl(FOR_EVER).acquire().await.unwrap_err();
        assert!(error.is_transient(), "{error:?}");
        // The late request and what frees its share.
        eventually("both", || async { monitor.count(&[&redis_key("k")]).await >= 2 }).await;
        nothing_is_left(&server).await;
    }
}

#[tokio::test]
async fn one_failed_renewal_is_no_loss() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    let mut tripped = 0;
    for kind in [Kind::Read, Kind::Permits(2)] {
        for trip in [Trip::Reset, Trip::Silence, Trip::LoseReply(Duration::ZERO)] {
            let call = Call::under(kind.lock(&manager, "k").ttl(Duration::from_secs(3))).await;
            link.arm(&redis_key("k"), 0, trip);
            tripped += 1;
            link.tripped(tripped).await;
            let expires = async || super::time(&server).await + shares(&server, "k").await[0].remaining;
            for _ in 0..2 {
                let before = expires().await;
                eventually("a renewal", || async { expires().await > before + 200 }).await;
            }
            let outcome = call.finished().await;
            assert!(outcome.is_ok(), "{kind:?}: one renewal failed by {trip:?}, and the call with it: {outcome:?}");
            nothing_is_left(&server).await;
        }
    }
}

#[tokio::test]
async fn scripts_that_are_forgotten_all_the_time_keep_nobody_from_a_lock() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let forget = async {
        loop {
            server.flush_scripts().await;
            // The pace of the fault.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let work = async {
        let kept = Kind::Read.lock(&manager, "r").ttl(Duration::from_millis(1_500)).acquire().await.unwrap();
        for step in 0..150 {
            let kind = Kind::ALL[step % 4];
            let request = kind.lock(&manager, "k").ttl(LONG);
            let request = if step % 3 == 0 { request.wait(LONG) } else { request };
            request.run(async { Ok::<_, Failure>(()) }).await.unwrap();
            is_refused(Kind::Write.lock(&manager, "r").retry(1).backoff(brisk())).await;
        }
        kept.lease().ensure_held().unwrap();
        kept.release().await.unwrap();
    };
    tokio::select! {
        () = forget => unreachable!(),
        done = tokio::time::timeout(LONG, work) => done.expect("the work to be done"),
    }
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_restart_that_loses_all_data_stops_all_who_shared_it() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    for kind in [Kind::Read, Kind::Permits(3)] {
        let mut calls = Vec::new();
        for _ in 0..3 {
            calls.push(Call::under(kind.lock(&manager, "k").ttl(Duration::from_secs(3))).await);
        }
        server.restart().await;
        for call in calls {
            let lost = call.ended().await.unwrap_err().lost();
            assert!(matches!(lost, LostReason::Gone | LostReason::Expired), "{lost:?}");
        }
        nothing_is_left(&server).await;
        let next = kind.lock(&manager, "k").retry(100).backoff(brisk()).acquire().await.unwrap();
        next.release().await.unwrap();
    }
}

/// The key's own expiry is saved with it, and so are the shares.
#[tokio::test]
async fn a_restart_with_its_data_ends_no_share() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let reader = Call::under(Kind::Read.lock(&manager, "r").ttl(Duration::from_secs(10))).await;
    let permit = Call::under(Kind::Permits(1).lock(&manager, "p").ttl(Duration::from_secs(10))).await;
    let before = [shares(&server, "r").await, shares(&server, "p").await];
    server.restart_with_data().await;
    for (key, before) in ["r", "p"].into_iter().zip(before) {
        let member = &before[0].member;
        let renewed = || async {
            let now = shares(&server, key).await;
            now.len() == 1 && now[0].member == *member && now[0].remaining > 8_000
        };
        eventually("a renewal", renewed).await;
    }
    is_refused(Kind::Permits(1).lock(&manager, "p").retry(3)).await;
    reader.finished().await.unwrap();
    permit.finished().await.unwrap();
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_frozen_server_ends_the_leases_of_all_and_leaves_nothing() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let mut calls = Vec::new();
    for kind in [Kind::Read, Kind::Read] {
        calls.push(Call::under(kind.lock(&manager, "r").ttl(Duration::from_secs(1))).await);
        calls.push(Call::under(Kind::Permits(2).lock(&manager, "p").ttl(Duration::from_secs(1))).await);
    }
    let long = Kind::Read.lock(&manager, "r").ttl(FOR_EVER).acquire().await.unwrap();
    server.freeze();
    for call in calls {
        assert_eq!(call.ended().await.unwrap_err().lost(), LostReason::Expired);
    }
    server.thaw();
    let writer = Kind::Write.lock(&manager, "p").retry(100).backoff(brisk()).acquire().await.unwrap();
    writer.release().await.unwrap();
    long.lease().ensure_held().unwrap();
    has_shares(&server, "r", 1).await;
    long.release().await.unwrap();
    nothing_is_left(&server).await;
}

/// B03 for readers: the one that loses its server stops before a writer begins.
#[tokio::test]
async fn a_reader_that_is_cut_off_stops_before_a_writer_begins() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("holders");
    for (kind, waits) in [(Kind::Read, true), (Kind::Read, false), (Kind::Permits(2), true)] {
        let link = Proxy::start(&server).await;
        let (cut_off, other) = (connect(&link.url()).await, connect(&server.url()).await);
        let work = |kind: Kind, steps: usize| {
            let log = Log::open(&path);
            async move {
                let holder = log.start_as(kind.in_the_log(), "k", &uuid::Uuid::new_v4().to_string());
                for _ in 0..steps {
                    // The pace of the body's steps.
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    holder.step();
                }
                Ok::<_, Failure>(())
            }
        };
        let request = kind.lock(&cut_off, "k").ttl(Duration::from_secs(1));
        let call = tokio::spawn(NotingPolls::of(request.run(work(kind, usize::MAX))));
        has_shares(&server, "k", 1).await;
        let request = Kind::Write.lock(&other, "k");
        let request = if waits { request.wait(LONG) } else { request.retry(u32::MAX).backoff(brisk()) };
        let writer = tokio::spawn(NotingPolls::of(request.run(work(Kind::Write, 5))));
        link.blackhole();
        soon("the writer", writer).await.unwrap().unwrap();
        let outcome = soon("the reader", call).await.unwrap();
        assert!(matches!(outcome, Err(Failure::Lock(LockError::Lost { .. }))), "{outcome:?}");
        link.pass();
    }
    assert_eq!(assert_no_overlap(&path, Until::LastStep).len(), 6);
    nothing_is_left(&server).await;
}

/// The mark stands for as long as the writer may take to come back, and it must not outlive the writer's call.
#[tokio::test]
async fn the_mark_of_a_writer_that_gives_up_is_taken_back_when_the_link_is_back() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let (reader, writer) = (owned(&server, "reader").await, connect(&link.url()).await);
    let guard = Kind::Read.lock(&reader, "k").ttl(FOR_EVER).acquire().await.unwrap();
    warm_up(&writer).await;
    let slow = distlock::Backoff::new(Duration::from_millis(1), FOR_EVER).unwrap();
    let request = Kind::Write.lock(&writer, "k").ttl(FOR_EVER).retry(u32::MAX).backoff(slow);
    let call = tokio::spawn(request.acquire());
    eventually("the mark", || async { server.exists(&mark_of("k")).await }).await;
    link.blackhole();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    is_refused(Kind::Read.lock(&reader, "k")).await;
    link.pass();
    eventually("the mark to be taken back", || async { !server.exists(&mark_of("k")).await }).await;
    Kind::Read.lock(&reader, "k").acquire().await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
    nothing_is_left(&server).await;
}

/// A request that leaves a mark, and comes when its writer is gone.
#[tokio::test]
async fn a_mark_that_comes_late_is_taken_back() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let (reader, writer) = (owned(&server, "reader").await, connect(&link.url()).await);
    let guard = Kind::Read.lock(&reader, "k").ttl(FOR_EVER).acquire().await.unwrap();
    let slow = distlock::Backoff::new(Duration::from_millis(1), FOR_EVER).unwrap();
    for tripped in 1..=5 {
        warm_up(&writer).await;
        let monitor = server.monitor().await;
        // Later ones follow ever later.
        link.arm(&mark_of("k"), tripped, Trip::Late(Duration::from_millis(700)));
        let request = Kind::Write.lock(&writer, "k").ttl(FOR_EVER).retry(u32::MAX).backoff(slow);
        let call = tokio::spawn(request.acquire());
        link.tripped(tripped).await;
        let before = monitor.count(&[&mark_of("k")]).await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        eventually("the late request", || async { monitor.count(&[&mark_of("k")]).await > before }).await;
        nothing_but(&server, "k").await;
        Kind::Read.lock(&reader, "k").acquire().await.unwrap().release().await.unwrap();
    }
    guard.release().await.unwrap();
    nothing_is_left(&server).await;
}

/// Out of memory, a share is granted as a whole or not at all, and those there are are freed.
#[tokio::test]
async fn a_server_out_of_memory_does_nothing_by_halves() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    for kind in [Kind::Read, Kind::Permits(4)] {
        let kept = kind.lock(&manager, "k").ttl(FOR_EVER).acquire().await.unwrap();
        let other = kind.lock(&manager, "k").ttl(FOR_EVER).acquire().await.unwrap();
        server.config("maxmemory", "1").await;
        for (key, before) in [("k", 2), ("free", 0)] {
            for waits in [false, true] {
                let request = kind.lock(&manager, key).ttl(FOR_EVER);
                let request = if waits { request.wait(Duration::from_millis(300)) } else { request };
                match request.acquire().await {
                    Ok(guard) => {
                        assert_eq!(shares(&server, key).await.len(), before + 1);
                        assert!(server.pttl(&redis_key(key)).await > 0, "it never expires");
                        guard.release().await.unwrap();
                    }
                    Err(error) => assert!(error.to_string().contains("OOM"), "{kind:?}, waits: {waits}: {error}"),
                }
                assert_eq!(shares(&server, key).await.len(), before);
            }
        }
        other.release().await.unwrap();
        assert_eq!(shares(&server, "k").await.len(), 1);
        kept.release().await.unwrap();
        assert_eq!(server.keys().await, [""; 0]);
        server.config("maxmemory", "0").await;
    }
}

/// The runtime that it was sent from has ended, so that what is to free it comes first, on another way. That this finds a
/// mark or a place to give up says nothing of the lock.
async fn frees_what_comes_late_though_something_else_was_left(
    held: Kind,
    ask: impl FnOnce(LockRequest) -> LockRequest,
    left: &str,
) {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let (holder, manager) = (owned(&server, "holder").await, connect(&link.url()).await);
    let guard = held.lock(&holder, "k").ttl(FOR_EVER).acquire().await.unwrap();
    let request = ask(Kind::Write.lock(&manager, "k").ttl(FOR_EVER));
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.spawn(async move { drop(request.acquire().await) });
    eventually("the first request", || async { server.exists(left).await }).await;
    let monitor = server.monitor().await;
    link.arm("{k}", 0, Trip::Late(Duration::from_secs(2)));
    link.tripped(1).await;
    tokio::task::spawn_blocking(move || drop(runtime)).await.unwrap();
    eventually("what was left to be given up", || async { !server.exists(left).await }).await;
    guard.release().await.unwrap();
    let comes = || async { !monitor.lines_with(&[&redis_key("k"), " lua]", "\"set\""]).await.is_empty() };
    eventually("the late request to take the lock", comes).await;
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_late_try_is_freed_though_a_mark_was_given_up_before() {
    let pause = Duration::from_millis(200);
    let backoff = distlock::Backoff::new(pause, pause).unwrap();
    let tries = |request: LockRequest| request.retry(u32::MAX).backoff(backoff);
    frees_what_comes_late_though_something_else_was_left(Kind::Read, tries, &mark_of("k")).await;
}

#[tokio::test]
async fn a_late_request_in_line_is_freed_though_a_place_was_given_up_before() {
    let waits = |request: LockRequest| request.wait(LONG);
    frees_what_comes_late_though_something_else_was_left(Kind::Plain, waits, &line_of("k")).await;
}
