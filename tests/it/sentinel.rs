//! Locks on the primary of a service that sentinels look after, through all kinds of failovers.

use std::time::Duration;

use distlock::{LockManager, LostReason};
use redis::cmd;

use crate::calls::{Call, connect, redis_key, sees_renewals};
use crate::contenders::Contenders;
use harness::eventually::{eventually, soon};
use harness::process::{Child, emit};
use harness::sentinel::{Fall, Guarded, SERVICE};
use harness::server::Server;

/// Longer by half than any failover takes here: about three seconds, or twelve if a vote fails.
const LONG: Duration = Duration::from_secs(30);
/// Shorter than any failover by a fall takes: sentinels wait for a second at first.
const SHORT: Duration = Duration::from_millis(600);

#[tokio::test]
async fn a_lock_is_taken_renewed_and_freed() {
    let guarded = Guarded::start(1).await;
    for query in ["", "?protocol=resp2"] {
        let manager = connect(&format!("redis-sentinel://{}{query}#{SERVICE}", guarded.hosts())).await;
        let call = Call::holding(&manager, "k", Duration::from_secs(1)).await;
        sees_renewals(guarded.primary(), "k", 2).await;
        call.finished().await.unwrap();
        assert_eq!(guarded.primary().dbsize().await, 0);
        let text = format!("{manager:?}");
        assert!(text.contains(SERVICE) && text.contains(&guarded.hosts().replace(',', ", ")), "{text}");
    }
}

#[tokio::test]
async fn an_error_tells_which_server_was_the_primary() {
    let guarded = Guarded::start(1).await;
    let manager = connect(&format!("redis-sentinel://{}/3#{SERVICE}", guarded.hosts())).await;
    guarded.primary().config("maxmemory", "1").await;
    let error = manager.lock("k").acquire().await.unwrap_err().to_string();
    assert!(error.contains("OOM") && error.contains(&guarded.primary().address()), "{error}");
    assert!(error.contains("sentinels") && error.contains(SERVICE), "{error}");
}

/// A lock is held, others wait for it in line and others poll. The primary falls.
struct Scene {
    guarded: Guarded,
    call: Call,
    contenders: Contenders,
    _manager: LockManager,
}

impl Scene {
    async fn set(ttl: Duration) -> Self {
        // With a second replica, a sentinel that gets no time to run may start another failover on the heels of the first,
        // and what was written in between is lost.
        let guarded = Guarded::start(1).await;
        let manager = connect(&guarded.url()).await;
        let mut contenders = Contenders::for_key("k", ttl);
        let call = contenders.hold(&manager).await;
        for waits in [true, false, true, false] {
            contenders.add(connect(&guarded.url()).await, waits);
        }
        let listening = || async { subscriptions(guarded.primary()).await == 2 };
        eventually("the waiters to listen", listening).await;
        guarded.replicated().await;
        Self { guarded, call, contenders, _manager: manager }
    }
}

async fn subscriptions(server: &Server) -> usize {
    server.query::<Vec<String>>(cmd("PUBSUB").arg("CHANNELS").arg("lock:*")).await.unwrap().len()
}

async fn a_long_lease_goes_on(fall: Fall) {
    let scene = Scene::set(LONG).await;
    let begin = std::time::Instant::now();
    let successor = scene.guarded.fall(fall).await;
    let promoted = begin.elapsed();
    sees_renewals(successor, "k", 1).await;
    println!("{fall:?}: another primary after {promoted:?}, renewed there after {:?}", begin.elapsed());
    assert!(scene.call.body.is_running(), "the lease has not ended, and yet the body has");
    assert_eq!(scene.contenders.times(), 1, "somebody else got the lock");
    eventually("the waiters to listen there", || async { subscriptions(successor).await == 2 }).await;
    let old = scene.guarded.primary();
    let returned = if fall == Fall::Frozen { Some(returns(old).await) } else { None };
    scene.call.body.finish();
    scene.contenders.go_on(20).await;
    if let Some(before) = returned {
        let since = writes(old).await;
        // A replica counts what its primary sends.
        assert!(since == before || !old.is_primary().await, "the old primary was written to");
    }
    scene.contenders.no_two_held_at_once();
    scene.call.ended().await.unwrap();
}

/// Thaws a server, and returns how many writes there were when all was done that was under way.
async fn returns(old: &Server) -> u64 {
    old.thaw();
    writes(old).await
}

#[tokio::test]
async fn a_long_lease_goes_on_when_the_primary_is_killed() {
    a_long_lease_goes_on(Fall::Killed).await;
}

#[tokio::test]
async fn a_long_lease_goes_on_when_the_primary_freezes() {
    a_long_lease_goes_on(Fall::Frozen).await;
}

#[tokio::test]
async fn a_long_lease_goes_on_when_a_failover_is_commanded() {
    a_long_lease_goes_on(Fall::Commanded).await;
}

async fn a_short_lease_is_lost_by_its_deadline(fall: Fall) {
    let scene = Scene::set(SHORT).await;
    scene.guarded.fall(fall).await;
    assert!(!scene.call.body.is_running(), "the lease ended before there was another primary, and the body goes on");
    scene.contenders.go_on(5).await;
    scene.contenders.no_two_held_at_once();
    assert_eq!(scene.call.ended().await.unwrap_err().lost(), LostReason::Expired);
}

#[tokio::test]
async fn a_short_lease_is_lost_by_its_deadline_when_the_primary_is_killed() {
    a_short_lease_is_lost_by_its_deadline(Fall::Killed).await;
}

#[tokio::test]
async fn a_short_lease_is_lost_by_its_deadline_when_the_primary_freezes() {
    a_short_lease_is_lost_by_its_deadline(Fall::Frozen).await;
}

