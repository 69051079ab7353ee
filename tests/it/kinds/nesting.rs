//! Calls of all kinds inside of a body that holds the same lock.
//!
//! "At once" is what comes though the lease of the outer call, and the wait or the tries of the inner one, outlast the test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::{LockError, LockGuard, LockManager, LockRequest};
use tokio::sync::Barrier;

use super::{Kind, LONG, has_shares, members, nothing_is_left, stand_in_line};
use crate::calls::{FOR_EVER, Failure, asked, brisk, connect, redis_key, warm_up};
use harness::eventually::soon;
use harness::server::Server;

/// What comes of a nested call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passes,
    Upgrade,
    Deadlock,
}

fn came_to(outcome: &Result<(), Failure>) -> Outcome {
    match outcome {
        Ok(()) => Outcome::Passes,
        Err(Failure::Lock(LockError::UpgradeNotSupported { key, .. })) if key == "k" => Outcome::Upgrade,
        Err(Failure::Lock(LockError::WouldDeadlock { key, .. })) if key == "k" => Outcome::Deadlock,
        other => panic!("{other:?}"),
    }
}

fn is_upgrade(outer: Kind, inner: Kind) -> bool {
    matches!(outer, Kind::Read | Kind::Permits(_)) && matches!(inner, Kind::Plain | Kind::Write)
}

/// The ways to ask for a lock with all the patience in the world.
fn patiently(request: LockRequest, way: usize) -> LockRequest {
    match way {
        0 => request,
        1 => request.wait(FOR_EVER),
        _ => request.retry(u32::MAX).backoff(brisk()),
    }
}

const NOTHING: [&str; 0] = [];

#[tokio::test]
async fn what_is_nested_passes_if_the_outer_lock_is_no_less_and_else_is_refused_at_once() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    warm_up(&manager).await;
    let permits = Kind::Permits(2);
    let table = [
        (Kind::Read, Kind::Read, Outcome::Passes),
        (Kind::Read, Kind::Write, Outcome::Upgrade),
        (Kind::Read, Kind::Plain, Outcome::Upgrade),
        (Kind::Read, permits, Outcome::Deadlock),
        (Kind::Write, Kind::Read, Outcome::Passes),
        (Kind::Write, Kind::Write, Outcome::Passes),
        (Kind::Write, permits, Outcome::Passes),
        (Kind::Plain, Kind::Read, Outcome::Passes),
        (Kind::Plain, Kind::Write, Outcome::Passes),
        (permits, permits, Outcome::Passes),
        (permits, Kind::Read, Outcome::Deadlock),
        (permits, Kind::Write, Outcome::Upgrade),
        (permits, Kind::Plain, Outcome::Upgrade),
    ];
    for (outer, inner, comes) in table {
        for way in 0..3 {
            let (theirs, server) = (manager.clone(), &server);
            let body = async move {
                let before = server.query::<Vec<u8>>(redis::cmd("DUMP").arg(redis_key("k"))).await.ok();
                let monitor = server.monitor().await;
                let call = patiently(inner.lock(&theirs, "k"), way).run(async { Ok::<_, Failure>(()) });
                assert_eq!(came_to(&call.await), comes, "{inner:?} in {outer:?}");
                assert_eq!(asked(&monitor, "k").await, NOTHING, "{inner:?} in {outer:?} asks the server");
                let after = server.query::<Vec<u8>>(redis::cmd("DUMP").arg(redis_key("k"))).await.ok();
                assert_eq!(before, after, "{inner:?} in {outer:?} changes what stands on the server");
                Ok::<_, Failure>(())
            };
            soon("the call", outer.lock(&manager, "k").ttl(FOR_EVER).run(body)).await.unwrap();
            assert_eq!(server.keys().await, NOTHING, "left after {inner:?} in {outer:?}");
        }
    }
}

