//! Getting a lock: tries, refusals, lost replies, foreign data, backoff and ttl.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Backoff, LockError, LockManager};
use redis::cmd;

use crate::calls::{Body, FOR_EVER, Failure, asked, brisk, connect, is_freed, redis_key, sees_renewals, warm_up};
use harness::eventually::{eventually, soon};
use harness::proxy::{Proxy, Trip, Way};
use harness::server::Server;

const ANOTHER: &str = "00000000-0000-4000-8000-000000000000/another-host/1";

#[tokio::test]
async fn a_held_lock_is_tried_once_and_once_more_for_each_retry_and_the_body_never_runs() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    warm_up(&manager).await;
    let monitor = server.monitor().await;
    for retry in [0, 1, 3] {
        let key = format!("k{retry}");
        server.set_for(&redis_key(&key), ANOTHER, Duration::from_secs(60)).await;
        let body = Body::default();
        let request = manager.lock(&key).retry(retry).backoff(brisk());
        let outcome: Result<(), Failure> = request.run(body.clone().future(Ok(()))).await;
        let Err(Failure::Lock(error)) = outcome else { panic!("{outcome:?}") };
        says_who_holds(&error, &key, retry + 1);
        assert_eq!(body.starts(), 0, "the body ran without its lock");
        let mut tries = asked(&monitor, &key).await;
        // Ours, which made the key, and the questions of a refused caller, who has it and for how long.
        let asks = |line: &str| ["\"get\"", "\"pttl\""].iter().any(|name| line.to_lowercase().contains(name));
        tries.retain(|line| !line.contains(ANOTHER) && !asks(line));
        assert_eq!(tries.len(), usize::try_from(retry + 1).unwrap(), "retry = {retry}: {tries:#?}");
        assert_eq!(server.get(&redis_key(&key)).await.as_deref(), Some(ANOTHER));
    }
}

fn says_who_holds(error: &LockError, held: &str, tries: u32) {
    let LockError::Busy { key, holder, remaining, attempts, waited, .. } = error else { panic!("{error:?}") };
    assert_eq!((key.as_str(), holder.as_str(), *attempts), (held, "another-host/1", tries));
    assert!(*remaining > Duration::from_secs(30) && *remaining <= Duration::from_secs(60), "{remaining:?}");
    assert!(*waited < Duration::from_secs(20), "{waited:?}");
    assert!(error.is_busy() && error.is_transient());
    let text = error.to_string();
    assert!(text.starts_with(&format!("lock `{held}` is held by another-host/1 for another ")), "{text}");
}

#[tokio::test]
async fn an_error_of_the_server_is_a_try_too() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    server.readonly().await;
    for retry in [0, 1, 3] {
        let body = Body::default();
        let request = manager.lock("k").retry(retry).backoff(brisk());
        let outcome: Result<(), Failure> = request.run(body.clone().future(Ok(()))).await;
        let Err(Failure::Lock(LockError::Backend { attempts, .. })) = outcome else { panic!("{outcome:?}") };
        assert_eq!(attempts, retry + 1, "tries with retry = {retry}");
        assert_eq!(body.starts(), 0, "the body ran without its lock");
    }
}

#[tokio::test]
async fn a_lock_that_comes_free_is_taken_by_a_later_try() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    server.set_for(&redis_key("k"), ANOTHER, FOR_EVER).await;
    let monitor = server.monitor().await;
    let request = manager.lock("k").retry(10_000).backoff(brisk());
    let call = tokio::spawn(request.run(async { Ok::<_, Failure>(7) }));
    eventually("a second try", || async { asked(&monitor, "k").await.len() >= 2 }).await;
    assert!(server.del(&redis_key("k")).await);
    assert_eq!(soon("the call to end", call).await.unwrap().unwrap(), 7);
}

#[tokio::test]
async fn a_second_try_recognises_the_lock_that_the_first_one_took_without_hearing_of_it() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    link.arm(&redis_key("k"), 0, Trip::LoseReply(Duration::ZERO));
    let request = manager.lock("k").ttl(FOR_EVER).retry(1).backoff(brisk());
    let guard = soon("the lock", request.acquire()).await.expect("our own token was taken for another's");
    link.tripped(1).await;
    let value = server.get(&redis_key("k")).await.unwrap();
    assert!(value.starts_with(&guard.lease().token().to_string()), "{value}");
    guard.release().await.unwrap();
    assert!(!server.exists(&redis_key("k")).await);
}

