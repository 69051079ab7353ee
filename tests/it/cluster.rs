//! Locks on a cluster: each where its slot is, wherever that goes.

use std::time::Duration;

use distlock::{LockError, LockManager};
use redis::cmd;

use crate::calls::{Call, FOR_EVER, brisk, connect, redis_key, sees_renewals};
use harness::cluster::Cluster;
use harness::eventually::eventually;
use harness::server::{Server, free_port};

#[tokio::test]
async fn each_lock_is_taken_renewed_and_freed_where_its_slot_is() {
    let cluster = Cluster::start(3, 0).await;
    for query in ["", "?protocol=resp2"] {
        let manager = connect(&format!("{}{query}", cluster.url())).await;
        for home in 0..3 {
            let key = cluster.key_at(home).await;
            let call = Call::holding(&manager, &key, Duration::from_secs(1)).await;
            sees_renewals(&cluster.nodes[home], &key, 2).await;
            call.finished().await.unwrap();
            assert_eq!(cluster.dbsize().await, 0);
        }
    }
}

/// One node of which the others are found.
#[tokio::test]
async fn one_node_is_enough_to_find_the_others() {
    let cluster = Cluster::start(3, 1).await;
    for seed in [0, 3] {
        let manager = connect(&format!("redis-cluster://{}", cluster.nodes[seed].address())).await;
        for home in 0..3 {
            let key = cluster.key_at(home).await;
            let guard = manager.lock(&key).acquire().await.unwrap();
            assert!(cluster.nodes[home].exists(&redis_key(&key)).await);
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_lock_has_all_that_it_has_elsewhere() {
    let cluster = Cluster::start(3, 0).await;
    let (first, second) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    for home in 0..3 {
        let key = cluster.key_at(home).await;
        let held = first.lock(&key).fencing_token(true).acquire().await.unwrap();
        let token = held.lease().fencing_token().unwrap();
        let refused = second.lock(&key).acquire().await.unwrap_err();
        assert!(matches!(&refused, LockError::Busy { .. }), "{refused}");
        let waiting = tokio::spawn(second.lock(&key).fencing_token(true).wait(FOR_EVER).acquire());
        let line = format!("{}:line", redis_key(&key));
        eventually("the second to stand in line", || async { cluster.nodes[home].exists(&line).await }).await;
        held.release().await.unwrap();
        let passed = waiting.await.unwrap().unwrap();
        assert!(passed.lease().fencing_token().unwrap() > token);
        passed.release().await.unwrap();
        let retried = first.lock(&key).retry(10).backoff(brisk()).acquire().await.unwrap();
        drop(retried);
        eventually("the dropped guard's lock to be freed", || async {
            !cluster.nodes[home].exists(&redis_key(&key)).await
        })
        .await;
    }
}

/// Two keys at each of three nodes.
async fn spread(cluster: &Cluster) -> Vec<String> {
    let mut keys = Vec::new();
    for home in 0..3 {
        keys.extend(cluster.keys_at(home, 2).await);
    }
    keys
}

#[tokio::test]
async fn several_locks_over_slots_are_taken_all_or_none() {
    let cluster = Cluster::start(3, 0).await;
    let (first, second) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let keys = spread(&cluster).await;
    for key in &keys {
        let held = first.lock(key).acquire().await.unwrap();
        let refused = second.lock_all(&keys).acquire().await.unwrap_err();
        assert!(matches!(&refused, LockError::Busy { key: busy, .. } if busy == key), "{refused}");
        assert_eq!(cluster.dbsize().await, 1, "something was left of the locks that were free");
        held.release().await.unwrap();
    }
    let all = second.lock_all(&keys).acquire().await.unwrap();
    assert_eq!(cluster.dbsize().await, 6);
    let waiting = tokio::spawn(first.lock_all(&keys).wait(FOR_EVER).acquire());
    all.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    let left: Vec<_> = keys_everywhere(&cluster).await.into_iter().filter(|key| !key.ends_with(":line")).collect();
    assert!(left.is_empty(), "{left:?}");
}

async fn keys_everywhere(cluster: &Cluster) -> Vec<String> {
    let mut keys = Vec::new();
    for node in &cluster.nodes {
        keys.extend(node.keys().await);
    }
    keys
}

/// Of single locks before, of all together, and of single locks after that.
#[tokio::test]
async fn the_fencing_tokens_of_locks_over_slots_are_above_those_of_each() {
    let cluster = Cluster::start(3, 0).await;
    let manager = connect(&cluster.url()).await;
    let keys = spread(&cluster).await;
    let mut last = 0;
    for key in &keys {
        // As if the clock of this key's node were ahead.
        let ahead = last.max(4_000_000_000_000_000) + 1000;
        let node = &cluster.nodes[cluster.home(key).await];
        node.set(&format!("{}:fence", redis_key(key)), &ahead.to_string()).await;
        last = ahead;
    }
    for _ in 0..3 {
        let all = manager.lock_all(&keys).fencing_token(true).acquire().await.unwrap();
        let token = all.lease().fencing_token().unwrap().get();
        assert!(token > last, "{token} is not above {last}");
        all.release().await.unwrap();
        last = token;
        for key in &keys {
            let one = manager.lock(key).fencing_token(true).acquire().await.unwrap();
            let own = one.lease().fencing_token().unwrap().get();
            assert!(own > token, "{own} of {key} is not above {token}");
            last = last.max(own);
            one.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_cluster_without_slots_or_nodes_is_told_of() {
    let cluster = Cluster::start(3, 0).await;
    cluster.nodes[2].kill();
    let url = format!("redis-cluster://{}", cluster.nodes[2].address());
    let error = LockManager::connect(&url).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains(&cluster.nodes[2].address()), "{error}");
    let plain = Server::start().await;
    let error = LockManager::connect(&format!("redis-cluster://{}", plain.address())).await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("cluster support disabled"), "{error}");
}

/// Where somebody waits, its process listens on the node that has the lock and on no other, wherever the slot goes.
#[tokio::test]
async fn waiters_listen_where_the_lock_is() {
    let cluster = Cluster::start(3, 0).await;
    let (holder, waiter) = (connect(&cluster.url()).await, connect(&format!("{}?protocol=resp2", cluster.url())).await);
    let (key, slot) = (cluster.key_at(0).await, cluster.slot(&cluster.key_at(0).await).await);
    let mut held = holder.lock(&key).acquire().await.unwrap();
    for (home, next) in [(0, 1), (1, 2)] {
        let waiting = tokio::spawn(waiter.lock(&key).wait(FOR_EVER).acquire());
        eventually("the waiter to listen", || async { channels(&cluster, home).await.len() == 1 }).await;
        for other in [0, 1, 2] {
            let expected = usize::from(other == home);
            assert_eq!(channels(&cluster, other).await.len(), expected, "node {other} of {home}");
        }
        let before = cluster.nodes[home].calls().await.get("spublish").copied().unwrap_or(0);
        held.release().await.unwrap();
        let got = waiting.await.unwrap().unwrap();
        let calls = cluster.nodes[home].calls().await;
        assert!(calls.get("spublish").is_some_and(|calls| *calls > before), "{calls:?}");
        assert_eq!(calls.get("publish"), None, "told to nodes that have nothing to do with it");
        got.release().await.unwrap();
        held = holder.lock(&key).acquire().await.unwrap();
        cluster.move_slot(slot, &cluster.nodes[home], &cluster.nodes[next]).await;
        eventually("the waiter to listen elsewhere", || async { channels(&cluster, home).await.is_empty() }).await;
    }
    held.release().await.unwrap();
}

async fn channels(cluster: &Cluster, node: usize) -> Vec<String> {
    cluster.nodes[node].query(cmd("PUBSUB").arg("SHARDCHANNELS")).await.unwrap()
}

/// Behind a translation of addresses, say, where the address that a node has cannot be reached.
#[tokio::test]
async fn nodes_are_reached_under_the_names_that_they_prefer() {
    let options =
        Server::options().directive("cluster-enabled", "yes").directive("cluster-port", &free_port().to_string());
    let options =
        options.directive("cluster-announce-ip", "203.0.113.9").directive("cluster-announce-hostname", "localhost");
    let node = options.directive("cluster-preferred-endpoint-type", "hostname").start().await;
    node.query::<()>(cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(0).arg(16_383)).await.unwrap();
    let whole =
        || async { node.query::<String>(cmd("CLUSTER").arg("INFO")).await.unwrap().contains("cluster_state:ok\r") };
    eventually("the cluster of one node", whole).await;
    let manager = connect(&format!("redis-cluster://{}", node.address())).await;
    manager.lock("k").wait(FOR_EVER).acquire().await.unwrap().release().await.unwrap();
}
