//! Slots on their way from one node to another, and nodes that come to a cluster.

use std::time::Duration;

use distlock::LockManager;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use redis::cmd;

use crate::calls::{Call, FOR_EVER, connect, redis_key, sees_renewals};
use crate::contenders::Contenders;
use harness::cluster::Cluster;
use harness::eventually::eventually;

/// All that belongs to a lock is in one slot, other keys have other names, and the library knows the slots as the server
/// does: nobody was sent elsewhere.
#[tokio::test]
async fn whatever_the_key_all_of_a_lock_is_in_one_slot() {
    let cluster = Cluster::start(3, 0).await;
    let manager = connect(&cluster.url()).await;
    let (mut runner, keys) = (TestRunner::deterministic(), "[{}:a%]{1,12}");
    let mut known = std::collections::BTreeSet::new();
    while known.len() < 200 {
        known.insert(keys.new_tree(&mut runner).unwrap().current());
    }
    let mut guards = Vec::new();
    for key in &known {
        guards.push(manager.lock(key).fencing_token(true).acquire().await.unwrap());
    }
    assert_eq!(cluster.dbsize().await, 400, "each has a lock and a last fencing token, and none shares them");
    for node in &cluster.nodes {
        let names = node.keys().await;
        for lock in names.iter().filter(|name| !name.ends_with("}:fence")) {
            let fence = format!("{lock}:fence");
            assert!(names.contains(&fence), "{fence} is not where its lock is");
            let slot = |name: &str| cmd("CLUSTER").arg("KEYSLOT").arg(name).clone();
            let slots: (u16, u16) = (node.query(&slot(lock)).await.unwrap(), node.query(&slot(&fence)).await.unwrap());
            assert_eq!(slots.0, slots.1, "{lock}");
        }
        let errors = node.info("errorstats").await.unwrap();
        assert!(!errors.contains("MOVED"), "{errors}");
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// A lock that is held, its slot half way to another node.
struct Halfway {
    cluster: Cluster,
    manager: LockManager,
    key: String,
    slot: u16,
}

impl Halfway {
    async fn new() -> Self {
        let cluster = Cluster::start(3, 0).await;
        let manager = connect(&cluster.url()).await;
        let key = cluster.key_at(0).await;
        let slot = cluster.slot(&key).await;
        Self { cluster, manager, key, slot }
    }

    async fn begin(&self) {
        self.cluster.begin_move(self.slot, &self.cluster.nodes[0], &self.cluster.nodes[1]).await;
    }

    async fn move_keys(&self) {
        self.cluster.move_keys(self.slot, &self.cluster.nodes[0], &self.cluster.nodes[1]).await;
    }

    async fn end(&self) {
        self.cluster.end_move(self.slot, &self.cluster.nodes[0], &self.cluster.nodes[1]).await;
    }

    /// Whether the lock is there. On the way, a node says of what it doesn't have where else to ask.
    async fn stands(&self, node: usize) -> bool {
        let exists = cmd("EXISTS").arg(redis_key(&self.key)).clone();
        self.cluster.nodes[node].query(&exists).await.unwrap_or(false)
    }

    async fn hold(&self) -> Call {
        Call::holding(&self.manager, &self.key, Duration::from_secs(3)).await
    }
}

#[tokio::test]
async fn a_lock_that_has_not_been_moved_yet_is_renewed_and_freed() {
    let halfway = Halfway::new().await;
    let call = halfway.hold().await;
    halfway.begin().await;
    sees_renewals(&halfway.cluster.nodes[0], &halfway.key, 2).await;
    assert!(halfway.manager.lock(&halfway.key).acquire().await.unwrap_err().is_busy());
    call.finished().await.unwrap();
    assert!(!halfway.stands(0).await && !halfway.stands(1).await);
}

#[tokio::test]
async fn a_lock_that_was_moved_before_its_slot_is_renewed_and_freed() {
    let halfway = Halfway::new().await;
    let call = halfway.hold().await;
    halfway.begin().await;
    halfway.move_keys().await;
    assert!(halfway.stands_at_the_other().await);
    let other = connect(&halfway.cluster.url()).await;
    assert!(other.lock(&halfway.key).acquire().await.unwrap_err().is_busy());
    let before = halfway.asking_pttl().await;
    eventually("a renewal there", || async { halfway.asking_pttl().await > before }).await;
    call.finished().await.unwrap();
    assert!(!halfway.stands_at_the_other().await);
    halfway.end().await;
    halfway.manager.lock(&halfway.key).acquire().await.unwrap().release().await.unwrap();
}

impl Halfway {
    /// What the other node says, which has to be asked in a special way for what is not quite its own yet.
    async fn asking_pttl(&self) -> i64 {
        let mut questions = redis::pipe();
        questions.cmd("ASKING").ignore().cmd("PTTL").arg(redis_key(&self.key));
        let client = redis::Client::open(self.cluster.nodes[1].url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        questions.query_async::<(i64,)>(&mut connection).await.unwrap().0
    }

    async fn stands_at_the_other(&self) -> bool {
        self.asking_pttl().await > 0
    }
}

/// Its first request meets a slot on its way: the key is free on both sides.
#[tokio::test]
async fn a_free_lock_is_taken_where_its_slot_goes() {
    let halfway = Halfway::new().await;
    halfway.begin().await;
    let call = halfway.hold().await;
    assert!(halfway.stands_at_the_other().await, "it was set where its slot was");
    let other = connect(&halfway.cluster.url()).await;
    assert!(other.lock(&halfway.key).acquire().await.unwrap_err().is_busy());
    halfway.end().await;
    sees_renewals(&halfway.cluster.nodes[1], &halfway.key, 2).await;
    call.finished().await.unwrap();
    assert!(!halfway.stands(1).await);
}

/// The scripts of waiters are about several keys, which a server takes only where all of them are. So they stand still while
/// a slot is on its way, and go on behind it. A release does not wait for that.
#[tokio::test]
async fn waiters_go_on_when_a_slot_has_come_to_its_end() {
    let halfway = Halfway::new().await;
    let call = halfway.hold().await;
    halfway.begin().await;
    let other = connect(&halfway.cluster.url()).await;
    let waiting = tokio::spawn(other.lock(&halfway.key).fencing_token(true).wait(FOR_EVER).acquire());
    let told = || async { halfway.cluster.nodes[0].info("errorstats").await.unwrap().contains("TRYAGAIN") };
    eventually("the waiter to be told to try again", told).await;
    call.finished().await.unwrap();
    assert!(!halfway.stands(0).await, "the release waited for the slot");
    halfway.end().await;
    let guard = waiting.await.unwrap().unwrap();
    assert!(halfway.stands(1).await);
    guard.release().await.unwrap();
}

/// A lock with a token has two keys, and several locks may have one in each of many slots.
#[tokio::test]
async fn what_needs_several_keys_waits_for_the_slot_as_long_as_it_may() {
    let halfway = Halfway::new().await;
    halfway.begin().await;
    let error = halfway.manager.lock(&halfway.key).fencing_token(true).acquire().await.unwrap_err();
    let text = error.to_string();
    assert!(error.is_transient() && text.contains("on its way from one node"), "{text}");
    let without = [halfway.key.clone(), halfway.cluster.key_at(2).await];
    halfway.manager.lock_all(without).acquire().await.unwrap().release().await.unwrap();
    let call = tokio::spawn(halfway.manager.lock(&halfway.key).fencing_token(true).retry(10).acquire());
    let told = || async { halfway.cluster.nodes[1].info("errorstats").await.unwrap().contains("TRYAGAIN") };
    eventually("the call to be told to try again", told).await;
    halfway.end().await;
    call.await.unwrap().unwrap().release().await.unwrap();
}

/// As some tools do it: the old owner is told first, and for a moment each of the two names the other.
#[tokio::test]
async fn two_nodes_that_name_each_other_are_asked_until_they_agree() {
    let halfway = Halfway::new().await;
    let (from, to) = (&halfway.cluster.nodes[0], &halfway.cluster.nodes[1]);
    let set = |id: String| cmd("CLUSTER").arg("SETSLOT").arg(halfway.slot).arg("NODE").arg(id).clone();
    let id: String = to.query(cmd("CLUSTER").arg("MYID")).await.unwrap();
    halfway.begin().await;
    from.query::<()>(&set(id.clone())).await.unwrap();
    let call = tokio::spawn(halfway.manager.lock(&halfway.key).acquire());
    let sent_away = || async { to.info("errorstats").await.unwrap().contains("MOVED") };
    eventually("the call to be sent to and fro", sent_away).await;
    to.query::<()>(&set(id)).await.unwrap();
    call.await.unwrap().unwrap().release().await.unwrap();
}

/// It has had a slot, has given it back, and has joined another cluster with higher epochs, as `redis-cli --cluster del-node`
/// and `add-node` do it. What it knows now has nothing to do with us.
#[tokio::test]
async fn a_node_that_has_gone_to_another_cluster_takes_nobody_along() {
    let (mut cluster, others) = (Cluster::start(3, 0).await, Cluster::start(3, 0).await);
    cluster.add().await;
    let manager = connect(&format!("redis-cluster://{}", cluster.nodes[0].address())).await;
    let (leaver, key) = (&cluster.nodes[3], cluster.key_at(0).await);
    let slot = cluster.slot(&key).await;
    // It is to stay a primary, though it has no slots in the end.
    leaver.config("cluster-allow-replica-migration", "no").await;
    cluster.move_slot(slot, &cluster.nodes[0], leaver).await;
    manager.lock(&key).acquire().await.unwrap().release().await.unwrap();
    cluster.move_slot(slot, leaver, &cluster.nodes[0]).await;
    manager.lock(&key).acquire().await.unwrap().release().await.unwrap();
    let id: String = leaver.query(cmd("CLUSTER").arg("MYID")).await.unwrap();
    for node in &cluster.nodes[..3] {
        node.query::<()>(cmd("CLUSTER").arg("FORGET").arg(&id)).await.unwrap();
    }
    leaver.query::<()>(cmd("CLUSTER").arg("RESET").arg("HARD")).await.unwrap();
    for node in &others.nodes {
        // Each makes an epoch that is higher than all others', unless the node has the highest already.
        for _ in 0..20 {
            node.query::<redis::Value>(cmd("CLUSTER").arg("BUMPEPOCH")).await.unwrap();
        }
    }
    others.meet(leaver).await;
    let joined = || async {
        leaver.query::<String>(cmd("CLUSTER").arg("INFO")).await.unwrap().contains("cluster_known_nodes:4\r")
    };
    eventually("the node to join the others", joined).await;
    // Twice as long as nodes are asked again.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let keys = [cluster.key_at(0).await, cluster.key_at(1).await, cluster.key_at(2).await];
    let guard = manager.lock_all(&keys).acquire().await.unwrap();
    for (home, key) in keys.iter().enumerate() {
        assert!(cluster.nodes[home].exists(&redis_key(key)).await, "a lock went along");
    }
    guard.release().await.unwrap();
}

/// The keys move from node to node under 200 calls a second.
#[tokio::test]
async fn slots_are_moved_under_two_hundred_calls_a_second() {
    let cluster = Cluster::start(3, 0).await;
    let keys = cluster.keys_at(0, 10).await;
    let managers = [connect(&cluster.url()).await, connect(&cluster.url()).await];
    let end = std::time::Instant::now() + Duration::from_secs(6);
    let mut callers = Vec::new();
    for n in 0..20 {
        let (manager, key) = (managers[n % 2].clone(), keys[n % 10].clone());
        callers.push(tokio::spawn(async move {
            let mut calls = 0;
            while std::time::Instant::now() < end {
                // Ten calls a second and caller.
                let pace = tokio::time::sleep(Duration::from_millis(100));
                let guard = manager.lock(&key).fencing_token(n % 4 == 0).wait(FOR_EVER).acquire().await;
                guard.unwrap_or_else(|why| panic!("call {calls} for {key}: {why}")).release().await.unwrap();
                calls += 1;
                pace.await;
            }
            calls
        }));
    }
    let mut moves = 0;
    while std::time::Instant::now() < end {
        for (from, to) in [(0, 1), (1, 2), (2, 0)] {
            for key in &keys {
                let slot = cluster.slot(key).await;
                cluster.move_slot(slot, &cluster.nodes[from], &cluster.nodes[to]).await;
                moves += 1;
            }
        }
    }
    let mut calls = 0;
    for caller in callers {
        calls += caller.await.unwrap();
    }
    println!("{calls} calls while slots were moved {moves} times");
    assert!(calls > 200 && moves > 20, "{calls} calls and {moves} moves prove nothing");
}

/// Two holders at once would be seen in the log.
#[tokio::test]
async fn nobody_gets_a_lock_twice_while_its_slot_is_moved() {
    let cluster = Cluster::start(3, 0).await;
    let key = cluster.key_at(0).await;
    let slot = cluster.slot(&key).await;
    let mut contenders = Contenders::for_key(&key, Duration::from_secs(2));
    for waits in [true, false, true, false] {
        contenders.add(connect(&cluster.url()).await, waits);
    }
    contenders.go_on(1).await;
    for round in 0..6 {
        let (from, to) = (&cluster.nodes[round % 3], &cluster.nodes[(round + 1) % 3]);
        cluster.begin_move(slot, from, to).await;
        // In the middle for a while, so that all kinds of requests meet it.
        tokio::time::sleep(Duration::from_millis(200)).await;
        cluster.move_keys(slot, from, to).await;
        tokio::time::sleep(Duration::from_millis(200)).await; // Likewise.
        cluster.end_move(slot, from, to).await;
        contenders.go_on(3).await;
    }
    contenders.no_two_held_at_once();
}

#[tokio::test]
async fn a_node_that_is_added_is_found() {
    let mut cluster = Cluster::start(3, 0).await;
    let manager = connect(&cluster.url()).await;
    let key = cluster.key_at(0).await;
    let call = Call::holding(&manager, &key, Duration::from_secs(2)).await;
    cluster.add().await;
    let (slot, added) = (cluster.slot(&key).await, &cluster.nodes[3]);
    cluster.move_slot(slot, &cluster.nodes[0], added).await;
    sees_renewals(added, &key, 2).await;
    call.finished().await.unwrap();
    let guard = manager.lock(&key).acquire().await.unwrap();
    assert!(added.exists(&redis_key(&key)).await);
    guard.release().await.unwrap();
}
