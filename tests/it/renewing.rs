//! Renewals of several locks in one command: what one of them meets must not be the end of the others.

use std::time::{Duration, Instant};

use distlock::{LockGuard, LockManager, LostReason};
use harness::eventually::{eventually, soon};
use harness::proxy::{Proxy, Way};
use harness::server::{Server, free_port};
use redis::cmd;

use crate::calls::{connect, redis_key};

const TTL: Duration = Duration::from_millis(1_500);

async fn take(manager: &LockManager, many: usize, ttl: Duration) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for number in 0..many {
        guards.push(manager.lock(format!("k{number}")).ttl(ttl).acquire().await.unwrap());
    }
    guards
}

fn held(guards: &[LockGuard]) -> usize {
    guards.iter().filter(|guard| guard.lease().is_held()).count()
}

/// A server looks at the rights for all keys of a script before it runs it.
#[tokio::test]
async fn locks_that_may_not_be_renewed_any_more_cost_no_others_their_leases() {
    let server = Server::options().user("locks on >password ~* &* +@all").start().await;
    let manager = connect(&format!("redis://locks:password@{}", server.address())).await;
    let mut others = Vec::new();
    for number in 0..300 {
        others.push(manager.lock(format!("other{number}")).ttl(Duration::from_secs(12)).acquire().await.unwrap());
    }
    let guards = take(&manager, 50, Duration::from_secs(3)).await;
    let mut rules = cmd("ACL");
    rules.arg("SETUSER").arg("locks").arg("resetkeys").arg("~lock:{k*");
    server.query::<()>(&rules).await.unwrap();
    // Time is what is tested here: more than a ttl passes.
    tokio::time::sleep(Duration::from_secs(11)).await;
    let left = held(&guards);
    assert_eq!(left, 50, "with {} of the others", held(&others));
}

/// One node that has all slots answers everything but what is about several slots.
#[tokio::test]
async fn on_a_node_that_has_all_slots_of_a_cluster() {
    let node = Server::options().directive("cluster-enabled", "yes");
    let node = node.directive("cluster-port", &free_port().to_string()).start().await;
    node.query::<()>(cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(0).arg(16_383)).await.unwrap();
    let whole =
        || async { node.query::<String>(cmd("CLUSTER").arg("INFO")).await.unwrap().contains("cluster_state:ok\r") };
    eventually("the cluster of one node", whole).await;
    let manager = connect(&node.url()).await;
    let guards = take(&manager, 20, TTL).await;
    // Time is what is tested here: two ttls pass.
    tokio::time::sleep(2 * TTL).await;
    assert_eq!(held(&guards), 20);
}

#[tokio::test]
async fn replies_that_are_late_and_then_lost_cost_no_lease() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let manager = connect(&proxy.url()).await;
    let guards = take(&manager, 600, Duration::from_secs(3)).await;
    for _ in 0..3 {
        proxy.hold(Way::Replies);
        // The fault lasts so long, more than a third of the ttl.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        proxy.reset();
        proxy.pass();
        // And all is well for so long, half the ttl.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
    }
    assert_eq!(held(&guards), 600);
}

#[tokio::test]
async fn what_is_freed_while_its_renewal_is_under_way_is_freed_and_not_lost() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let manager = connect(&proxy.url()).await;
    for round in 0..4 {
        let guards = take(&manager, 200, Duration::from_secs(3)).await;
        proxy.delay(Way::Replies, Duration::from_millis(30));
        // When renewals are under way.
        tokio::time::sleep(Duration::from_millis(500 + 150 * round)).await;
        let freed = futures_util::future::join_all(guards.into_iter().map(LockGuard::release)).await;
        let failed: Vec<_> = freed.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
        assert!(failed.is_empty(), "{failed:?}");
        proxy.pass();
        // Until the next round begins.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(server.dbsize().await, 0);
    }
}

#[tokio::test]
async fn all_are_told_when_a_server_forgets() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let guards = take(&manager, 600, Duration::from_secs(3)).await;
    server.kill();
    server.restart().await;
    let begin = Instant::now();
    for guard in &guards {
        assert_eq!(soon("its loss", guard.lease().lost()).await, LostReason::Gone);
    }
    assert!(begin.elapsed() < Duration::from_millis(1_700), "{:?}", begin.elapsed());
    assert_eq!(server.dbsize().await, 0);
}

#[tokio::test]
async fn short_leases_among_many_long_ones() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let _long = take(&manager, 10_000, Duration::from_secs(12)).await;
    let mut short = Vec::new();
    for number in 0..20 {
        short.push(manager.lock(format!("s{number}")).ttl(Duration::from_millis(400)).acquire().await.unwrap());
    }
    // Time is what is tested here: many renewals of the short ones.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(held(&short), 20);
}

#[tokio::test]
async fn a_manager_that_ends_in_the_meantime_leaves_nothing() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let manager = connect(&proxy.url()).await;
    let guards = take(&manager, 1_000, Duration::from_millis(1_500)).await;
    proxy.delay(Way::Replies, Duration::from_millis(50));
    // Until renewals are on their way.
    tokio::time::sleep(Duration::from_millis(480)).await;
    manager.shutdown(Duration::ZERO).await;
    assert_eq!(server.dbsize().await, 0);
    assert_eq!(held(&guards), 0);
    // As long as an answer takes, and more.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(server.dbsize().await, 0);
}

#[tokio::test]
async fn ttls_stay_apart() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let ttls = [3, 60, 6, 600, 4, 30].map(Duration::from_secs);
    let mut guards = Vec::new();
    for number in 0..60 {
        guards.push(manager.lock(format!("k{number}")).ttl(ttls[number % 6]).acquire().await.unwrap());
    }
    // Time is what is tested here: more than a ttl passes.
    tokio::time::sleep(Duration::from_secs(5)).await;
    for (number, guard) in guards.iter().enumerate() {
        let left = server.pttl(&redis_key(&format!("k{number}"))).await;
        let ttl = i64::try_from(ttls[number % 6].as_millis()).unwrap();
        assert!(left <= ttl && left > ttl - 6_000.min(ttl / 2 + 200), "{number}: {left} of {ttl}");
        guard.lease().ensure_held().unwrap();
        assert!(i64::try_from(guard.lease().remaining().as_millis()).unwrap() <= left + 5);
    }
}
