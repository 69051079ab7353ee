//! Several locks at once, of one kind.

use std::time::Duration;

use distlock::{Backoff, LockError, LockManager};

use super::{Kind, LONG, is_refused, mark_of, members, nothing_but, nothing_is_left, owned, stand_in_line};
use crate::calls::{Call, FOR_EVER, Failure, brisk, connect, redis_key, warm_up};
use harness::eventually::{eventually, soon};
use harness::server::Server;

#[tokio::test]
async fn all_are_held_beside_others_of_their_kind_or_none() {
    let server = Server::start().await;
    let (one, other) = (owned(&server, "one").await, owned(&server, "other").await);
    for kind in [Kind::Read, Kind::Permits(2)] {
        for waits in [false, true] {
            let all = |manager: &LockManager| {
                let request = kind.of(manager.lock_all(["c", "a", "b"])).ttl(FOR_EVER);
                if waits { request.wait(LONG) } else { request }
            };
            let first = all(&one).acquire().await.unwrap();
            let second = soon("the second", all(&other).acquire()).await.unwrap();
            for key in ["a", "b", "c"] {
                assert_eq!(members(&server, key).await.len(), 2);
                assert!(is_refused(Kind::Write.lock(&other, key)).await.ends_with(" and 1 other"));
            }
            second.release().await.unwrap();
            // A writer on one of them keeps all of a newcomer's away.
            let writer = Kind::Write.lock(&other, "d").acquire().await.unwrap();
            let outcome = kind.of(one.lock_all(["d", "e", "a"])).acquire().await;
            assert!(matches!(&outcome, Err(LockError::Busy { key, .. }) if key == "d"), "{outcome:?}");
            assert_eq!(members(&server, "a").await.len(), 1);
            assert!(!server.exists(&redis_key("e")).await);
            writer.release().await.unwrap();
            first.release().await.unwrap();
            assert_eq!(server.keys().await, [""; 0]);
        }
    }
}