/// A commanded failover is over in less than a second or takes some, so the lease may live on or be lost.
#[tokio::test]
async fn a_short_lease_has_one_holder_when_a_failover_is_commanded() {
    let scene = Scene::set(Duration::from_secs(3)).await;
    let successor = scene.guarded.fall(Fall::Commanded).await;
    soon("the lease to be renewed there or lost", async {
        let name = redis_key("k");
        let mut last = successor.pttl(&name).await;
        while scene.call.body.is_running() {
            let now = successor.pttl(&name).await;
            if now > last {
                return;
            }
            last = now;
        }
    })
    .await;
    scene.call.body.finish();
    scene.contenders.go_on(20).await;
    scene.contenders.no_two_held_at_once();
}

/// What a server was told to write, by clients.
async fn writes(server: &Server) -> u64 {
    let calls = server.calls().await;
    ["set", "eval", "evalsha", "pexpire"].iter().filter_map(|name| calls.get(*name)).sum()
}

/// The old primary takes writes for some seconds more, over the connections that there are, and all of them are lost.
#[tokio::test]
async fn a_primary_that_was_replaced_by_command_is_written_to_no_more() {
    let guarded = Guarded::start(1).await;
    let manager = connect(&guarded.url()).await;
    manager.lock("before").acquire().await.unwrap().release().await.unwrap();
    let successor = guarded.fall(Fall::Commanded).await;
    // Sentinels find out about the promotion within a second, and we from them within half a second.
    let moved = || async {
        manager.lock("probe").acquire().await.is_ok_and(|guard| guard.lease().is_held())
            && successor.exists(&redis_key("probe")).await
    };
    soon("the manager to move", async {
        while !moved().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(guarded.primary().is_primary().await, "it was made a replica: then this test can't fail");
    let before = writes(guarded.primary()).await;
    for n in 0..50 {
        manager.lock(format!("{n}")).acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(writes(guarded.primary()).await, before);
}

/// Nothing is asked of the manager while the primary is away: its connection is as good as before, to all appearances.
#[tokio::test]
async fn a_primary_that_returns_from_a_freeze_is_not_written_to() {
    let guarded = Guarded::start(1).await;
    let manager = connect(&guarded.url()).await;
    manager.lock("before").acquire().await.unwrap().release().await.unwrap();
    let successor = guarded.fall(Fall::Frozen).await;
    guarded.names(successor).await;
    // The manager looks every half second; twice that is past it, and short of the two seconds of standing still.
    tokio::time::sleep(Duration::from_secs(1)).await;
    guarded.primary().thaw();
    assert!(guarded.primary().is_primary().await, "it was made a replica: then this test can't fail");
    let before = writes(guarded.primary()).await;
    for n in 0..50 {
        manager.lock(format!("{n}")).acquire().await.unwrap().release().await.unwrap();
    }
    assert!(guarded.primary().is_primary().await, "it was made a replica: then this test can't fail");
    assert_eq!(writes(guarded.primary()).await, before);
}

/// A role: takes a lock as soon as a file is there.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn lock_on_a_sign(arguments: &[&str]) {
    let manager = connect(arguments[0]).await;
    manager.lock("before").acquire().await.unwrap().release().await.unwrap();
    emit("ready", "");
    while !std::path::Path::new(arguments[1]).exists() {
        // The pause between two looks; shorter than the manager's own, so that the lock comes before any of those.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    manager.lock("k").acquire().await.unwrap().release().await.unwrap();
    emit("done", "");
}

/// Nobody looks out for failovers in a process that is stopped, and its first act may be to take a lock.
#[tokio::test]
async fn a_process_that_was_stopped_during_a_failover_asks_before_it_writes() {
    let guarded = Guarded::start(1).await;
    let folder = tempfile::tempdir().unwrap();
    let sign = folder.path().join("sign");
    let child = Child::spawn("sentinel: lock on a sign", &[&guarded.url(), sign.to_str().unwrap()]).await;
    child.event("ready").await;
    child.stop();
    std::fs::write(&sign, "").unwrap();
    let before = writes(guarded.primary()).await;
    let successor = guarded.fall(Fall::Commanded).await;
    guarded.names(successor).await;
    // Longer than the two seconds for which what was known is believed.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    child.cont();
    child.event("done").await;
    assert!(guarded.primary().is_primary().await, "it was made a replica: then this test can't fail");
    assert_eq!(writes(guarded.primary()).await, before);
}

/// What the replica did not get is lost, the lock with it: then the holder is stopped at its next renewal.
#[tokio::test]
async fn a_lock_that_was_not_replicated_is_lost() {
    let guarded = Guarded::start(1).await;
    let manager = connect(&guarded.url()).await;
    // The primary has no password, so a replica that names one is refused.
    guarded.servers[1].config("masterauth", "none").await;
    guarded.primary().kill_clients("replica").await;
    let cut = || async { guarded.primary().info("replication").await.unwrap().contains("connected_slaves:0\r") };
    eventually("the replica to be cut off", cut).await;
    let call = Call::holding(&manager, "k", LONG).await;
    let fenced = manager.lock("fenced").fencing_token(true).acquire().await.unwrap();
    let token = fenced.lease().fencing_token().unwrap();
    guarded.fall(Fall::Killed).await;
    assert_eq!(call.ended().await.unwrap_err().lost(), LostReason::Gone);
    let another = connect(&guarded.url()).await;
    let fenced = another.lock("fenced").fencing_token(true).retry(100).acquire().await.unwrap();
    assert!(fenced.lease().fencing_token().unwrap() > token, "the token of a lost lock was given again");
}
