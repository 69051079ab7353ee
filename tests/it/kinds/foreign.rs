//! What stands under a lock's name and is none of ours, and what is ours for hand-written clients.

use std::time::Duration;

use distlock::{Backoff, LockError};
use redis::{Cmd, cmd};

use super::{Kind, LONG, holder, is_refused, line_of, mark_of, members, owned, time};
use crate::calls::{FOR_EVER, brisk, connect, redis_key};
use harness::eventually::{eventually, soon};
use harness::server::Server;

const ANOTHER: &str = "00000000-0000-4000-8000-000000000000/another-host/1";

async fn dump(server: &Server, name: &str) -> Vec<u8> {
    server.query(cmd("DUMP").arg(name)).await.unwrap()
}

/// Fails unless all kinds of locks are refused as in use for something else, which is left as it is.
async fn is_left_alone(server: &Server, what: &str, make: &[Cmd]) {
    let manager = connect(&server.url()).await;
    let name = redis_key("k");
    server.del(&name).await;
    for command in make {
        server.query::<redis::Value>(command).await.unwrap();
    }
    let (before, expiry) = (dump(server, &name).await, server.pttl(&name).await);
    for kind in Kind::ALL {
        for way in 0..3 {
            let request = match way {
                0 => kind.lock(&manager, "k"),
                // Lasting, so it ends the call however much patience is left.
                1 => kind.lock(&manager, "k").retry(u32::MAX).backoff(brisk()),
                _ => kind.lock(&manager, "k").wait(LONG),
            };
            let outcome = soon("the call", request.acquire()).await;
            let Err(error) = outcome else { panic!("{what}, {kind:?}: it was locked") };
            assert!(matches!(&error, LockError::ForeignValue { key, .. } if key == "k"), "{what}, {kind:?}: {error:?}");
            assert_eq!(dump(server, &name).await, before, "{what}, {kind:?}: it was changed");
            let outcome = kind.of(manager.lock_all(["a", "k"])).acquire().await;
            assert!(
                matches!(&outcome, Err(LockError::ForeignValue { key, .. }) if key == "k"),
                "{what}, several of {kind:?}: {outcome:?}"
            );
            assert_eq!(dump(server, &name).await, before, "{what}, several of {kind:?}: it was changed");
            let now = server.pttl(&name).await;
            assert!(if expiry == -1 { now == -1 } else { now > 0 && now <= expiry }, "{what}: {expiry} to {now}");
            assert_eq!(server.keys().await, std::slice::from_ref(&name), "{what}, {kind:?}");
        }
    }
}

fn expire() -> Cmd {
    cmd("PEXPIRE").arg(redis_key("k")).arg(600_000).clone()
}

#[tokio::test]
async fn data_of_other_types_is_named_and_left_alone() {
    let server = Server::start().await;
    let name = redis_key("k");
    let data = [
        ("a hash", cmd("HSET").arg(&name).arg("field").arg("v").clone()),
        ("a list", cmd("RPUSH").arg(&name).arg("v").clone()),
        ("a set", cmd("SADD").arg(&name).arg("r:v").clone()),
        ("a stream", cmd("XADD").arg(&name).arg("*").arg("field").arg("v").clone()),
    ];
    for (what, make) in data {
        is_left_alone(&server, what, std::slice::from_ref(&make)).await;
        is_left_alone(&server, &format!("{what} that expires"), &[make, expire()]).await;
    }
    is_left_alone(&server, "a string", &[cmd("SET").arg(&name).arg("a cached page").clone()]).await;
}

#[tokio::test]
async fn a_sorted_set_that_is_no_lock_is_left_alone() {
    let server = Server::start().await;
    let soon_to_be = time(&server).await + 300_000;
    let set = |member: &str, score: i64| cmd("ZADD").arg(redis_key("k")).arg(score).arg(member).clone();
    for (what, score) in [("long ago", 1), ("a time to come", soon_to_be), ("a huge score", 2_000_000_000_000_000)] {
        for member in ["alice", "red", "r", "p", "parrot", "#", "#tag"] {
            let what = format!("a sorted set with `{member}` and {what}");
            is_left_alone(&server, &what, &[set(member, score)]).await;
            is_left_alone(&server, &format!("{what}, which expires"), &[set(member, score), expire()]).await;
        }
    }
}

/// Whose clients use `SET NX` by hand, and plain locks of this library, are one.
#[tokio::test]
async fn what_set_nx_has_set_excludes_all_kinds_and_all_kinds_exclude_what_it_would_set() {
    let server = Server::start().await;
    let manager = owned(&server, "ours").await;
    let name = redis_key("k");
    let by_hand = || {
        let mut set = cmd("SET");
        set.arg(&name).arg(ANOTHER).arg("NX").arg("PX").arg(600_000);
        let server = &server;
        async move { server.query::<Option<String>>(&set).await.unwrap().is_some() }
    };
    for kind in Kind::ALL {
        assert!(by_hand().await);
        let error = kind.lock(&manager, "k").acquire().await.unwrap_err();
        let LockError::Busy { holder, remaining, .. } = &error else { panic!("{kind:?}: {error:?}") };
        assert_eq!(holder, "another-host/1", "{kind:?}");
        assert!(*remaining > Duration::from_secs(500) && *remaining <= FOR_EVER, "{kind:?}: {remaining:?}");
        assert_eq!(server.get(&name).await.as_deref(), Some(ANOTHER), "{kind:?}");
        server.del(&name).await;

        let guard = kind.lock(&manager, "k").acquire().await.unwrap();
        let before = dump(&server, &name).await;
        assert!(!by_hand().await, "set by hand beside {kind:?}");
        assert_eq!(dump(&server, &name).await, before);
        guard.lease().ensure_held().unwrap();
        guard.release().await.unwrap();
        assert_eq!(server.keys().await, [""; 0]);
    }
}