/// A single try over a link whose fault makes it fail, although the server gets it sooner or later.
async fn a_failed_try_leaves_nothing_behind(fault: impl FnOnce(&Proxy), mend: impl AsyncFnOnce(&Proxy)) {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    let monitor = server.monitor().await;
    fault(&link);
    let error = soon("the try to fail", manager.lock("k").ttl(FOR_EVER).acquire()).await.unwrap_err();
    assert!(matches!(error, LockError::Backend { attempts: 1, .. }) && error.is_transient(), "{error:?}");
    mend(&link).await;
    eventually("the lost try at the server", || async { !asked(&monitor, "k").await.is_empty() }).await;
    is_freed(&server, "k").await;
}

#[tokio::test]
async fn a_try_whose_reply_is_lost_leaves_nothing_behind() {
    // Silence for longer than the command timeout of a second, and then the connection is gone with the reply.
    let lose = |link: &Proxy| link.arm(&redis_key("k"), 0, Trip::LoseReply(Duration::from_secs(2)));
    a_failed_try_leaves_nothing_behind(lose, async |_| ()).await;
}

#[tokio::test]
async fn a_try_whose_reply_is_late_leaves_nothing_behind() {
    // The command timeout is a second.
    let delay = |link: &Proxy| link.delay(Way::Replies, Duration::from_secs(2));
    a_failed_try_leaves_nothing_behind(delay, async |link| link.pass()).await;
}

#[tokio::test]
async fn a_try_that_lands_late_leaves_nothing_behind() {
    // The command timeout is a second.
    let delay = |link: &Proxy| link.delay(Way::Requests, Duration::from_secs(2));
    a_failed_try_leaves_nothing_behind(delay, async |link| link.delay(Way::Requests, Duration::ZERO)).await;
}

#[tokio::test]
async fn a_try_that_is_held_in_a_black_hole_leaves_nothing_behind_when_the_link_is_back() {
    a_failed_try_leaves_nothing_behind(Proxy::blackhole, async |link| link.pass()).await;
}

/// Replies that come when the lease they grant is over already. However long the command timeout that was asked for, a
/// try doesn't wait for them, since it may take a third of the ttl at most.
#[tokio::test]
async fn a_try_never_waits_for_longer_than_the_lease_it_asks_for() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = LockManager::builder().url(link.url()).command_timeout(Duration::from_secs(5)).build().await.unwrap();
    let body = Body::default();
    link.delay(Way::Replies, Duration::from_secs(1));
    let request = manager.lock("k").ttl(Duration::from_millis(500));
    let outcome: Result<(), Failure> = soon("the call to end", request.run(body.clone().future(Ok(())))).await;
    assert!(outcome.is_err());
    assert_eq!(body.starts(), 0, "the body ran under a lease that was over");
    link.pass();
    is_freed(&server, "k").await;
}

#[tokio::test]
async fn data_that_is_no_lock_is_named_and_left_alone() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let data = [
        cmd("HSET").arg(redis_key("a hash")).arg("field").arg("v").clone(),
        cmd("RPUSH").arg(redis_key("a list")).arg("v").clone(),
        cmd("SET").arg(redis_key("a string")).arg("a cached page").clone(),
    ];
    for command in &data {
        server.query::<redis::Value>(command).await.unwrap();
    }
    for key in ["a hash", "a list", "a string"] {
        let before: Vec<u8> = server.query(cmd("DUMP").arg(redis_key(key))).await.unwrap();
        // Lasting, so it ends the call however many retries are left.
        let call = manager.lock(key).retry(u32::MAX).acquire();
        let error = soon("the call to end", call).await.unwrap_err();
        let LockError::ForeignValue { key: named, .. } = &error else { panic!("{key}: {error:?}") };
        assert_eq!(named, key);
        assert!(!error.is_transient() && !error.is_busy(), "{error:?}");
        assert!(error.to_string().contains(key), "{error}");
        let after: Vec<u8> = server.query(cmd("DUMP").arg(redis_key(key))).await.unwrap();
        assert_eq!(before, after, "{key} was changed");
        assert_eq!(server.pttl(&redis_key(key)).await, -1, "{key} now expires");
    }
}

