//! Fencing tokens: they rise over every way in which a lock can change hands.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{FencingToken, LockManager, LockRequest, distributed_lock};
use redis::cmd;

use crate::calls::{Failure, brisk, connect, is_freed, redis_key};
use harness::eventually::{eventually, soon};
use harness::process::{Child, emit};
use harness::proxy::{Proxy, Way};
use harness::server::Server;

const LONG: Duration = Duration::from_secs(60);

#[distributed_lock(key = "k", global, fencing_token = token, lease = lease)]
async fn fenced() -> Result<FencingToken, Failure> {
    assert_eq!(lease.fencing_token(), Some(token), "the body and its lease agree");
    Ok(token)
}

async fn next(manager: &LockManager) -> FencingToken {
    soon("a turn", manager.scope(fenced())).await.unwrap()
}

#[tokio::test]
async fn a_token_rises_with_every_acquisition_whatever_became_of_the_last_one() {
    let server = Server::start().await;
    let (manager, another) = (connect(&server.url()).await, connect(&server.url()).await);
    let fence = format!("{}:fence", redis_key("k"));
    let mut last = next(&manager).await;
    let mut rises = |token: FencingToken, what: &str| {
        assert!(token > last, "{token} after {last}, {what}");
        last = token;
    };
    rises(next(&another).await, "after a release");
    let dead = manager.lock("k").ttl(Duration::from_millis(150)).watchdog(false).fencing_token(true);
    let dead = dead.acquire().await.unwrap();
    rises(dead.lease().fencing_token().unwrap(), "of one that will expire");
    eventually("it to expire", || async { !server.exists(&redis_key("k")).await }).await;
    rises(next(&another).await, "after an expiry");
    server.query::<()>(&cmd("FLUSHALL")).await.unwrap();
    rises(next(&another).await, "after FLUSHALL");
    assert!(server.del(&fence).await);
    rises(next(&manager).await, "after the helper key was deleted");
    server.restart().await;
    rises(soon("a turn after the restart", retried(&manager)).await, "after a restart without its data");
    rises(next(&another).await, "at the other manager");
    server.set_for(&fence, "1", LONG).await;
    rises(next(&manager).await, "after a failover that lost the last writes");
    server.query::<()>(cmd("SCRIPT").arg("FLUSH")).await.unwrap();
    rises(next(&manager).await, "after SCRIPT FLUSH");
}

