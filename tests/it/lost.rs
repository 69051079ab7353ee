//! Losing a lock: what is a loss, what isn't, and that the body stops before anybody else can begin.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, LostReason, OnLost, distributed_lock};

use crate::calls::{Body, Call, FOR_EVER, Failure, connect, is_freed, redis_key, sees_renewals, warm_up};
use harness::eventually::{eventually, soon};
use harness::proxy::{Proxy, Trip, Way};
use harness::server::Server;

const TTL: Duration = Duration::from_secs(3);

async fn one_failed_renewal_is_no_loss(trip: Trip) {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    // The second time in the same process shows that no stale entry keeps the key from being renewed.
    for round in 1..=2 {
        let call = Call::holding(&manager, "k", TTL).await;
        link.arm("eval", 0, trip);
        link.tripped(round).await;
        sees_renewals(&server, "k", 2).await;
        let outcome = call.finished().await;
        assert!(outcome.is_ok(), "round {round}: one renewal failed by {trip:?}, and the call with it: {outcome:?}");
    }
}

#[tokio::test]
async fn a_renewal_whose_connection_is_reset_is_tried_again() {
    one_failed_renewal_is_no_loss(Trip::Reset).await;
}

#[tokio::test]
async fn a_renewal_that_never_arrives_is_tried_again() {
    one_failed_renewal_is_no_loss(Trip::Silence).await;
}

#[tokio::test]
async fn a_renewal_whose_reply_is_lost_is_tried_again() {
    one_failed_renewal_is_no_loss(Trip::LoseReply(Duration::ZERO)).await;
}

/// Holds a lock, does something to its key, and requires that the call ends as lost because the token is gone.
async fn is_gone_after(server: &Server, behind_its_back: impl AsyncFnOnce(&str)) {
    let manager = connect(&server.url()).await;
    // Renewed every 300 ms, and then the server says that it isn't ours any more.
    let call = Call::holding(&manager, "k", Duration::from_millis(900)).await;
    behind_its_back(&redis_key("k")).await;
    let failure = call.ended().await.expect_err("the lock was taken away and the call ended well");
    assert_eq!(failure.lost(), LostReason::Gone, "{failure:?}");
}

#[tokio::test]
async fn a_deleted_key_stops_the_body() {
    let server = Server::start().await;
    is_gone_after(&server, async |key| assert!(server.del(key).await)).await;
    assert_eq!(server.dbsize().await, 0, "a lost lock was taken again");
}

#[tokio::test]
async fn a_replaced_key_stops_the_body_and_is_left_alone() {
    let server = Server::start().await;
    is_gone_after(&server, async |key| server.set_for(key, "another/holder", FOR_EVER).await).await;
    assert_eq!(server.get(&redis_key("k")).await.as_deref(), Some("another/holder"));
    assert!(server.pttl(&redis_key("k")).await > 60_000, "the other's expiry was changed");
}

#[tokio::test]
async fn an_emptied_database_stops_the_body() {
    let server = Server::start().await;
    is_gone_after(&server, async |_| server.query::<()>(&redis::cmd("FLUSHALL")).await.unwrap()).await;
    assert_eq!(server.dbsize().await, 0, "a lost lock was taken again");
}

#[distributed_lock(key = "job:<id>", ttl = "900ms")]
async fn job(id: u32, body: Body) -> Result<u32, Failure> {
    body.future(Ok(id)).await
}

#[distributed_lock(key = "job:<id>", ttl = "900ms", on_lost = finish, lease = lease)]
async fn job_to_the_end(id: u32, body: Body) -> Result<(u32, LostReason), Failure> {
    let reason = lease.lost().await;
    assert!(!lease.is_held());
    assert!(lease.ensure_held().is_err_and(|error| error.is_lost()));
    body.future(Ok((id, reason))).await
}

