//! Several locks at once: all or nothing.

use std::time::Duration;

use distlock::{LockError, LockManager, distributed_lock};
use redis::cmd;

use crate::calls::{Failure, brisk, connect, redis_key, warm_up};
use harness::eventually::{eventually, soon};
use harness::proxy::{Proxy, Trip, Way};
use harness::server::Server;

const ANOTHER: &str = "00000000-0000-4000-8000-000000000000/another-host/1";
const LONG: Duration = Duration::from_secs(60);

#[distributed_lock(keys = ["account:<from>", "account:<to>"], lease = lease, wait = "1m")]
async fn transfer(from: &str, to: &str) -> Result<String, Failure> {
    lease.ensure_held()?;
    // Long enough for the other one to come.
    tokio::time::sleep(Duration::from_millis(1)).await;
    Ok(format!("{from}->{to}"))
}

async fn names(server: &Server) -> Vec<String> {
    let mut names = server.keys().await;
    names.sort();
    names
}

#[tokio::test]
async fn all_keys_are_held_while_the_body_runs_and_none_after() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let body = async {
        let held = names(&server).await;
        assert_eq!(held, ["a", "b", "c"].map(redis_key));
        Ok::<_, Failure>(())
    };
    soon("the call", manager.lock_all(["c", "a", "b", "a"]).run(body)).await.unwrap();
    assert_eq!(names(&server).await, Vec::<String>::new());
}

#[tokio::test]
async fn one_that_is_held_leaves_all_the_others_free() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    server.set_for(&redis_key("b"), ANOTHER, LONG).await;
    let monitor = server.monitor().await;
    let outcome = manager.lock_all(["a", "b", "c"]).retry(2).backoff(brisk()).acquire().await;
    let Err(LockError::Busy { key, holder, attempts, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!((key.as_str(), holder.as_str(), attempts), ("b", "another-host/1", 3));
    assert_eq!(names(&server).await, [redis_key("b")]);
    let sent = monitor.lines_with(&[]).await;
    assert!(!sent.iter().any(|line| line.to_lowercase().contains("\"set\"")), "nothing was set: {sent:#?}");
}

#[tokio::test]
async fn a_call_that_is_dropped_at_any_point_leaves_none_of_its_keys() {
    let server = Server::start().await;
    let (holder, manager) = (connect(&server.url()).await, connect(&server.url()).await);
    warm_up(&manager).await;
    for step in 0..60_u64 {
        let guard = holder.lock("b").acquire().await.unwrap();
        let request = manager.lock_all(["a", "b", "c"]).retry(1_000).backoff(brisk());
        let request = if step % 2 == 0 { request } else { request.wait(LONG) };
        let call = tokio::spawn(request.acquire());
        let release = tokio::spawn(guard.release());
        // The time of the drop is what is tried out.
        tokio::time::sleep(Duration::from_micros(80 * step)).await;
        call.abort();
        drop(call.await);
        release.await.unwrap().unwrap();
        eventually("nothing to be left", || async { server.dbsize().await == 0 }).await;
    }
}

async fn back_and_forth(manager: LockManager, from: &'static str, to: &'static str) {
    for _ in 0..100 {
        manager.scope(transfer(from, to)).await.unwrap();
    }
}

#[tokio::test]
async fn opposite_orders_do_not_wait_for_each_other() {
    let server = Server::start().await;
    let (one, two) = (connect(&server.url()).await, connect(&server.url()).await);
    let tasks = [
        tokio::spawn(back_and_forth(one.clone(), "x", "y")),
        tokio::spawn(back_and_forth(two, "y", "x")),
        tokio::spawn(back_and_forth(one, "x", "x")),
    ];
    for task in tasks {
        soon("all transfers", task).await.unwrap();
    }
    eventually("nothing to be left", || async { server.dbsize().await == 0 }).await;
}

#[tokio::test]
async fn losing_one_stops_the_body_and_frees_the_rest() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let request = manager.lock_all(["a", "b", "c"]).ttl(Duration::from_millis(600));
    let call = tokio::spawn(request.run(std::future::pending::<Result<(), Failure>>()));
    eventually("the locks to be held", || async { server.dbsize().await == 3 }).await;
    assert!(server.del(&redis_key("b")).await);
    let outcome = soon("the body to be stopped", call).await.unwrap();
    let Err(Failure::Lock(LockError::Lost { key, .. })) = outcome else { panic!("{outcome:?}") };
    assert_eq!(key, "b");
    eventually("the rest to be freed", || async { server.dbsize().await == 0 }).await;
}

#[tokio::test]
async fn all_leases_are_renewed() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let guard = manager.lock_all(["a", "b"]).ttl(Duration::from_millis(600)).acquire().await.unwrap();
    // Two ttls: only renewals keep them.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    guard.lease().ensure_held().unwrap();
    assert_eq!(server.dbsize().await, 2);
    guard.release().await.unwrap();
    assert_eq!(server.dbsize().await, 0);
}