async fn retried(manager: &LockManager) -> FencingToken {
    let request = manager.lock("k").fencing_token(true).retry(1_000).backoff(brisk());
    let guard = request.acquire().await.unwrap();
    let token = guard.lease().fencing_token().unwrap();
    guard.release().await.unwrap();
    token
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_in_the_order_of_the_holders() {
    let server = Server::start().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let manager = connect(&server.url()).await;
        for waits in [true, true, false] {
            let (manager, seen) = (manager.clone(), seen.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..50 {
                    let request = manager.lock("k").fencing_token(true);
                    let request = if waits { request.wait(LONG) } else { request.retry(u32::MAX).backoff(brisk()) };
                    let guard = request.acquire().await.unwrap();
                    seen.lock().unwrap().push(guard.lease().fencing_token().unwrap());
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    for task in tasks {
        soon("all turns", task).await.unwrap();
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 600);
    assert!(seen.is_sorted(), "tokens fell");
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 600, "a token was given twice");
}

#[tokio::test]
async fn a_nested_call_has_the_token_of_the_lock_that_it_passes_under() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let request = manager.lock("k").fencing_token(true);
    let guard = request.acquire().await.unwrap();
    let first = guard.lease().fencing_token().unwrap();
    guard.release().await.unwrap();
    let body = async { Ok::<_, Failure>((fenced().await?, fenced().await?)) };
    // The outer call asks for none, so it is minted for the first that does.
    let (one, two) = soon("the call", manager.scope(manager.lock("k").run(body))).await.unwrap();
    assert!(one > first && one == two, "{one} and {two} after {first}");
}

#[tokio::test]
async fn without_being_asked_for_no_token_is_minted() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let guard = manager.lock("k").acquire().await.unwrap();
    assert_eq!(guard.lease().fencing_token(), None);
    guard.release().await.unwrap();
    assert_eq!(server.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn the_last_token_is_kept_for_a_day_and_a_garbled_one_is_an_error_that_says_where() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let fence = format!("{}:fence", redis_key("k"));
    next(&manager).await;
    let day = 24 * 60 * 60 * 1_000;
    assert!((day - 60_000..=day).contains(&server.pttl(&fence).await));
    for garbage in ["", "abc", "1.5", "-1", "nan", "inf", "9007199254740993", "1e300"] {
        server.set(&fence, garbage).await;
        for wait in [None, Some(LONG)] {
            let request = manager.lock("k").fencing_token(true);
            let request = if let Some(wait) = wait { request.wait(wait) } else { request };
            let error = request.acquire().await.unwrap_err();
            assert!(!error.is_transient() && error.to_string().contains(&fence), "{garbage:?}: {error}");
        }
    }
    assert_eq!(server.get(&fence).await.as_deref(), Some("1e300"), "it was left as it is");
    is_freed(&server, "k").await;
}

/// A role: gets fencing tokens and writes each to a file as the holder, until it is killed.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn fence_in_a_child(arguments: &[&str]) {
    let [url, log, seed] = arguments[..] else { panic!("{arguments:?}") };
    let (manager, mut random) = (connect(url).await, fastrand::Rng::with_seed(seed.parse().unwrap()));
    let file = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
    emit("works", "");
    loop {
        let expires = random.u8(0..20) == 0;
        let request = manager.lock("k").ttl(Duration::from_millis(300)).watchdog(!expires).fencing_token(true);
        let request = match random.u8(0..3) {
            0 => request.retry(100).backoff(brisk()),
            _ => request.wait(LONG),
        };
        let Ok(guard) = request.acquire().await else { continue };
        let token = guard.lease().fencing_token().unwrap();
        if guard.lease().ensure_held().is_ok() {
            // One write each, which is not mixed with another's.
            (&file).write_all(format!("{token}\n").as_bytes()).unwrap();
        }
        if expires {
            guard.lease().lost().await;
        }
        if random.bool() { drop(guard.release().await) } else { drop(guard) }
    }
}

#[tokio::test]
async fn tokens_rise_over_processes_that_crash_and_let_leases_expire() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("tokens");
    let spawn = async |seed: u64| {
        let arguments = [&*server.url(), log.to_str().unwrap(), &seed.to_string()];
        let child = Child::spawn("fencing: fence", &arguments).await;
        child.event("works").await;
        child
    };
    let mut children = Vec::new();
    for seed in 0..8 {
        children.push(spawn(seed).await);
    }
    let tokens = || -> Vec<u64> {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    };
    for seed in 8..16 {
        let before = tokens().len();
        eventually("some turns", || async { tokens().len() > before + 100 }).await;
        let victim = usize::try_from(seed % 8).unwrap();
        children[victim] = spawn(seed).await;
    }
    drop(children);
    let tokens = tokens();
    assert!(tokens.len() > 800, "{}", tokens.len());
    let fell = tokens.windows(2).find(|pair| pair[0] >= pair[1]);
    assert_eq!(fell, None, "tokens fell, of {}", tokens.len());
}

#[tokio::test]
async fn a_guarded_write_takes_nothing_that_is_older_than_what_is_there() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let (first, second) = (next(&manager).await, next(&manager).await);
    let set = async |value: &str, token: FencingToken| {
        let mut call = cmd("EVAL");
        call.arg(FencingToken::REDIS_SET).arg(2).arg("v").arg("v:fence").arg(value).arg(token.get());
        server.query::<u8>(&call).await.unwrap() == 1
    };
    assert!(set("one", first).await && set("one again", first).await);
    assert!(set("two", second).await);
    assert!(!set("late", first).await);
    assert_eq!(server.get("v").await.as_deref(), Some("two"));
}

/// Has a lock passed on from one caller of a manager to the next, and returns the tokens of both.
async fn passed_on(manager: &LockManager, first: LockRequest) -> (FencingToken, FencingToken) {
    let guard = first.acquire().await.unwrap();
    let token = guard.lease().fencing_token().unwrap();
    let next = tokio::spawn(manager.lock("k").wait(LONG).fencing_token(true).acquire());
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
    let guard = soon("the next caller", next).await.unwrap().unwrap();
    let passed_on = guard.lease().fencing_token().unwrap();
    guard.release().await.unwrap();
    (token, passed_on)
}

#[tokio::test]
async fn tokens_rise_where_a_lock_is_passed_on_within_a_process() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let fence = format!("{}:fence", redis_key("k"));
    let (first, second) = passed_on(&manager, manager.lock("k").wait(LONG).fencing_token(true)).await;
    assert!(first < second, "{second} after {first}");
    let several = manager.lock_all(["k", "l"]).wait(LONG).fencing_token(true);
    let (first, second) = passed_on(&manager, several).await;
    assert!(first < second, "{second} after {first}, which was for several keys");
    // Ahead of the clock, so that the server knows no better once it has forgotten.
    server.set_for(&fence, "8000000000000000", LONG).await;
    let (first, second) = passed_on(&manager, manager.lock("k").wait(LONG).fencing_token(true)).await;
    server.query::<()>(&cmd("FLUSHALL")).await.unwrap();
    let third = next(&manager).await;
    assert!(first < second && second < third, "{first}, {second}, {third}");
}