#[tokio::test]
async fn a_hundred_callers_at_once_all_get_their_turn_without_a_storm() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let (first, longest) = (Duration::from_millis(20), Duration::from_millis(160));
    let start = Arc::new(tokio::sync::Barrier::new(100));
    let begin = Instant::now();
    let caller = |_| {
        let (manager, start) = (manager.clone(), start.clone());
        tokio::spawn(async move {
            start.wait().await;
            let request = manager.lock("k").retry(u32::MAX).backoff(Backoff::new(first, longest).unwrap());
            let work = async {
                // What the body takes.
                tokio::time::sleep(Duration::from_millis(5)).await;
                Ok::<_, Failure>(())
            };
            request.run(work).await
        })
    };
    for call in (0..100).map(caller).collect::<Vec<_>>() {
        tokio::time::timeout(Duration::from_secs(60), call).await.expect("a caller starves").unwrap().unwrap();
    }
    let calls = server.calls().await;
    let commands: u64 = ["set", "eval", "evalsha", "get"].iter().filter_map(|name| calls.get(*name)).sum();
    // No caller may try more often than once per shortest delay; a try or a release is at most a script and two commands
    // that it runs. A loop without delay makes a hundred times as many.
    let tries = 100 * (begin.elapsed().as_millis() / first.as_millis() + 2);
    assert!(u128::from(commands) < tries * 3, "{commands} commands for at most {tries} tries");
}

#[test]
fn a_backoff_that_can_not_be_right_is_refused() {
    let millis = Duration::from_millis;
    let wrong = [(0, 100), (100, 10), (1_000, 10)].map(|(first, longest)| (millis(first), millis(longest)));
    for (first, longest) in wrong.into_iter().chain([(millis(1), Duration::MAX), (Duration::MAX, Duration::MAX)]) {
        let error = Backoff::new(first, longest).expect_err("accepted");
        assert!(matches!(error, LockError::InvalidOption { option: "backoff", .. }), "{error:?}");
    }
    assert!(Backoff::new(millis(1), millis(1)).is_ok());
}

#[tokio::test]
async fn the_key_expires_after_the_ttl_that_was_asked_for() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let day = Duration::from_secs(86_400);
    for ttl in [Duration::from_millis(20_001), Duration::from_secs(30), Duration::from_secs(5_400), day] {
        let guard = manager.lock("k").ttl(ttl).acquire().await.unwrap();
        let pttl = Duration::from_millis(u64::try_from(server.pttl(&redis_key("k")).await).unwrap());
        // From the grant to our look at it at most so long.
        assert!(pttl <= ttl && pttl + Duration::from_secs(15) > ttl, "PTTL {pttl:?} for a ttl of {ttl:?}");
        assert!(guard.lease().remaining() <= pttl + Duration::from_secs(15));
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_renewal_gives_the_key_its_whole_ttl_again() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let guard = manager.lock("k").ttl(Duration::from_secs(3)).acquire().await.unwrap();
    sees_renewals(&server, "k", 1).await;
    let pttl = server.pttl(&redis_key("k")).await;
    // What is left a moment after the renewal; without it, it would be two seconds or less.
    assert!(pttl > 2_000 && pttl <= 3_000, "PTTL {pttl} after a renewal");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_ttl_that_can_not_be_right_is_refused_before_anything_is_sent() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let monitor = server.monitor().await;
    let day = Duration::from_secs(86_400);
    let wrong = [Duration::ZERO, Duration::from_micros(500), Duration::from_millis(99), day * 2, Duration::MAX];
    for ttl in wrong {
        let body = Body::default();
        let outcome: Result<(), Failure> = manager.lock("k").ttl(ttl).run(body.clone().future(Ok(()))).await;
        let Err(Failure::Lock(error)) = outcome else { panic!("{ttl:?}: {outcome:?}") };
        assert!(matches!(error, LockError::InvalidOption { option: "ttl", .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("100") && text.contains("24"), "the limits are missing: {text}");
        assert_eq!(body.starts(), 0, "the body ran without its lock");
    }
    assert!(asked(&monitor, "k").await.is_empty(), "something was sent");
}