/// A body that was promised to be one of at most two, beside two others who were promised three.
#[tokio::test]
async fn a_nested_call_is_not_promised_fewer_neighbours_than_there_are() {
    let server = Server::start().await;
    let (manager, another) = (connect(&server.url()).await, connect(&server.url()).await);
    let permit = || Kind::Permits(3).lock(&another, "k").ttl(FOR_EVER).acquire();
    let others = [permit().await.unwrap(), permit().await.unwrap()];
    let theirs = manager.clone();
    let body = async move {
        for inner in [Kind::Permits(2), Kind::Permits(1)] {
            let outcome = inner.lock(&theirs, "k").run(async { Ok::<_, Failure>(()) }).await;
            assert!(outcome.is_err(), "{inner:?} was let in beside two others");
        }
        Kind::Permits(3).lock(&theirs, "k").run(async { Ok::<_, Failure>(()) }).await
    };
    soon("the call", Kind::Permits(3).lock(&manager, "k").run(body)).await.unwrap();
    for guard in others {
        guard.release().await.unwrap();
    }
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn without_reentrance_nothing_passes() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    for outer in Kind::ALL {
        for inner in Kind::ALL {
            let theirs = manager.clone();
            let body = async move {
                let call = inner.lock(&theirs, "k").reentrant(false).wait(FOR_EVER).run(async { Ok::<_, Failure>(()) });
                let expected = if is_upgrade(outer, inner) { Outcome::Upgrade } else { Outcome::Deadlock };
                assert_eq!(came_to(&call.await), expected, "{inner:?} in {outer:?}");
                Ok::<_, Failure>(())
            };
            soon("the call", outer.lock(&manager, "k").ttl(FOR_EVER).run(body)).await.unwrap();
        }
    }
    assert_eq!(server.keys().await, NOTHING);
}

#[tokio::test]
async fn a_guard_for_what_the_task_holds_in_any_way_is_refused_at_once() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    for outer in Kind::ALL {
        for inner in Kind::ALL {
            let theirs = manager.clone();
            let body = async move {
                let outcome: Result<LockGuard, LockError> = inner.lock(&theirs, "k").wait(FOR_EVER).acquire().await;
                let expected = if is_upgrade(outer, inner) { Outcome::Upgrade } else { Outcome::Deadlock };
                assert_eq!(came_to(&outcome.map(drop).map_err(Failure::Lock)), expected, "{inner:?} in {outer:?}");
                Ok::<_, Failure>(())
            };
            soon("the call", outer.lock(&manager, "k").ttl(FOR_EVER).run(body)).await.unwrap();
        }
    }
    assert_eq!(server.keys().await, NOTHING);
}

/// B08: two who read and then want to write.
#[tokio::test]
async fn two_readers_that_want_to_write_both_end() {
    let server = Server::start().await;
    let managers = [connect(&server.url()).await, connect(&server.url()).await];
    for outer in [Kind::Read, Kind::Permits(2)] {
        // Of one manager, and of two.
        for pair in [[0, 0], [0, 1]] {
            for way in 1..3 {
                let both = Arc::new(Barrier::new(2));
                let tasks = pair.map(|at: usize| {
                    let (manager, theirs, both) = (managers[at].clone(), managers[at].clone(), both.clone());
                    let body = async move {
                        both.wait().await;
                        let writer = patiently(Kind::Write.lock(&theirs, "k"), way);
                        let outcome = writer.run(async { Ok::<_, Failure>(()) }).await;
                        // Both have asked before one of them lets go.
                        both.wait().await;
                        outcome
                    };
                    tokio::spawn(outer.lock(&manager, "k").ttl(FOR_EVER).run(body))
                });
                for task in tasks {
                    let outcome = soon("both", task).await.unwrap();
                    assert_eq!(came_to(&outcome), Outcome::Upgrade);
                }
                assert_eq!(server.keys().await, NOTHING);
            }
        }
    }
}

/// It holds the lock already, so it must not be held back for the writer, which waits for it.
#[tokio::test]
async fn a_nested_reader_passes_though_a_writer_holds_newcomers_back() {
    let server = Server::start().await;
    let (manager, another) = (connect(&server.url()).await, connect(&server.url()).await);
    let (theirs, server) = (manager.clone(), &server);
    let body = async move {
        let writer = tokio::spawn(Kind::Write.lock(&another, "k").wait(LONG).acquire());
        stand_in_line(server, "k", 1).await;
        let nested = || Kind::Read.lock(&theirs, "k").run(async { Ok::<_, Failure>(()) });
        nested().await?;
        assert_eq!(members(server, "k").await.len(), 1);
        // Nor is one that is asked for with others.
        theirs.lock_all(["k", "j"]).mode(distlock::Mode::Read).run(async { Ok::<_, Failure>(()) }).await?;
        Ok::<_, Failure>(writer)
    };
    let writer = soon("the reader", Kind::Read.lock(&manager, "k").ttl(FOR_EVER).run(body)).await.unwrap();
    soon("the writer", writer).await.unwrap().unwrap().release().await.unwrap();
    nothing_is_left(server).await;
}

#[tokio::test]
async fn a_task_that_a_reader_spawns_contends_like_anybody_else() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let (theirs, server) = (manager.clone(), &server);
    let body = async move {
        let writer = tokio::spawn(Kind::Write.lock(&theirs, "k").retry(2).backoff(brisk()).acquire());
        assert!(writer.await.unwrap().unwrap_err().is_busy());
        let reader = tokio::spawn(Kind::Read.lock(&theirs, "k").acquire()).await.unwrap().unwrap();
        has_shares(server, "k", 2).await;
        reader.release().await?;
        Ok::<_, Failure>(())
    };
    soon("the call", Kind::Read.lock(&manager, "k").ttl(FOR_EVER).run(body)).await.unwrap();
    nothing_is_left(server).await;
}