#[tokio::test]
async fn a_nested_call_under_a_lock_that_was_passed_on_has_its_token() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let guard = manager.lock("k").wait(LONG).fencing_token(true).acquire().await.unwrap();
    let first = guard.lease().fencing_token().unwrap();
    let theirs = manager.clone();
    let without = manager.lock("k").wait(LONG).run(async move { theirs.scope(fenced()).await });
    let without = tokio::spawn(without);
    tokio::task::yield_now().await;
    let last = tokio::spawn(manager.lock("k").wait(LONG).fencing_token(true).acquire());
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
    let nested = soon("the nested call", without).await.unwrap().unwrap();
    let guard = soon("the last", last).await.unwrap().unwrap();
    let last = guard.lease().fencing_token().unwrap();
    assert!(first < nested && nested < last, "{first}, {nested}, {last}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_nested_call_for_more_keys_has_a_token_above_the_last_of_each() {
    let server = Server::start().await;
    let (manager, another) = (connect(&server.url()).await, connect(&server.url()).await);
    for ahead in ["a", "b"] {
        server.query::<()>(&cmd("FLUSHALL")).await.unwrap();
        server.set_for(&format!("{}:fence", redis_key(ahead)), "8000000000000000", LONG).await;
        let theirs = manager.clone();
        let body = async move {
            let nested = theirs.lock_all(["a", "b"]).fencing_token(true);
            let token = nested.run(async { Ok::<_, Failure>(()) });
            token.await?;
            theirs.scope(both()).await
        };
        let token = soon("the call", manager.lock("b").run(body)).await.unwrap();
        for key in ["a", "b"] {
            let guard = another.lock(key).fencing_token(true).acquire().await.unwrap();
            let next = guard.lease().fencing_token().unwrap();
            assert!(next > token, "{next} of `{key}` after {token}, where `{ahead}` is ahead");
            guard.release().await.unwrap();
        }
    }
}

#[distributed_lock(keys = ["a", "b"], global, fencing_token = token)]
async fn both() -> Result<FencingToken, Failure> {
    Ok(token)
}

#[tokio::test]
async fn a_nested_call_that_gets_a_token_takes_no_lost_lock_again() {
    let server = Server::start().await;
    let (manager, another) = (connect(&server.url()).await, connect(&server.url()).await);
    let server = &server;
    let body = async {
        assert!(server.del(&redis_key("k")).await);
        another.lock("k").acquire().await?.release().await?;
        let nested = fenced().await;
        assert!(nested.is_err(), "{nested:?}");
        assert!(!server.exists(&redis_key("k")).await, "the lock was taken again");
        nested.map(drop)
    };
    let outcome = soon("the call", manager.scope(manager.lock("k").run(body))).await;
    assert!(outcome.is_err(), "{outcome:?}");
}

#[tokio::test]
async fn a_nested_call_that_gets_a_token_late_leaves_no_lock_behind() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let manager = connect(&proxy.url()).await;
    next(&manager).await;
    let body = async {
        proxy.delay(Way::Requests, Duration::from_millis(500));
        fenced().await
    };
    let call = manager.scope(manager.lock("k").run(body));
    // The application gives up while the token is on its way.
    assert!(tokio::time::timeout(Duration::from_millis(200), call).await.is_err());
    proxy.pass();
    is_freed(&server, "k").await;
    // What was sent meanwhile has arrived by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!server.exists(&redis_key("k")).await);
}

#[tokio::test]
async fn a_lock_that_is_passed_on_after_a_nested_call_for_more_keys_has_a_token_above_that_ones() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let theirs = manager.clone();
    let first = manager.lock("a").wait(LONG).fencing_token(true).run(async move { theirs.scope(both()).await });
    let mut first = Box::pin(first);
    let second = manager.lock("a").wait(LONG).fencing_token(true).acquire();
    // The second waits behind the first from the beginning.
    let mut second = Box::pin(second);
    let both = async { tokio::join!(&mut first, &mut second) };
    let (nested, guard) = soon("both", both).await;
    let (nested, guard) = (nested.unwrap(), guard.unwrap());
    let next = guard.lease().fencing_token().unwrap();
    assert!(next > nested, "{next} after {nested}");
    guard.release().await.unwrap();
}
