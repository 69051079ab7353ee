//! `replica_acks`: a lock counts as held once so many replicas have it.

use std::time::{Duration, Instant};

use distlock::backend::MemoryBackend;
use distlock::{LockError, LockManager, LockManagerBuilder};
use tokio::task::JoinHandle;

use crate::calls::{Call, FOR_EVER, Failure, brisk, is_freed, redis_key, sees_renewals, warm_up};
use harness::eventually::{eventually, soon};
use harness::proxy::{Proxy, Trip};
use harness::sentinel::{Fall, Guarded, followed};
use harness::server::Server;

/// For how long a command waits where a test wants to see that it waits for nothing else.
const PATIENT: Duration = Duration::from_secs(60);

async fn with_a_replica() -> (Server, Server) {
    let [primary, replica] = followed(1, Server::options()).await.try_into().ok().unwrap();
    (primary, replica)
}

fn acks(url: &str, replicas: u32) -> LockManagerBuilder {
    LockManager::builder().url(url).replica_acks(replicas)
}

/// How often the server was told to wait for replicas.
async fn waits(server: &Server) -> u64 {
    server.calls().await.get("wait").copied().unwrap_or(0)
}

/// Requires an error that passes and that says these things.
fn passes_and_says(error: &LockError, parts: &[&str]) {
    let text = error.to_string();
    assert!(error.is_transient(), "it passes: {text}");
    assert!(parts.iter().all(|part| text.contains(part)), "{parts:?}? {text}");
}

#[tokio::test]
async fn a_lock_that_counts_is_on_the_replica() {
    let (primary, replica) = with_a_replica().await;
    let manager = acks(&primary.url(), 1).build().await.unwrap();
    for n in 0..20 {
        let guard = manager.lock(format!("{n}")).acquire().await.unwrap();
        assert!(replica.exists(&redis_key(&format!("{n}"))).await, "the lock {n} is not there");
        guard.release().await.unwrap();
    }
    assert_eq!(waits(&primary).await, 20);
    assert_eq!(primary.dbsize().await, 0);
}

#[tokio::test]
async fn nothing_is_waited_for_unless_it_is_asked_for() {
    let (primary, _replica) = with_a_replica().await;
    let manager = acks(&primary.url(), 0).build().await.unwrap();
    let before = primary.connections_received().await;
    manager.lock("k").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(waits(&primary).await, 0);
    assert_eq!(primary.connections_received().await, before + 2, "that of this look and of the other");
}

async fn is_refused_in_time(primary: &Server, replicas: u32, told: &str) {
    let timeout = Duration::from_secs(2);
    let manager = acks(&primary.url(), replicas).command_timeout(timeout).build().await.unwrap();
    let begin = Instant::now();
    let error = manager.lock("k").acquire().await.unwrap_err();
    // The call ends within the timeout; the rest is for two slow cores.
    assert!(begin.elapsed() < 2 * timeout, "it took {:?}", begin.elapsed());
    passes_and_says(&error, &[told, "ms", &primary.address()]);
    assert!(!primary.exists(&redis_key("k")).await, "the lock was not given back");
}

#[tokio::test]
async fn a_replica_that_does_not_answer_confirms_nothing() {
    let (primary, replica) = with_a_replica().await;
    replica.freeze();
    is_refused_in_time(&primary, 1, "0 of 1 replicas").await;
}

#[tokio::test]
async fn a_replica_that_is_gone_confirms_nothing() {
    let (primary, replica) = with_a_replica().await;
    replica.kill();
    is_refused_in_time(&primary, 1, "0 of 1 replicas").await;
}

#[tokio::test]
async fn more_replicas_than_there_are_never_confirm() {
    let (primary, _replica) = with_a_replica().await;
    is_refused_in_time(&primary, 2, "1 of 2 replicas").await;
}

#[tokio::test]
async fn a_failed_try_is_followed_by_others_until_the_replica_answers() {
    let (primary, replica) = with_a_replica().await;
    let manager = acks(&primary.url(), 1).command_timeout(Duration::from_millis(400)).build().await.unwrap();
    replica.freeze();
    let request = manager.lock("k").retry(10_000).backoff(brisk());
    let call = tokio::spawn(request.acquire());
    eventually("three tries", || async { waits(&primary).await >= 3 }).await;
    assert!(!call.is_finished());
    replica.thaw();
    let guard = soon("the lock", call).await.unwrap().unwrap();
    assert!(replica.exists(&redis_key("k")).await);
    guard.release().await.unwrap();
}

/// Returns when the primary waits for its replica, as it goes on doing.
async fn stuck(primary: &Server, manager: &LockManager, key: &str) -> JoinHandle<Result<(), LockError>> {
    let request = manager.lock(key).ttl(FOR_EVER);
    let call = tokio::spawn(async move { request.acquire().await?.release().await });
    let blocked = || async { primary.info("clients").await.unwrap().contains("blocked_clients:1\r") };
    eventually("the server to wait", blocked).await;
    call
}

