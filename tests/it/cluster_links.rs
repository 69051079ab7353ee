//! The links between a client and the nodes of a cluster that itself is well.

use std::time::Duration;

use distlock::LostReason;
use redis::cmd;

use crate::calls::{Call, FOR_EVER, brisk, connect, redis_key};
use harness::cluster::Cluster;
use harness::eventually::eventually;
use harness::proxy::{Proxy, Trip, Way};

/// Three nodes that tell everybody the address of a proxy in front of them. Among themselves they talk past these.
struct Linked {
    cluster: Cluster,
    links: Vec<Proxy>,
}

impl Linked {
    async fn start() -> Self {
        let (cluster, mut links) = (Cluster::start(3, 0).await, Vec::new());
        for node in &cluster.nodes {
            let link = Proxy::start(node).await;
            node.config("cluster-announce-port", &port(&link)).await;
            links.push(link);
        }
        for node in &cluster.nodes {
            let told = || async {
                let all: String = node.query(cmd("CLUSTER").arg("NODES")).await.unwrap();
                links.iter().all(|link| all.contains(&format!(":{}@", port(link))))
            };
            eventually("a node to know the others by their proxies", told).await;
        }
        Self { cluster, links }
    }

    fn url(&self) -> String {
        self.links[1].url().replace("redis://", "redis-cluster://")
    }
}

fn port(link: &Proxy) -> String {
    link.url().rsplit_once(':').unwrap().1.to_owned()
}

#[tokio::test]
async fn a_node_in_a_black_hole_costs_its_own_locks_alone() {
    let linked = Linked::start().await;
    let manager = connect(&linked.url()).await;
    let lease = Duration::from_secs(2);
    let (mut calls, mut keys) = (Vec::new(), Vec::new());
    for home in 0..3 {
        let key = linked.cluster.key_at(home).await;
        calls.push(Call::holding(&manager, &key, lease).await);
        keys.push(key);
    }
    linked.links[0].blackhole();
    // Two leases long.
    tokio::time::sleep(lease * 2).await;
    let running: Vec<bool> = calls.iter().map(|call| call.body.is_running()).collect();
    assert_eq!(running, [false, true, true]);
    manager.lock("elsewhere").retry(3).acquire().await.unwrap().release().await.unwrap();
    linked.links[0].pass();
    assert_eq!(calls.remove(0).ended().await.unwrap_err().lost(), LostReason::Expired);
    manager.lock(&keys[0]).retry(1000).backoff(brisk()).acquire().await.unwrap().release().await.unwrap();
    for call in calls {
        call.finished().await.unwrap();
    }
}

#[tokio::test]
async fn a_second_try_recognises_the_lock_that_the_first_one_took_without_hearing_of_it() {
    let linked = Linked::start().await;
    let manager = connect(&linked.url()).await;
    for home in 0..3 {
        let (key, link) = (linked.cluster.key_at(home).await, &linked.links[home]);
        link.arm(&redis_key(&key), 0, Trip::LoseReply(Duration::ZERO));
        let guard = manager.lock(&key).ttl(FOR_EVER).retry(1).backoff(brisk()).acquire().await;
        let guard = guard.expect("our own token was taken for another's");
        link.tripped(1).await;
        guard.release().await.unwrap();
        assert!(!linked.cluster.nodes[home].exists(&redis_key(&key)).await);
    }
}

/// Of several locks, one was taken without an answer.
#[tokio::test]
async fn several_locks_of_which_one_had_no_answer_are_all_freed() {
    let linked = Linked::start().await;
    let manager = connect(&linked.url()).await;
    let mut rounds = vec![Vec::new(); 3];
    for home in 0..3 {
        for (round, key) in linked.cluster.keys_at(home, 3).await.into_iter().enumerate() {
            rounds[round].push(key);
        }
    }
    // Others in each round: what an attempt may have left is looked for long after.
    for (home, keys) in rounds.into_iter().enumerate() {
        let link = &linked.links[home];
        link.arm(&redis_key(&keys[home]), 0, Trip::LoseReply(Duration::from_secs(2)));
        let error = manager.lock_all(&keys).ttl(FOR_EVER).acquire().await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        eventually("all to be freed", || async { linked.cluster.dbsize().await == 0 }).await;
    }
}

/// Dropped at any point, with a node that takes its time.
#[tokio::test]
async fn what_is_dropped_at_any_point_is_freed() {
    let linked = Linked::start().await;
    let manager = connect(&linked.url()).await;
    let mut keys = Vec::new();
    for (home, link) in linked.links.iter().enumerate() {
        keys.push(linked.cluster.key_at(home).await);
        link.delay(Way::Replies, Duration::from_millis(10));
    }
    for round in 0..30 {
        // From before the first request to after the last answer.
        let time = Duration::from_millis(round * 3);
        let _dropped = tokio::time::timeout(time, manager.lock_all(&keys).ttl(FOR_EVER).acquire()).await.is_err();
        let waits = manager.lock(&keys[0]).ttl(FOR_EVER).wait(FOR_EVER).acquire();
        let _dropped = tokio::time::timeout(time, waits).await.is_err();
    }
    eventually("all to be freed", || async { linked.cluster.dbsize().await == 0 }).await;
}

/// What an attempt has taken is given back, and that is late. The next attempt has got the same lock by then.
#[tokio::test]
async fn what_a_failed_attempt_gives_back_late_is_not_what_the_next_one_has() {
    let linked = Linked::start().await;
    let (holder, caller, other) =
        (connect(&linked.url()).await, connect(&linked.url()).await, connect(&linked.url()).await);
    let (free, busy) = (linked.cluster.key_at(0).await, linked.cluster.key_at(1).await);
    // From now on the node knows the script that releases.
    other.lock(&free).acquire().await.unwrap().release().await.unwrap();
    let held = holder.lock(&busy).acquire().await.unwrap();
    // Longer than a command may take, so that the next attempt goes over another connection.
    linked.links[0].arm(&format!("{}:line", redis_key(&free)), 0, Trip::Late(Duration::from_secs(4)));
    let keys = [free.clone(), busy];
    let call = tokio::spawn(caller.lock_all(keys).ttl(FOR_EVER).retry(1000).backoff(brisk()).acquire());
    linked.links[0].tripped(1).await;
    held.release().await.unwrap();
    let guard = call.await.unwrap().unwrap();
    // Until what was late has arrived, and a little more.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(other.lock(&free).acquire().await.unwrap_err().is_busy(), "two hold it");
    guard.release().await.unwrap();
    eventually("all to be freed", || async { linked.cluster.dbsize().await == 0 }).await;
}
