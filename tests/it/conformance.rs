//! Both backends keep the same rules.

use std::sync::Arc;

use distlock::backend::MemoryBackend;
use distlock::{LockManager, conformance};

use crate::harness::server::Server;

#[tokio::test]
async fn the_memory_backend_keeps_the_rules() {
    conformance::check(Arc::new(MemoryBackend::new())).await;
}

#[tokio::test]
async fn the_redis_backend_keeps_the_rules() {
    let server = Server::start().await;
    let locks = LockManager::connect(&server.url()).await.unwrap();
    conformance::check(locks.backend()).await;
    assert_eq!(server.keys().await, [""; 0], "the rules leave nothing behind");
}