#[tokio::test]
async fn while_one_waits_for_replicas_all_else_goes_on() {
    let (primary, replica) = with_a_replica().await;
    let manager = acks(&primary.url(), 1).command_timeout(PATIENT).build().await.unwrap();
    let call = Call::holding(&manager, "renewed", Duration::from_secs(1)).await;
    let released = manager.lock("released").ttl(FOR_EVER).acquire().await.unwrap();
    replica.freeze();
    let waiting = stuck(&primary, &manager, "k").await;
    sees_renewals(&primary, "renewed", 2).await;
    soon("a release", released.release()).await.unwrap();
    let busy = soon("a refusal", manager.lock("renewed").ttl(FOR_EVER).acquire()).await;
    assert!(busy.unwrap_err().is_busy());
    assert!(!waiting.is_finished());
    replica.thaw();
    soon("the lock", waiting).await.unwrap().unwrap();
    call.finished().await.unwrap();
}

#[tokio::test]
async fn a_call_that_is_dropped_while_it_waits_for_replicas_leaves_nothing() {
    let (primary, replica) = with_a_replica().await;
    let manager = acks(&primary.url(), 1).command_timeout(PATIENT).build().await.unwrap();
    warm_up(&manager).await;
    replica.freeze();
    let call = stuck(&primary, &manager, "k").await;
    assert!(primary.exists(&redis_key("k")).await);
    call.abort();
    is_freed(&primary, "k").await;
}

#[tokio::test]
async fn an_idle_connection_that_was_closed_costs_no_call_in_either_protocol() {
    let (primary, _replica) = with_a_replica().await;
    for query in ["", "?protocol=resp2"] {
        let manager = acks(&format!("{}{query}", primary.url()), 1).build().await.unwrap();
        for _ in 0..5 {
            manager.lock("k").acquire().await.unwrap_or_else(|why| panic!("{query}: {why}")).release().await.unwrap();
            primary.kill_clients("normal").await;
        }
    }
}

#[tokio::test]
async fn a_confirmation_that_is_lost_is_asked_for_again() {
    let (primary, _replica) = with_a_replica().await;
    let link = Proxy::start(&primary).await;
    let manager = acks(&link.url(), 1).build().await.unwrap();
    for trip in [Trip::LoseReply(Duration::ZERO), Trip::Reset] {
        manager.lock("k").acquire().await.unwrap().release().await.unwrap();
        link.arm("WAIT", 0, trip);
        manager.lock("k").acquire().await.unwrap().release().await.unwrap();
        is_freed(&primary, "k").await;
    }
}

#[tokio::test]
async fn a_lock_that_is_handed_over_is_confirmed_before_it_counts() {
    let (primary, replica) = with_a_replica().await;
    let manager = || acks(&primary.url(), 1).command_timeout(Duration::from_secs(1)).build();
    let (holder, waiter) = (manager().await.unwrap(), manager().await.unwrap());
    let held = holder.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn(waiter.lock("k").wait(PATIENT).acquire());
    let in_line = || async { primary.exists(&format!("{}:line", redis_key("k"))).await };
    eventually("the waiter to stand in line", in_line).await;
    replica.freeze();
    let before = waits(&primary).await;
    held.release().await.unwrap();
    eventually("two turns in vain", || async { waits(&primary).await >= before + 2 }).await;
    assert!(!waiting.is_finished());
    replica.thaw();
    let guard = soon("the waiter", waiting).await.unwrap().unwrap();
    assert!(replica.exists(&redis_key("k")).await);
    guard.release().await.unwrap();
    is_freed(&primary, "k").await;
}

#[tokio::test]
async fn a_wait_ends_in_time_while_no_replica_answers() {
    let (primary, replica) = with_a_replica().await;
    let manager = acks(&primary.url(), 1).command_timeout(Duration::from_millis(500)).build().await.unwrap();
    replica.freeze();
    let error = soon("the wait", manager.lock("k").wait(Duration::from_secs(1)).acquire()).await.unwrap_err();
    passes_and_says(&error, &["of 1 replicas"]);
    is_freed(&primary, "k").await;
}

#[tokio::test]
async fn a_lock_that_is_passed_on_within_the_process_was_confirmed_already() {
    let (primary, _replica) = with_a_replica().await;
    let manager = acks(&primary.url(), 1).build().await.unwrap();
    let first = manager.lock("k").wait(PATIENT).acquire().await.unwrap();
    let before = waits(&primary).await;
    let mut next = std::pin::pin!(manager.lock("k").wait(PATIENT).acquire());
    // Polled once, it stands in the line of this process.
    let _pending = std::future::poll_fn(|cx| std::task::Poll::Ready(next.as_mut().poll(cx).is_pending())).await;
    first.release().await.unwrap();
    let second = soon("the next one", next).await.unwrap();
    assert_eq!(waits(&primary).await, before);
    second.release().await.unwrap();
}

