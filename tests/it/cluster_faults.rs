//! Nodes of a cluster that die, freeze and come back.

use std::time::{Duration, Instant};

use distlock::{LockManager, LostReason};
use redis::cmd;

use crate::calls::{Call, FOR_EVER, brisk, connect, redis_key, sees_renewals};
use crate::contenders::Contenders;
use harness::cluster::Cluster;
use harness::eventually::eventually;
use harness::server::Server;

/// Longer by far than a failover takes here: about five seconds.
const LONG: Duration = Duration::from_secs(30);
/// Shorter than any failover by a fall: nodes wait for two seconds at first.
const SHORT: Duration = Duration::from_millis(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fall {
    Killed,
    Frozen,
    Commanded,
}

async fn fall(cluster: &Cluster, fall: Fall) -> &Server {
    cluster.be_impatient().await;
    match fall {
        Fall::Killed => cluster.nodes[0].kill(),
        Fall::Frozen => cluster.nodes[0].freeze(),
        Fall::Commanded => cluster.nodes[3].query::<()>(cmd("CLUSTER").arg("FAILOVER")).await.unwrap(),
    }
    cluster.successor(0).await
}

/// Six nodes. What belongs to one of them must not stand still for another.
async fn six() -> Cluster {
    Cluster::start_with(3, 3, Server::options().directive("cluster-require-full-coverage", "no")).await
}

async fn a_long_lease_goes_on(how: Fall) {
    let cluster = six().await;
    let key = cluster.key_at(0).await;
    let manager = connect(&cluster.url()).await;
    let mut contenders = Contenders::for_key(&key, LONG);
    let call = contenders.hold(&manager).await;
    for waits in [true, false, true, false] {
        contenders.add(connect(&cluster.url()).await, waits);
    }
    // On another node, with a lease that would not survive any failover.
    let elsewhere = cluster.key_at(1).await;
    let neighbour = Call::holding(&manager, &elsewhere, SHORT * 3).await;
    cluster.replicated(0).await;
    let other = cluster.keys_at(0, 2).await.pop().unwrap();
    let begin = Instant::now();
    let successor = fall(&cluster, how).await;
    let promoted = begin.elapsed();
    manager.lock(&other).retry(1000).backoff(brisk()).acquire().await.unwrap().release().await.unwrap();
    println!("{how:?}: another primary after {promoted:?}, a lock there after {:?}", begin.elapsed());
    sees_renewals(successor, &key, 1).await;
    assert!(call.body.is_running(), "the lease has not ended, and yet the body has");
    assert_eq!(contenders.times(), 1, "somebody else got the lock");
    if how == Fall::Frozen {
        cluster.nodes[0].thaw();
    }
    call.body.finish();
    contenders.go_on(20).await;
    contenders.no_two_held_at_once();
    call.ended().await.unwrap();
    neighbour.finished().await.unwrap();
}

#[tokio::test]
async fn a_long_lease_goes_on_when_its_node_is_killed() {
    a_long_lease_goes_on(Fall::Killed).await;
}

#[tokio::test]
async fn a_long_lease_goes_on_when_its_node_freezes() {
    a_long_lease_goes_on(Fall::Frozen).await;
}

#[tokio::test]
async fn a_long_lease_goes_on_when_a_failover_is_commanded() {
    a_long_lease_goes_on(Fall::Commanded).await;
}

async fn a_short_lease_is_lost_by_its_deadline(how: Fall) {
    let cluster = six().await;
    let key = cluster.key_at(0).await;
    let manager = connect(&cluster.url()).await;
    let mut contenders = Contenders::for_key(&key, SHORT);
    let call = contenders.hold(&manager).await;
    for waits in [true, false] {
        contenders.add(connect(&cluster.url()).await, waits);
    }
    cluster.replicated(0).await;
    fall(&cluster, how).await;
    assert!(!call.body.is_running(), "the lease ended before there was another primary, and the body goes on");
    contenders.go_on(5).await;
    contenders.no_two_held_at_once();
    assert_eq!(call.ended().await.unwrap_err().lost(), LostReason::Expired);
}

#[tokio::test]
async fn a_short_lease_is_lost_by_its_deadline_when_its_node_is_killed() {
    a_short_lease_is_lost_by_its_deadline(Fall::Killed).await;
}

#[tokio::test]
async fn a_short_lease_is_lost_by_its_deadline_when_its_node_freezes() {
    a_short_lease_is_lost_by_its_deadline(Fall::Frozen).await;
}

/// Nothing is asked of the manager while the node is away: its connection is as good as before, to all appearances.
#[tokio::test]
async fn a_node_that_returns_from_a_freeze_is_not_written_to() {
    let cluster = six().await;
    let key = cluster.key_at(0).await;
    let manager = connect(&cluster.url()).await;
    manager.lock(&key).acquire().await.unwrap().release().await.unwrap();
    let successor = fall(&cluster, Fall::Frozen).await;
    // The manager asks the nodes every second; twice that is past it.
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.nodes[0].thaw();
    for _ in 0..20 {
        let guard = manager.lock(&key).acquire().await.unwrap();
        assert!(successor.exists(&redis_key(&key)).await);
        guard.release().await.unwrap();
    }
    // Soon it is a replica, which would have sent us away.
    let errors = cluster.nodes[0].info("errorstats").await.unwrap();
    assert!(!errors.contains("MOVED"), "{errors}");
}

/// A node without a replica. Its own locks are lost by their deadline, those of the others never stand still.
#[tokio::test]
async fn one_node_that_freezes_delays_nobody_elses_locks() {
    const LEASE: Duration = Duration::from_secs(2);
    let cluster = Cluster::start_with(3, 0, Server::options().directive("cluster-require-full-coverage", "no")).await;
    let manager = connect(&cluster.url()).await;
    let (mut calls, free) = (Vec::new(), cluster.keys_at(1, 11).await.pop().unwrap());
    for home in 0..3 {
        for key in cluster.keys_at(home, 10).await {
            calls.push((home, Call::holding(&manager, &key, LEASE).await));
        }
    }
    cluster.nodes[0].freeze();
    // Three leases long.
    tokio::time::sleep(LEASE * 3).await;
    for (home, call) in &calls {
        assert_eq!(call.body.is_running(), *home != 0, "a lock of node {home}");
    }
    manager.lock(&free).acquire().await.unwrap().release().await.unwrap();
    let other = connect(&cluster.url()).await;
    other.lock(&free).acquire().await.unwrap().release().await.unwrap();
    cluster.nodes[0].thaw();
    for (home, call) in calls {
        call.body.finish();
        let outcome = call.ended().await;
        assert_eq!(outcome.is_ok(), home != 0, "a lock of node {home}: {outcome:?}");
    }
    let key = cluster.key_at(0).await;
    manager.lock(&key).retry(100).backoff(brisk()).acquire().await.unwrap().release().await.unwrap();
    let left = || async { cluster.dbsize().await == 0 };
    eventually("all to be freed", left).await;
}

/// Where a node is missing, and the others are told to do nothing without it.
#[tokio::test]
async fn a_cluster_that_is_down_is_told_of_and_recovers() {
    let cluster = Cluster::start(3, 0).await;
    let manager = connect(&cluster.url()).await;
    let key = cluster.key_at(1).await;
    cluster.be_impatient().await;
    cluster.nodes[0].kill();
    let told = || async {
        let refused = manager.lock(&key).acquire().await.err();
        refused.is_some_and(|error| error.is_transient() && error.to_string().contains("CLUSTERDOWN"))
    };
    eventually("the cluster to be told to be down", told).await;
    cluster.nodes[0].restart().await;
    manager.lock(&key).wait(FOR_EVER).acquire().await.unwrap().release().await.unwrap();
    let key = cluster.key_at(0).await;
    manager.lock(&key).wait(FOR_EVER).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn scripts_that_nodes_forget_are_sent_again() {
    let cluster = Cluster::start(3, 0).await;
    let manager = connect(&cluster.url()).await;
    let keys = [cluster.key_at(0).await, cluster.key_at(1).await, cluster.key_at(2).await];
    for _ in 0..30 {
        for node in &cluster.nodes {
            node.query::<()>(cmd("SCRIPT").arg("FLUSH")).await.unwrap();
        }
        for key in &keys {
            manager.lock(key).fencing_token(true).wait(FOR_EVER).acquire().await.unwrap().release().await.unwrap();
        }
        manager.lock_all(&keys).fencing_token(true).acquire().await.unwrap().release().await.unwrap();
    }
}

/// The replica has not heard of the last locks, nor of their tokens.
#[tokio::test]
async fn a_lock_that_was_not_replicated_is_lost_and_its_fencing_token_outdone() {
    let cluster = six().await;
    let (lost, fenced) = (cluster.keys_at(0, 2).await, connect(&cluster.url()).await);
    let [lost, outdone] = lost.as_slice() else { unreachable!() };
    // It takes commands of its primary no more, and does not find out that it doesn't.
    cluster.nodes[3].config("masterauth", "none").await;
    cluster.nodes[0].kill_clients("replica").await;
    let cut = || async { cluster.nodes[0].info("replication").await.unwrap().contains("connected_slaves:0\r") };
    eventually("the replica to be cut off", cut).await;
    let manager: LockManager = connect(&cluster.url()).await;
    let call = Call::holding(&manager, lost, LONG).await;
    let guard = fenced.lock(outdone).fencing_token(true).acquire().await.unwrap();
    let token = guard.lease().fencing_token().unwrap();
    fall(&cluster, Fall::Killed).await;
    assert_eq!(call.ended().await.unwrap_err().lost(), LostReason::Gone);
    let other = connect(&cluster.url()).await;
    let again = other.lock(outdone).fencing_token(true).retry(100).acquire().await.unwrap();
    assert!(again.lease().fencing_token().unwrap() > token, "the token of a lost lock was given again");
}

/// Two locks stand already and the third comes. What starts their leases anew meets a node that is silent for a moment.
#[tokio::test]
async fn who_waits_for_several_keeps_what_is_there_through_a_fault_elsewhere() {
    let cluster = Cluster::start(3, 0).await;
    let (holder, caller, rival) =
        (connect(&cluster.url()).await, connect(&cluster.url()).await, connect(&cluster.url()).await);
    let mut keys = Vec::new();
    // One on each node, in the order in which they are taken.
    for (home, name) in ["a", "b", "c"].into_iter().enumerate() {
        let mut names = (0..).map(|n| format!("{name}{n}"));
        loop {
            let key = names.next().unwrap();
            if cluster.home(&key).await == home {
                keys.push(key);
                break;
            }
        }
    }
    let held = holder.lock(&keys[2]).acquire().await.unwrap();
    let call = tokio::spawn(caller.lock_all(&keys).wait(LONG).acquire());
    let stands = async |home: usize, name: String| cluster.nodes[home].exists(&name).await;
    eventually("two to be taken", || stands(1, redis_key(&keys[1]))).await;
    let rival = tokio::spawn(rival.lock(&keys[0]).wait(LONG).acquire());
    eventually("the rival to stand in line", || stands(0, format!("{}:line", redis_key(&keys[0])))).await;
    eventually("the caller to stand in line", || stands(2, format!("{}:line", redis_key(&keys[2])))).await;
    cluster.nodes[1].freeze();
    held.release().await.unwrap();
    // Longer than a command may take.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    cluster.nodes[1].thaw();
    let guard = call.await.unwrap().unwrap();
    assert!(!rival.is_finished(), "the rival has got what was held");
    guard.release().await.unwrap();
    rival.await.unwrap().unwrap().release().await.unwrap();
}

/// Nobody waits for one node in order to go on with another, nor longer than for one command.
#[tokio::test]
async fn what_a_release_may_take_is_the_same_for_many_locks_and_without_any_node() {
    let cluster = Cluster::start(3, 0).await;
    let manager = connect(&cluster.url()).await;
    let several = manager.lock_all(cluster.keys_at(0, 5).await).acquire().await.unwrap();
    let one = manager.lock("one").acquire().await.unwrap();
    for node in &cluster.nodes {
        node.freeze();
    }
    // A second for the answer, and one more for two cores that are busy; one after the other would be five.
    let bound = Duration::from_secs(3);
    let begin = Instant::now();
    assert!(several.release().await.unwrap_err().is_transient());
    assert!(begin.elapsed() < bound, "five locks on one node: {:?}", begin.elapsed());
    // Longer than what is known of the cluster is believed.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let begin = Instant::now();
    assert!(one.release().await.unwrap_err().is_transient());
    assert!(begin.elapsed() < bound, "with all nodes silent: {:?}", begin.elapsed());
    for node in &cluster.nodes {
        node.thaw();
    }
    eventually("all to be freed", || async { cluster.dbsize().await == 0 }).await;
}

/// A thousand renewals fail at once, and each of them would like to know where to go.
#[tokio::test]
async fn an_outage_is_not_followed_by_a_storm_of_questions() {
    let cluster = Cluster::start(3, 0).await;
    let manager = connect(&cluster.url()).await;
    let mut guards = Vec::new();
    for n in 0..1000 {
        guards.push(manager.lock(format!("{n}")).ttl(LONG).acquire().await.unwrap());
    }
    let asked = async |node: &Server| node.calls().await.get("cluster|nodes").copied().unwrap_or(0);
    let before = asked(&cluster.nodes[0]).await;
    for node in &cluster.nodes {
        node.freeze();
    }
    // Longer than what is known of the cluster is believed, and than a round of renewals.
    tokio::time::sleep(Duration::from_secs(12)).await;
    for node in &cluster.nodes {
        node.thaw();
    }
    manager.lock("after").retry(100).acquire().await.unwrap().release().await.unwrap();
    let times = asked(&cluster.nodes[0]).await - before;
    println!("asked {times} times in an outage of twelve seconds");
    assert!(times < 100, "asked {times} times");
    assert!(guards.iter().all(|guard| guard.lease().is_held()));
}
