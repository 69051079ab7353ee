//! Fencing tokens: they rise over every way in which a lock can change hands.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{FencingToken, LockManager, distributed_lock};
use redis::cmd;

use crate::calls::{Failure, brisk, connect, is_freed, redis_key};
use crate::harness::eventually::{eventually, soon};
use crate::harness::process::{Child, emit};
use crate::harness::server::Server;

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