/// Another manager is another holder, as for exclusive locks: it can't know.
#[tokio::test]
async fn another_manager_is_refused_to_write_beside_a_reader() {
    let server = Server::start().await;
    let (manager, another) = (connect(&server.url()).await, connect(&server.url()).await);
    let body = async move {
        let writer = Kind::Write.lock(&another, "k").retry(1).backoff(brisk()).acquire().await;
        assert!(writer.unwrap_err().is_busy());
        Kind::Read.lock(&another, "k").run(async { Ok::<_, Failure>(()) }).await
    };
    soon("the call", Kind::Read.lock(&manager, "k").ttl(FOR_EVER).run(body)).await.unwrap();
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn one_of_several_keys_that_would_be_an_upgrade_refuses_them_all() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    for way in 0..3 {
        let (theirs, server) = (manager.clone(), &server);
        let body = async move {
            for keys in [["a", "k"], ["k", "z"]] {
                let request = patiently(theirs.lock_all(keys).mode(distlock::Mode::Write), way);
                let outcome = request.run(async { Ok::<_, Failure>(()) }).await;
                assert_eq!(came_to(&outcome), Outcome::Upgrade);
                assert_eq!(server.keys().await, [redis_key("k")], "the others are free");
            }
            Ok::<_, Failure>(())
        };
        soon("the call", Kind::Read.lock(&manager, "k").ttl(FOR_EVER).run(body)).await.unwrap();
    }
    nothing_is_left(&server).await;
}

/// What is asked for in two bodies, one in the other: the innermost that holds the key need not be the strongest.
#[tokio::test]
async fn a_writer_passes_under_a_writer_also_from_within_a_reader_that_passed_under_it() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let depth = AtomicUsize::new(0);
    let lock = |manager: &LockManager, kind: Kind| kind.lock(manager, "k").ttl(FOR_EVER).wait(FOR_EVER);
    let (one, other) = (manager.clone(), manager.clone());
    let innermost = async {
        depth.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Failure>(())
    };
    let reader = async { lock(&other, Kind::Write).run(innermost).await };
    let writer = async { lock(&one, Kind::Read).run(reader).await };
    let outcome = soon("the call", lock(&manager, Kind::Write).run(writer)).await;
    // Either it knows that the task holds the lock to write, or it says that it does not: but at once.
    match came_to(&outcome) {
        Outcome::Passes => assert_eq!(depth.load(Ordering::SeqCst), 1),
        Outcome::Upgrade => assert_eq!(depth.load(Ordering::SeqCst), 0),
        Outcome::Deadlock => panic!("{outcome:?}"),
    }
    assert_eq!(server.keys().await, NOTHING);
}

/// Two calls of one reader's body.
#[tokio::test]
async fn siblings_under_a_reader_both_end() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    for outer in [Kind::Read, Kind::Write, Kind::Permits(2)] {
        let theirs = manager.clone();
        let inner = if outer == Kind::Write { Kind::Read } else { outer };
        let body = async move {
            let one = || async {
                inner
                    .lock(&theirs, "k")
                    .wait(LONG)
                    .run(async {
                        tokio::task::yield_now().await;
                        Ok::<_, Failure>(())
                    })
                    .await
            };
            let (first, second) = tokio::join!(one(), one());
            first.and(second)
        };
        soon("the siblings", outer.lock(&manager, "k").ttl(FOR_EVER).run(body)).await.unwrap();
    }
    assert_eq!(server.keys().await, NOTHING);
}

#[tokio::test]
async fn a_nested_reader_takes_no_step_when_the_lock_that_it_passed_under_is_lost() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    for outer in [Kind::Read, Kind::Write] {
        let theirs = manager.clone();
        let nested = Kind::Read.lock(&theirs, "k").run(std::future::pending::<Result<(), Failure>>());
        let request = outer.lock(&manager, "k").ttl(Duration::from_millis(900));
        let call = tokio::spawn(request.run(nested));
        harness::eventually::eventually("the lock", || async { server.exists(&redis_key("k")).await }).await;
        assert!(server.del(&redis_key("k")).await);
        let outcome = soon("the call", call).await.unwrap();
        assert!(matches!(outcome, Err(Failure::Lock(LockError::Lost { .. }))), "{outcome:?}");
        assert_eq!(server.keys().await, NOTHING);
    }
}