#[tokio::test]
async fn a_group_of_writers_needs_all_of_them_without_readers() {
    let server = Server::start().await;
    let (one, other) = (owned(&server, "one").await, owned(&server, "other").await);
    let reader = Kind::Read.lock(&one, "b").acquire().await.unwrap();
    let all = || Kind::Write.of(other.lock_all(["a", "b", "c"])).ttl(FOR_EVER);
    let outcome = all().retry(2).backoff(brisk()).acquire().await;
    let Err(LockError::Busy { key, holder, attempts, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!((key.as_str(), holder.as_str(), attempts), ("b", "one", 3));
    nothing_but(&server, "b").await;
    for waits in [false, true] {
        let request = if waits { all().wait(LONG) } else { all().retry(u32::MAX).backoff(brisk()) };
        let call = tokio::spawn(request.fencing_token(true).acquire());
        if waits {
            stand_in_line(&server, "b", 1).await;
        }
        // It holds newcomers back where others are in its way.
        let held_back = || async {
            match Kind::Read.lock(&one, "b").acquire().await {
                Ok(guard) => guard.release().await.is_err(),
                Err(error) => error.is_busy(),
            }
        };
        eventually("it to hold newcomers back", held_back).await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        nothing_but(&server, "b").await;
    }
    reader.release().await.unwrap();
    let guard = all().fencing_token(true).acquire().await.unwrap();
    assert!(guard.lease().fencing_token().is_some());
    guard.release().await.unwrap();
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn losing_one_share_stops_the_body_and_frees_the_rest() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    for kind in [Kind::Read, Kind::Permits(2)] {
        let kept = kind.lock(&manager, "c").acquire().await.unwrap();
        let call = Call::under(kind.of(manager.lock_all(["a", "b", "c"])).ttl(Duration::from_millis(900))).await;
        assert!(server.del(&redis_key("b")).await);
        let outcome = call.ended().await;
        let Err(Failure::Lock(LockError::Lost { key, .. })) = outcome else { panic!("{outcome:?}") };
        assert_eq!(key, "b");
        nothing_but(&server, "c").await;
        assert_eq!(members(&server, "c").await.len(), 1);
        kept.release().await.unwrap();
        assert_eq!(server.keys().await, [""; 0]);
    }
}

#[tokio::test]
async fn a_group_of_shares_that_is_dropped_at_any_point_leaves_none() {
    let server = Server::start().await;
    let (holder, manager) = (connect(&server.url()).await, connect(&server.url()).await);
    warm_up(&manager).await;
    for step in 0..80_u64 {
        let (kind, opposite) = match step % 4 {
            0 => (Kind::Read, Kind::Write),
            1 => (Kind::Permits(1), Kind::Write),
            2 => (Kind::Write, Kind::Read),
            _ => (Kind::Read, Kind::Permits(1)),
        };
        let guard = opposite.lock(&holder, "b").acquire().await.unwrap();
        let request = kind.of(manager.lock_all(["a", "b", "c"])).ttl(FOR_EVER);
        let request = if step % 8 < 4 { request.retry(1_000).backoff(brisk()) } else { request.wait(LONG) };
        let call = tokio::spawn(request.acquire());
        let release = tokio::spawn(guard.release());
        // The time of the drop is what is tried out.
        tokio::time::sleep(Duration::from_micros(80 * step)).await;
        call.abort();
        drop(call.await);
        release.await.unwrap().unwrap();
        nothing_is_left(&server).await;
    }
}

async fn back_and_forth(manager: LockManager, kind: Kind, keys: [&'static str; 2]) {
    for _ in 0..60 {
        let body = async {
            // Long enough for the others to come.
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok::<_, Failure>(())
        };
        kind.of(manager.lock_all(keys)).ttl(LONG).wait(LONG).run(body).await.unwrap();
    }
}

#[tokio::test]
async fn groups_of_all_kinds_in_opposite_orders_do_not_wait_for_each_other() {
    let server = Server::start().await;
    let (one, two) = (connect(&server.url()).await, connect(&server.url()).await);
    let tasks = [
        tokio::spawn(back_and_forth(one.clone(), Kind::Read, ["x", "y"])),
        tokio::spawn(back_and_forth(two.clone(), Kind::Read, ["y", "x"])),
        tokio::spawn(back_and_forth(one.clone(), Kind::Write, ["y", "x"])),
        tokio::spawn(back_and_forth(two, Kind::Permits(2), ["x", "y"])),
        tokio::spawn(back_and_forth(one, Kind::Write, ["y", "z"])),
    ];
    for task in tasks {
        tokio::time::timeout(LONG, task).await.expect("all turns").unwrap();
    }
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_group_that_comes_back_holds_newcomers_back_on_all_its_keys() {
    let server = Server::start().await;
    let (one, other) = (owned(&server, "one").await, owned(&server, "other").await);
    for kind in [Kind::Write, Kind::Permits(2)] {
        let reader = Kind::Read.lock(&one, "b").ttl(FOR_EVER).acquire().await.unwrap();
        let slow = Backoff::new(Duration::from_millis(1), FOR_EVER).unwrap();
        let request = kind.of(other.lock_all(["a", "b", "c"])).ttl(FOR_EVER);
        let group = tokio::spawn(request.retry(u32::MAX).backoff(slow).acquire());
        for key in ["a", "b", "c"] {
            eventually("its mark", || async { server.exists(&mark_of(key)).await }).await;
            assert_eq!(is_refused(Kind::Read.lock(&one, key)).await, "other, which waits for it", "{kind:?}, {key}");
        }
        group.abort();
        assert!(group.await.unwrap_err().is_cancelled());
        nothing_but(&server, "b").await;
        let readers = Kind::Read.of(one.lock_all(["a", "b", "c"])).acquire().await.unwrap();
        readers.release().await.unwrap();
        reader.release().await.unwrap();
        nothing_is_left(&server).await;
    }
}