#[tokio::test]
async fn the_fencing_token_is_above_the_last_of_every_key() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    // Far ahead of the clock.
    let ahead = 8_000_000_000_000_000_u64;
    server.set_for(&format!("{}:fence", redis_key("b")), &ahead.to_string(), LONG).await;
    let mut last = ahead;
    for wait in [None, Some(LONG), None] {
        let request = manager.lock_all(["a", "b", "c"]).fencing_token(true);
        let request = if let Some(wait) = wait { request.wait(wait) } else { request };
        let guard = request.acquire().await.unwrap();
        let token = guard.lease().fencing_token().unwrap().get();
        assert!(token > last, "{token} after {last}");
        guard.release().await.unwrap();
        let single = connect(&server.url()).await.lock("a").fencing_token(true).acquire().await.unwrap();
        last = single.lease().fencing_token().unwrap().get();
        assert!(last > token, "{last} after {token}");
        single.release().await.unwrap();
    }
}

#[tokio::test]
async fn no_keys_are_refused() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let error = manager.lock_all(Vec::<String>::new()).acquire().await.unwrap_err();
    assert!(matches!(error, LockError::InvalidKey { .. }) && error.to_string().contains("no keys"), "{error}");
}

#[tokio::test]
async fn those_that_the_task_holds_are_passed_under_and_the_others_taken() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let theirs = manager.clone();
    let body = async {
        let nested = async {
            assert_eq!(names(&server).await, ["a", "b"].map(redis_key));
            Ok::<_, Failure>(())
        };
        theirs.lock_all(["a", "b"]).run(nested).await?;
        assert_eq!(names(&server).await, [redis_key("b")], "the outer lock stays");
        Ok::<_, Failure>(())
    };
    soon("the call", manager.lock("b").run(body)).await.unwrap();
    assert_eq!(server.query::<u64>(&cmd("DBSIZE")).await.unwrap(), 0);
}

#[tokio::test]
async fn leases_count_from_when_all_locks_are_there() {
    let server = Server::start().await;
    let (holder, manager) = (connect(&server.url()).await, connect(&server.url()).await);
    for (watchdog, max_hold) in [(false, LONG), (true, Duration::from_millis(800))] {
        let guard = holder.lock("b").acquire().await.unwrap();
        let request = manager.lock_all(["a", "b"]).ttl(Duration::from_millis(500)).wait(LONG);
        let request = request.watchdog(watchdog).max_hold(max_hold);
        let call = tokio::spawn(request.run(async { Ok::<_, Failure>("ran") }));
        eventually("the first lock", || async { server.exists(&redis_key("a")).await }).await;
        // Longer than the early lock's ttl and than it may be held.
        tokio::time::sleep(Duration::from_secs(1)).await;
        guard.release().await.unwrap();
        assert_eq!(soon("the call", call).await.unwrap().unwrap(), "ran");
        eventually("nothing to be left", || async { server.dbsize().await == 0 }).await;
    }
}

#[tokio::test]
async fn a_lost_reply_is_tried_again_within_the_wait() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let manager = connect(&proxy.url()).await;
    manager.lock_all(["a", "b"]).wait(LONG).acquire().await.unwrap().release().await.unwrap();
    // What asks for both at once names this key, and so does the release.
    proxy.arm("lock:{b}:fence", 1, Trip::LoseReply(Duration::from_secs(5)));
    let guard = soon("the locks", manager.lock_all(["a", "b"]).wait(LONG).acquire()).await.unwrap();
    guard.lease().ensure_held().unwrap();
    guard.release().await.unwrap();
    eventually("nothing to be left", || async { server.dbsize().await == 0 }).await;
}

#[tokio::test]
async fn a_foreign_value_is_told_with_its_key() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    server.set(&redis_key("b"), "something else").await;
    server.query::<()>(cmd("RPUSH").arg(redis_key("c")).arg("x")).await.unwrap();
    for (keys, foreign) in [(["a", "b"], "b"), (["a", "c"], "c")] {
        let error = manager.lock_all(keys).acquire().await.unwrap_err();
        let LockError::ForeignValue { key, .. } = &error else { panic!("{error:?}") };
        assert_eq!(key, foreign, "{error}");
        assert!(!server.exists(&redis_key("a")).await);
    }
}

#[tokio::test]
async fn what_a_dropped_call_has_set_without_hearing_of_it_is_freed() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let manager = connect(&proxy.url()).await;
    for wait in [None, Some(LONG)] {
        proxy.delay(Way::Replies, Duration::from_millis(300));
        let request = manager.lock_all(["a", "b"]);
        let request = if let Some(wait) = wait { request.wait(wait) } else { request };
        let call = tokio::spawn(request.acquire());
        // Its reply is on the way back.
        eventually("the locks to be set", || async { server.dbsize().await == 2 }).await;
        call.abort();
        drop(call.await);
        proxy.pass();
        eventually("the locks to be freed", || async { server.dbsize().await == 0 }).await;
    }
}

/// A place in the line has a token of its own, which is below what another of the keys had in the meantime.
#[tokio::test]
async fn a_token_that_was_not_asked_for_is_not_told() {
    let server = Server::start().await;
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let first = manager.lock("a").fencing_token(true).wait(LONG).acquire().await.unwrap();
    let both = tokio::spawn(manager.lock_all(["a", "b"]).wait(LONG).acquire());
    // For the call to get into the line, behind whose first it takes over a tenure.
    tokio::time::sleep(Duration::from_millis(100)).await;
    other.lock("b").fencing_token(true).acquire().await.unwrap().release().await.unwrap();
    first.release().await.unwrap();
    let guard = soon("both", both).await.unwrap().unwrap();
    assert_eq!(guard.lease().fencing_token(), None);
    guard.release().await.unwrap();
}