#[tokio::test]
async fn an_annotated_function_is_stopped_when_its_key_is_deleted() {
    let server = Server::start().await;
    let (manager, body) = (connect(&server.url()).await, Body::default());
    let call = tokio::spawn(manager.scope(job(7, body.clone())));
    body.runs().await;
    assert!(server.del(&redis_key("job:7")).await);
    let failure = soon("the call to end", call).await.unwrap().unwrap_err();
    assert_eq!(failure.lost(), LostReason::Gone);
    assert!(!body.is_running());
}

#[tokio::test]
async fn a_function_that_finishes_though_lost_is_told_by_its_lease() {
    let server = Server::start().await;
    let (manager, body) = (connect(&server.url()).await, Body::default());
    let call = tokio::spawn(manager.scope(job_to_the_end(7, body.clone())));
    eventually("the lock", || server.exists("lock:{job:7}")).await;
    server.del(&redis_key("job:7")).await;
    body.runs().await;
    body.finish();
    assert_eq!(soon("the call to end", call).await.unwrap().unwrap(), (7, LostReason::Gone));
}

/// The lease runs out in mid-body, since nothing renews it, and somebody else takes the key.
async fn outlives_its_lease(server: &Server, outcome: Result<u8, Failure>) -> Result<u8, Failure> {
    let manager = connect(&server.url()).await;
    let body = Body::default();
    let request = manager.lock("k").ttl(Duration::from_millis(500)).watchdog(false).on_lost(OnLost::Finish);
    let call = tokio::spawn(request.run(body.clone().future(outcome)));
    body.runs().await;
    is_freed(server, "k").await;
    server.set_for(&redis_key("k"), "another/holder", FOR_EVER).await;
    body.finish();
    soon("the call to end", call).await.unwrap()
}

#[tokio::test]
async fn a_late_end_leaves_the_successor_alone_and_keeps_the_result_that_was_to_be_finished() {
    let server = Server::start().await;
    assert_eq!(outlives_its_lease(&server, Ok(7)).await.unwrap(), 7);
    assert_eq!(server.get(&redis_key("k")).await.as_deref(), Some("another/holder"));
}

#[tokio::test]
async fn a_late_end_keeps_the_bodys_own_error() {
    let server = Server::start().await;
    let outcome = outlives_its_lease(&server, Err(Failure::Body("mine"))).await;
    assert!(matches!(outcome, Err(Failure::Body("mine"))), "{outcome:?}");
    assert_eq!(server.get(&redis_key("k")).await.as_deref(), Some("another/holder"));
}

#[tokio::test]
async fn a_body_without_renewal_is_stopped_when_its_lease_ends() {
    let server = Server::start().await;
    let (manager, body) = (connect(&server.url()).await, Body::default());
    let request = manager.lock("k").ttl(Duration::from_millis(500)).watchdog(false);
    let outcome: Result<(), Failure> = soon("the call to end", request.run(body.clone().future(Ok(())))).await;
    assert_eq!(outcome.unwrap_err().lost(), LostReason::Expired);
    assert!(!body.is_running());
}

#[tokio::test]
async fn a_late_release_by_hand_says_lost_and_leaves_the_successor_alone() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let request = manager.lock("k").ttl(Duration::from_millis(500)).watchdog(false);
    let guard = request.acquire().await.unwrap();
    is_freed(&server, "k").await;
    server.set_for(&redis_key("k"), "another/holder", FOR_EVER).await;
    assert!(!guard.lease().is_held());
    let error = guard.release().await.expect_err("a release of what was lost went well");
    assert!(error.is_lost() && !error.is_busy(), "{error:?}");
    assert!(error.to_string().contains("`k` was lost"), "{error}");
    assert_eq!(server.get(&redis_key("k")).await.as_deref(), Some("another/holder"));
}