#[tokio::test]
async fn several_locks_are_confirmed_together_or_all_given_back() {
    let (primary, replica) = with_a_replica().await;
    let manager = acks(&primary.url(), 1).command_timeout(Duration::from_millis(400)).build().await.unwrap();
    let guard = manager.lock_all(["a", "b", "c"]).acquire().await.unwrap();
    assert_eq!(waits(&primary).await, 1);
    assert_eq!(replica.dbsize().await, 3);
    guard.release().await.unwrap();
    replica.freeze();
    let error = manager.lock_all(["a", "b", "c"]).retry(1).acquire().await.unwrap_err();
    passes_and_says(&error, &["of 1 replicas", "2 attempts"]);
    assert_eq!(primary.dbsize().await, 0, "{:?}", primary.keys().await);
    let request = manager.lock_all(["a", "b"]).wait(Duration::from_secs(1));
    passes_and_says(&soon("the wait", request.acquire()).await.unwrap_err(), &["of 1 replicas"]);
    for key in ["a", "b"] {
        is_freed(&primary, key).await;
    }
    replica.thaw();
    let guard = soon("the locks", manager.lock_all(["a", "b"]).wait(PATIENT).acquire()).await.unwrap();
    assert!(replica.exists(&redis_key("a")).await && replica.exists(&redis_key("b")).await);
    guard.release().await.unwrap();
}

/// The nested call's token comes by a request of its own; the lock is the outer one's, and stays.
#[tokio::test]
async fn a_fencing_token_of_a_nested_call_is_confirmed_and_the_lock_stays_if_it_is_not() {
    let (primary, replica) = with_a_replica().await;
    let manager = acks(&primary.url(), 1).command_timeout(Duration::from_millis(400)).build().await.unwrap();
    let inner = manager.clone();
    let body = async {
        replica.freeze();
        let nested = inner.lock("k").fencing_token(true).run(async { Ok::<_, Failure>(()) }).await;
        let Err(Failure::Lock(error)) = nested else { panic!("{nested:?}") };
        passes_and_says(&error, &["of 1 replicas"]);
        assert!(primary.exists(&redis_key("k")).await, "the outer lock is gone");
        replica.thaw();
        inner.lock("k").fencing_token(true).retry(100).run(async { Ok::<_, Failure>(()) }).await?;
        assert!(replica.exists(&format!("{}:fence", redis_key("k"))).await);
        Ok::<_, Failure>(())
    };
    soon("the call", manager.lock("k").run(body)).await.unwrap();
}

#[tokio::test]
async fn a_lock_that_was_confirmed_survives_the_death_of_the_primary() {
    let guarded = Guarded::start(1).await;
    let manager = acks(&guarded.url(), 1).build().await.unwrap();
    // The replica has to have it when the call begins to run, so the primary is killed at once.
    let call = Call::holding(&manager, "k", Duration::from_secs(30)).await;
    let successor = guarded.fall(Fall::Killed).await;
    sees_renewals(successor, "k", 1).await;
    // There, no replica is left to confirm anything.
    let connected = || async { manager.lock("k").acquire().await.is_err_and(|error| error.is_busy()) };
    eventually("the manager to ask there", connected).await;
    passes_and_says(&manager.lock("another").acquire().await.unwrap_err(), &["0 of 1 replicas", &successor.address()]);
    assert!(call.body.is_running());
    call.finished().await.unwrap();
    is_freed(successor, "k").await;
}

/// Each would take a round trip to the replica, one after another.
#[tokio::test]
async fn many_at_once_are_confirmed_together() {
    let (primary, replica) = with_a_replica().await;
    let manager = acks(&primary.url(), 1).command_timeout(PATIENT).build().await.unwrap();
    replica.freeze();
    let first = stuck(&primary, &manager, "first").await;
    let before = waits(&primary).await;
    let many: Vec<_> = (0..100)
        .map(|n| {
            let request = manager.lock(format!("{n}")).ttl(FOR_EVER);
            tokio::spawn(async move { request.acquire().await })
        })
        .collect();
    eventually("all to be granted", || async { primary.dbsize().await == 101 }).await;
    // One of them is given up, and nobody waits for it.
    many[50].abort();
    replica.thaw();
    soon("the first", first).await.unwrap().unwrap();
    for (n, call) in many.into_iter().enumerate() {
        if let Ok(guard) = soon("one of many", call).await {
            let guard = guard.unwrap();
            assert!(replica.exists(&redis_key(&format!("{n}"))).await, "{n}");
            guard.release().await.unwrap();
        }
    }
    let rounds = waits(&primary).await - before;
    assert!(rounds < 50, "{rounds} rounds for 100 locks");
    is_freed(&primary, "50").await;
}

#[tokio::test]
async fn the_rules_of_backends_are_kept() {
    let (primary, _replica) = with_a_replica().await;
    distlock::conformance::check(acks(&primary.url(), 1).build().await.unwrap().backend()).await;
}

#[tokio::test]
async fn what_has_no_replicas_is_refused() {
    let builders = [acks("memory://", 1), LockManager::builder().backend(MemoryBackend::new()).replica_acks(1)];
    for builder in builders {
        let error = builder.build().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidOption { option: "replica_acks", .. }), "{error:?}");
    }
    acks("memory://", 0).build().await.unwrap();
}
