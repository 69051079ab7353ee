//! Shares that replicas have to confirm.

use std::time::Duration;

use distlock::LockManager;

use super::{Kind, LONG, nothing_is_left, shares};
use crate::calls::{Call, FOR_EVER, warm_up};
use harness::eventually::soon;
use harness::sentinel::followed;
use harness::server::Server;

async fn with_a_replica() -> (Server, Server, LockManager) {
    let [primary, replica] = followed(1, Server::options()).await.try_into().ok().unwrap();
    let manager = LockManager::builder().url(primary.url()).replica_acks(1).build().await.unwrap();
    warm_up(&manager).await;
    (primary, replica, manager)
}

#[tokio::test]
async fn a_share_that_counts_is_on_the_replica() {
    let (primary, replica, manager) = with_a_replica().await;
    for kind in [Kind::Read, Kind::Permits(2)] {
        for waits in [false, true] {
            let request = || {
                let request = kind.lock(&manager, "k").ttl(FOR_EVER);
                if waits { request.wait(LONG) } else { request }
            };
            let first = soon("a share", request().acquire()).await.unwrap();
            assert_eq!(shares(&replica, "k").await.len(), 1, "{kind:?}, waits: {waits}");
            let second = soon("a share", request().acquire()).await.unwrap();
            assert_eq!(shares(&replica, "k").await.len(), 2, "{kind:?}, waits: {waits}");
            let several = kind.of(manager.lock_all(["a", "b"])).acquire().await.unwrap();
            assert_eq!(shares(&replica, "a").await.len(), 1);
            for guard in [first, second, several] {
                guard.release().await.unwrap();
            }
            nothing_is_left(&primary).await;
        }
    }
}

#[tokio::test]
async fn what_no_replica_confirms_is_given_back_and_leaves_the_shares_of_others() {
    let (primary, replica, manager) = with_a_replica().await;
    let other = LockManager::connect(&primary.url()).await.unwrap();
    for kind in [Kind::Read, Kind::Permits(2)] {
        let kept = Call::under(kind.lock(&other, "k").ttl(Duration::from_secs(3))).await;
        replica.freeze();
        let error = kind.lock(&manager, "k").ttl(FOR_EVER).acquire().await.unwrap_err();
        assert!(error.is_transient() && error.to_string().contains("0 of 1 replicas"), "{error}");
        harness::eventually::eventually("it to be given back", || async { shares(&primary, "k").await.len() == 1 })
            .await;
        replica.thaw();
        kept.finished().await.unwrap();
        nothing_is_left(&primary).await;
    }
}
