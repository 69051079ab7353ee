//! Locks that are shared, over the slots of a cluster and through failovers.

use std::time::Duration;

use redis::cmd;

use super::{Kind, LONG, has_shares, holder, shares};
use crate::calls::{Call, FOR_EVER, connect, redis_key};
use harness::cluster::Cluster;
use harness::eventually::{eventually, soon};
use harness::sentinel::{Fall, Guarded};
use harness::server::Server;

const SHARED: [Kind; 2] = [Kind::Read, Kind::Permits(2)];

async fn is_renewed(server: &Server, key: &str) {
    let expires = async || match shares(server, key).await.first() {
        Some(share) => super::time(server).await + share.remaining,
        None => 0,
    };
    let before = expires().await;
    assert!(before > 0, "`{key}` is gone");
    eventually("a renewal", || async { expires().await > before + 200 }).await;
}

#[tokio::test]
async fn each_node_of_a_cluster_has_shares_lines_and_marks_of_its_slots() {
    let cluster = Cluster::start(3, 0).await;
    let (one, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    for kind in SHARED {
        for home in 0..3 {
            let (key, node) = (cluster.key_at(home).await, &cluster.nodes[home]);
            let first = Call::under(kind.lock(&one, &key).ttl(Duration::from_secs(2))).await;
            let second = Call::under(kind.lock(&other, &key).ttl(Duration::from_secs(2))).await;
            has_shares(node, &key, 2).await;
            is_renewed(node, &key).await;
            let waits = tokio::spawn(Kind::Write.lock(&one, &key).wait(LONG).acquire());
            super::stand_in_line(node, &key, 1).await;
            let tries = tokio::spawn(Kind::Write.lock(&other, &key).retry(u32::MAX).acquire());
            assert!(holder(kind.lock(&other, &key).acquire().await).contains('/'));
            first.finished().await.unwrap();
            second.finished().await.unwrap();
            for writer in [waits, tries] {
                soon("a writer", writer).await.unwrap().unwrap().release().await.unwrap();
            }
            eventually("nothing to be left", || async { cluster.dbsize().await == 0 }).await;
        }
    }
}

#[tokio::test]
async fn several_shares_over_the_slots_of_a_cluster_are_held_or_none() {
    let cluster = Cluster::start(3, 0).await;
    let (one, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let keys = [cluster.key_at(0).await, cluster.key_at(1).await, cluster.key_at(2).await];
    for kind in SHARED {
        let all = |manager: &distlock::LockManager| kind.of(manager.lock_all(keys.clone())).ttl(FOR_EVER);
        let guards = [all(&one).acquire().await.unwrap(), all(&other).acquire().await.unwrap()];
        for (key, node) in keys.iter().zip(&cluster.nodes) {
            assert_eq!(shares(node, key).await.len(), 2);
        }
        for guard in guards {
            guard.release().await.unwrap();
        }
        let writer = Kind::Write.lock(&one, &keys[1]).acquire().await.unwrap();
        assert!(all(&other).acquire().await.unwrap_err().is_busy());
        writer.release().await.unwrap();
        eventually("nothing to be left", || async { cluster.dbsize().await == 0 }).await;
    }
}

/// Each attempt of such a group has values of its own there, and yet it is one that comes back.
#[tokio::test]
async fn a_group_of_writers_over_the_slots_of_a_cluster_holds_newcomers_back() {
    let cluster = Cluster::start(3, 0).await;
    let (one, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let keys = [cluster.key_at(0).await, cluster.key_at(1).await];
    let reader = Kind::Read.lock(&one, &keys[1]).ttl(FOR_EVER).acquire().await.unwrap();
    let request = Kind::Write.of(other.lock_all(keys.clone())).ttl(FOR_EVER).retry(u32::MAX);
    let writers = tokio::spawn(request.acquire());
    let is_held_back = || async {
        match Kind::Read.lock(&one, &keys[1]).acquire().await {
            Ok(guard) => guard.release().await.is_err(),
            Err(error) => error.is_busy(),
        }
    };
    eventually("newcomers to be held back", is_held_back).await;
    reader.release().await.unwrap();
    soon("the writers", writers).await.unwrap().unwrap().release().await.unwrap();
    eventually("nothing to be left", || async { cluster.dbsize().await == 0 }).await;
}

#[tokio::test]
async fn shares_in_a_cluster_go_where_their_slot_goes() {
    let cluster = Cluster::start(3, 0).await;
    let (one, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    for kind in SHARED {
        let key = cluster.key_at(0).await;
        let slot = cluster.slot(&key).await;
        let call = Call::under(kind.lock(&one, &key).ttl(Duration::from_secs(5))).await;
        cluster.begin_move(slot, &cluster.nodes[0], &cluster.nodes[1]).await;
        is_renewed(&cluster.nodes[0], &key).await;
        cluster.end_move(slot, &cluster.nodes[0], &cluster.nodes[1]).await;
        is_renewed(&cluster.nodes[1], &key).await;
        let beside = kind.lock(&other, &key).retry(10).acquire().await.unwrap();
        assert!(holder(Kind::Write.lock(&other, &key).acquire().await).ends_with(" and 1 other"));
        call.finished().await.unwrap();
        beside.release().await.unwrap();
        eventually("nothing to be left", || async { cluster.dbsize().await == 0 }).await;
        cluster.move_slot(slot, &cluster.nodes[1], &cluster.nodes[0]).await;
    }
}

/// A release must not wait for the slot, and must find its share on whatever side it is.
#[tokio::test]
async fn a_share_in_a_cluster_is_freed_while_its_slot_is_on_its_way() {
    let cluster = Cluster::start(3, 0).await;
    let manager = connect(&cluster.url()).await;
    for kind in SHARED {
        for moved in [false, true] {
            let key = cluster.key_at(0).await;
            let slot = cluster.slot(&key).await;
            let (from, to) = (&cluster.nodes[0], &cluster.nodes[1]);
            let call = Call::under(kind.lock(&manager, &key).ttl(FOR_EVER)).await;
            cluster.begin_move(slot, from, to).await;
            if moved {
                cluster.move_keys(slot, from, to).await;
            }
            let outcome = call.finished().await;
            assert!(outcome.is_ok(), "{kind:?}, moved: {moved}: {outcome:?}");
            cluster.end_move(slot, from, to).await;
            eventually("the share to be freed", || async { cluster.dbsize().await == 0 }).await;
            cluster.move_slot(slot, to, from).await;
        }
    }
}

#[tokio::test]
async fn shares_outlive_a_failover_behind_sentinels() {
    let guarded = Guarded::start(1).await;
    let (one, other) = (connect(&guarded.url()).await, connect(&guarded.url()).await);
    // Longer by half than any failover takes here.
    let ttl = Duration::from_secs(30);
    let mut calls = Vec::new();
    for (kind, key) in [(Kind::Read, "r"), (Kind::Permits(2), "p")] {
        calls.push(Call::under(kind.lock(&one, key).ttl(ttl)).await);
        calls.push(Call::under(kind.lock(&other, key).ttl(ttl)).await);
    }
    guarded.replicated().await;
    let successor = guarded.fall(Fall::Killed).await;
    for key in ["r", "p"] {
        assert_eq!(shares(successor, key).await.len(), 2, "`{key}` has lost a share");
        is_renewed(successor, key).await;
    }
    assert!(calls.iter().all(|call| call.body.is_running()));
    let refused = Kind::Permits(2).lock(&one, "p").retry(3).acquire().await.unwrap_err();
    assert!(refused.is_busy(), "{refused:?}");
    for call in calls {
        call.finished().await.unwrap();
    }
    let keys: u64 = successor.query(&cmd("DBSIZE")).await.unwrap();
    assert_eq!(keys, 0);
    assert!(!successor.exists(&redis_key("r")).await);
}