/// The command with this name for its key.
fn at(name: &str, command: &Cmd) -> Cmd {
    let arguments = command.args_iter().filter_map(|argument| match argument {
        redis::Arg::Simple(text) => Some(text.to_vec()),
        _ => None,
    });
    let mut arguments: Vec<Vec<u8>> = arguments.collect();
    arguments.insert(1, name.into());
    arguments.into_iter().fold(Cmd::new(), |mut command, argument| command.arg(argument).clone())
}

#[tokio::test]
async fn what_is_no_mark_and_no_line_of_ours_keeps_no_share_from_being_freed() {
    let server = Server::start().await;
    let manager = owned(&server, "ours").await;
    let data = [
        cmd("RPUSH").arg("v").clone(),
        cmd("SET").arg("v").clone(),
        cmd("HSET").arg("field").arg("v").clone(),
        cmd("SADD").arg("v").clone(),
        cmd("ZADD").arg(5).arg("v").clone(),
    ];
    for name in [mark_of("k"), line_of("k")] {
        for (kind, data) in Kind::ALL.into_iter().flat_map(|kind| data.iter().map(move |data| (kind, data))) {
            let guard = kind.lock(&manager, "k").acquire().await.unwrap();
            server.query::<redis::Value>(&at(&name, data)).await.unwrap();
            soon("the release", guard.release()).await.unwrap();
            assert!(!server.exists(&redis_key("k")).await, "{kind:?} with something else under {name}");
            // Whether the next one gets in or not: it is told at once, and leaves that alone.
            match soon("the next one", kind.lock(&manager, "k").acquire()).await {
                Ok(guard) => soon("its release", guard.release()).await.unwrap(),
                Err(error) => assert!(!error.is_busy() && !error.is_lost(), "{kind:?}: {error:?}"),
            }
            assert_eq!(server.keys().await, std::slice::from_ref(&name), "{kind:?}");
            assert!(server.del(&name).await);
        }
    }
}

/// A writer that came back finds something else where it had left its mark: before it has the lock, or when it has.
#[tokio::test]
async fn what_replaced_a_mark_keeps_its_writer_neither_from_the_lock_nor_from_freeing_it() {
    let server = Server::start().await;
    let (reader, writer) = (owned(&server, "reader").await, owned(&server, "writer").await);
    for holds in [false, true] {
        let guard = Kind::Read.lock(&reader, "k").ttl(FOR_EVER).acquire().await.unwrap();
        let pause = Duration::from_millis(500);
        let request = Kind::Write.lock(&writer, "k").ttl(FOR_EVER).retry(u32::MAX);
        let call = tokio::spawn(request.backoff(Backoff::new(pause, pause).unwrap()).acquire());
        eventually("the mark", || async { server.exists(&mark_of("k")).await }).await;
        let replace = async || {
            server.del(&mark_of("k")).await;
            server.query::<()>(cmd("RPUSH").arg(mark_of("k")).arg("something else")).await.unwrap();
        };
        if !holds {
            replace().await;
        }
        guard.release().await.unwrap();
        let guard = soon("the writer", call).await.unwrap().unwrap();
        if holds {
            replace().await;
        }
        guard.release().await.unwrap();
        assert_eq!(server.keys().await, [mark_of("k")]);
        assert!(server.del(&mark_of("k")).await);
    }
}

/// A label may have anything in it that separates the parts of a share.
#[tokio::test]
async fn labels_that_look_like_parts_of_a_share_are_labels() {
    let server = Server::start().await;
    for owner in ["r:a/b", "p3:x", "#7", "a:b:c", "100% {k} and 4 others", "[^:]*%d"] {
        let (manager, other) = (owned(&server, owner).await, owned(&server, "other").await);
        for kind in [Kind::Read, Kind::Permits(2)] {
            let first = kind.lock(&manager, "k").acquire().await.unwrap();
            assert_eq!(is_refused(Kind::Write.lock(&other, "k")).await, owner);
            let second = kind.lock(&manager, "k").acquire().await.unwrap();
            assert_eq!(members(&server, "k").await.len(), 2);
            assert_eq!(holder(Kind::Plain.lock(&other, "k").acquire().await), format!("{owner} and 1 other"));
            first.release().await.unwrap();
            second.release().await.unwrap();
            assert_eq!(server.keys().await, [""; 0]);
        }
    }
}
