//! All backends keep the same rules.

use std::sync::Arc;

use distlock::backend::MemoryBackend;
use distlock::{LockManager, conformance};

use crate::calls::connect;
use harness::cluster::Cluster;
use harness::sentinel::Guarded;
use harness::server::Server;

#[tokio::test]
async fn the_memory_backend_keeps_the_rules() {
    conformance::check(Arc::new(MemoryBackend::new())).await;
}

#[tokio::test]
async fn the_redis_backend_keeps_the_rules() {
    let server = Server::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    conformance::check(locks.backend()).await;
    let mut left = server.keys().await;
    // What is documented: a lock's last fencing token is kept for a day.
    left.retain(|key| !key.ends_with(":fence"));
    assert_eq!(left, [""; 0], "the rules leave nothing behind");
}

#[tokio::test]
async fn a_cluster_keeps_the_rules() {
    let cluster = Cluster::start(3, 0).await;
    let locks = connect(&cluster.url()).await;
    conformance::check(locks.backend()).await;
    for node in &cluster.nodes {
        let mut left = node.keys().await;
        left.retain(|key| !key.ends_with(":fence"));
        assert_eq!(left, [""; 0], "the rules leave nothing behind");
    }
}

#[tokio::test]
async fn the_primary_of_a_service_keeps_the_rules() {
    let guarded = Guarded::start(1).await;
    conformance::check(connect(&guarded.url()).await.backend()).await;
}