#[tokio::test]
async fn a_guard_dropped_late_leaves_the_successor_alone() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let guard = manager.lock("k").ttl(Duration::from_millis(500)).watchdog(false).acquire().await.unwrap();
    is_freed(&server, "k").await;
    server.set_for(&redis_key("k"), "another/holder", FOR_EVER).await;
    drop(guard);
    // All releases that were still to be made are made when this returns.
    manager.shutdown(Duration::from_secs(5)).await;
    assert_eq!(server.get(&redis_key("k")).await.as_deref(), Some("another/holder"));
}

async fn stuck(manager: LockManager, body: Body) -> Result<(), Failure> {
    let request = manager.lock("k").ttl(Duration::from_millis(600)).max_hold(Duration::from_secs(2));
    request.run(body.future(Ok(()))).await
}

#[tokio::test]
async fn a_stuck_body_is_stopped_after_its_longest_hold() {
    let server = Server::start().await;
    let (manager, body) = (connect(&server.url()).await, Body::default());
    let begin = Instant::now();
    let failure = soon("the call to end", stuck(manager.clone(), body.clone())).await.unwrap_err();
    let Failure::Lock(LockError::Lost { reason, held_for, .. }) = failure else { panic!("{failure:?}") };
    assert_eq!(reason, LostReason::HeldTooLong);
    // It was renewed for so long, which is more than three of its leases, and no longer: the upper bound is loose, since
    // ten tests share two cores.
    assert!(held_for >= Duration::from_millis(1_900), "stopped after {held_for:?} already");
    assert!(begin.elapsed() < Duration::from_secs(5), "stopped only after {:?}", begin.elapsed());
    assert!(!body.is_running());
    is_freed(&server, "k").await;
    manager.lock("k").acquire().await.unwrap().release().await.unwrap();
}

/// What is left of a lease that `max_hold` cuts short.
#[tokio::test]
async fn remaining_knows_of_max_hold() {
    let ttl = Duration::from_secs(2);
    let guard = LockManager::in_memory().lock("k").ttl(ttl).max_hold(ttl).acquire().await.unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await; // 500 ms before the end
    let remaining = guard.lease().remaining();
    assert!(remaining <= Duration::from_millis(500), "{remaining:?} are said to remain of the last 500 ms");
}

/// The same on a real server and a link that lets the replies through just when leases end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_lease_that_ends_is_told_of_also_when_answers_come_at_its_very_end() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    warm_up(&manager).await;
    let mut silent = 0;
    for round in 0..2 {
        let told = Arc::new(AtomicUsize::new(0));
        let begin = Instant::now();
        let mut acquiring = tokio::task::JoinSet::new();
        for number in 0..600 {
            let manager = manager.clone();
            acquiring.spawn(async move {
                manager
                    .lock(format!("{round}/{number}"))
                    .ttl(Duration::from_secs(1))
                    .retry(100)
                    .acquire()
                    .await
                    .unwrap()
            });
        }
        let guards = acquiring.join_all().await;
        link.hold(Way::Replies);
        let mut waiting = Vec::new();
        for guard in &guards {
            let (lease, told) = (guard.lease().clone(), told.clone());
            waiting.push(tokio::spawn(async move {
                lease.lost().await;
                told.fetch_add(1, Ordering::SeqCst);
            }));
        }
        // The moment is the fault: at the end of the leases.
        tokio::time::sleep_until((begin + Duration::from_secs(1)).into()).await;
        link.pass();
        tokio::time::sleep(Duration::from_secs(2)).await; // for the losses to be told
        // `remaining` looks without touching.
        let untold = guards
            .iter()
            .zip(&waiting)
            .filter(|(guard, wait)| guard.lease().remaining().is_zero() && !wait.is_finished());
        let untold = untold.count();
        silent += untold;
        for wait in waiting {
            wait.abort();
        }
        drop(guards);
        eventually("the server to be empty", async || server.dbsize().await == 0).await;
    }
    assert_eq!(silent, 0, "leases are over and nobody who waits for that was told, a second later");
}
