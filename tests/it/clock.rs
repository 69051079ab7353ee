//! Clocks: wall clocks that jump, and processes for which time stands still.

use std::time::Duration;

use crate::calls::{FOR_EVER, Failure, brisk, connect, redis_key, sees_renewals};
use harness::eventually::{eventually, soon};
use harness::faketime::FakeClock;
use harness::holders::{Log, NotingPolls, Until, assert_no_overlap};
use harness::inspect::query_at;
use harness::process::{Child, emit};
use harness::proxy::{Proxy, Way};
use harness::server::Server;

/// A role: takes a key however long that takes, and holds it until the key `finish` appears on the server.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn hold_until_told(arguments: &[&str]) {
    let [url, key] = arguments[..] else { panic!("{arguments:?}") };
    let manager = connect(url).await;
    emit("waits", "");
    let guard = manager.lock(key).ttl(Duration::from_millis(1_500)).retry(u32::MAX).acquire().await.unwrap();
    emit("holds", "");
    eventually("`finish`", async || {
        let remaining = guard.lease().remaining();
        assert!(remaining <= Duration::from_millis(1_500), "{remaining:?} remain of a lease of 1.5 s");
        guard.lease().ensure_held().unwrap();
        query_at(url.to_owned(), redis::cmd("EXISTS").arg("finish").clone()).await.unwrap()
    })
    .await;
    guard.release().await.unwrap();
    emit("done", "");
}

#[tokio::test]
async fn a_wall_clock_that_jumps_changes_nothing() {
    let server = Server::start().await;
    let clock = FakeClock::new();
    let environment = clock.environment();
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    server.set_for(&redis_key("k"), "another/holder", FOR_EVER).await;
    let child = Child::spawn_with("clock: hold", &[&server.url(), "k"], &environment).await;
    child.event("waits").await;
    let monitor = server.monitor().await;
    for hour in [3_600, -3_600, 0] {
        clock.jump_to(hour);
        let before = monitor.count(&[&redis_key("k")]).await;
        eventually("more tries after the jump", async || monitor.count(&[&redis_key("k")]).await > before + 1).await;
    }
    clock.jump_to(-3_600);
    server.del(&redis_key("k")).await;
    child.event("holds").await;
    for hour in [3_600, -3_600, 0] {
        clock.jump_to(hour);
        sees_renewals(&server, "k", 2).await;
    }
    clock.jump_to(3_600);
    server.set("finish", "").await;
    child.event("done").await;
    assert!(!server.exists(&redis_key("k")).await);
}

/// Keys that a process holds when it is stopped, in each of the rounds: 200 in all.
const KEYS: usize = 20;
const ROUNDS: usize = 10;

/// A role: holds a key of its own in each of many tasks, and tells how each of them ended.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn hold_many(arguments: &[&str]) {
    let [url, log, round] = arguments[..] else { panic!("{arguments:?}") };
    let manager = connect(url).await;
    let tasks = tokio::task::LocalSet::new();
    for number in 0..KEYS {
        let (manager, log, key) = (manager.clone(), Log::open(log), format!("{round}/{number}"));
        tasks.spawn_local(async move {
            let body = async {
                let holder = log.start(&key, &uuid::Uuid::new_v4().to_string());
                emit("holds", &key);
                loop {
                    // The pace of the body's steps; it never ends by itself.
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    holder.step();
                }
            };
            let call = manager.lock(&key).ttl(Duration::from_millis(700)).run::<(), Failure, _>(body);
            let outcome = NotingPolls::of(call).await;
            emit("lost", format_args!("{:?}", outcome.unwrap_err().lost()));
        });
    }
    tasks.await;
}

#[tokio::test]
async fn a_process_that_was_stopped_for_longer_than_its_lease_does_not_take_another_step() {
    let server = Server::start().await;
    let successor = connect(&server.url()).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("holders");
    for round in 0..ROUNDS {
        let arguments = [&server.url(), path.to_str().unwrap(), &round.to_string()];
        let child = Child::spawn("clock: hold many", &arguments).await;
        for _ in 0..KEYS {
            child.event("holds").await;
        }
        // Some point of the bodies and of the period of renewals, another one each round.
        tokio::time::sleep(Duration::from_millis(37) * u32::try_from(round).unwrap()).await;
        child.stop();
        let mut successors = Vec::new();
        for number in 0..KEYS {
            let key = format!("{round}/{number}");
            let request = successor.lock(&key).retry(u32::MAX).backoff(brisk());
            let guard = soon("the stopped process's lock", request.acquire()).await.unwrap();
            successors.push((Log::open(&path).start(&key, &uuid::Uuid::new_v4().to_string()), guard));
        }
        child.cont();
        for _ in 0..KEYS {
            let reason = child.event("lost").await;
            assert!(["Expired", "Gone"].contains(&reason.as_str()), "{reason}");
        }
        for (holder, guard) in successors {
            holder.step();
            guard.release().await.expect("the stopped process took or freed the lock of its successor");
        }
        child.wait().await;
    }
    let holds = assert_no_overlap(&path, Until::LastStep);
    assert_eq!(holds.len(), 2 * KEYS * ROUNDS, "each key had a holder and a successor");
}

/// A role: tries several keys once, when told to, and tells what it believes to have afterwards.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn try_once(arguments: &[&str]) {
    let [url] = arguments[..] else { panic!("{arguments:?}") };
    let manager = connect(url).await;
    emit("connected", "");
    // The test holds back the replies before it answers.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let tasks = tokio::task::LocalSet::new();
    for number in 0..KEYS {
        let request = manager.lock(number.to_string()).ttl(Duration::from_secs(3));
        tasks.spawn_local(async move {
            let granted = request.acquire().await.is_ok();
            emit("outcome", if granted { "granted" } else { "refused" });
        });
    }
    tasks.await;
}

#[tokio::test]
async fn a_grant_that_a_stopped_process_reads_after_its_lease_is_none() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let child = Child::spawn("clock: try once", &[&link.url()]).await;
    child.event("connected").await;
    link.hold(Way::Replies);
    child.say("go");
    eventually("the tries at the server", async || server.dbsize().await == KEYS as u64).await;
    child.stop();
    link.pass();
    eventually("the granted leases to end", async || server.dbsize().await == 0).await;
    child.cont();
    for _ in 0..KEYS {
        assert_eq!(child.event("outcome").await, "refused", "a lease that was over already was granted");
    }
}
