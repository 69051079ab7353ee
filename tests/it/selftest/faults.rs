//! Faults of a server.

use std::time::Duration;

use redis::cmd;

use super::{connect, refusal, set};
use harness::cluster::Cluster;
use harness::eventually::eventually;
use harness::server::Server;

#[tokio::test]
async fn a_frozen_server_accepts_and_never_answers_and_does_it_all_later() {
    let server = Server::start().await;
    let mut connection = connect(server.url()).await.unwrap();
    server.freeze();
    assert!(set(&mut connection, "k").await.unwrap_err().is_timeout());
    server.thaw();
    set(&mut connection, "after").await.unwrap();
    assert!(server.exists("k").await, "what was sent meanwhile is done after all");
}

#[tokio::test]
async fn a_busy_server_answers_busy_until_the_script_is_killed() {
    let server = Server::start().await;
    let mut connection = connect(server.url()).await.unwrap();
    server.busy().await;
    assert_eq!(refusal(&mut connection).await.as_deref(), Some("BUSY"));
    server.end_busy().await;
    assert_eq!(refusal(&mut connection).await, None);
}

#[tokio::test]
async fn a_loading_server_answers_loading_and_keeps_its_keys() {
    let server = Server::start().await;
    server.set_for("lock", "v", Duration::from_secs(60)).await;
    let mut connection = connect(server.url()).await.unwrap();
    server.loading().await;
    assert_eq!(refusal(&mut connection).await.as_deref(), Some("LOADING"));
    server.end_loading().await;
    assert_eq!(refusal(&mut connection).await, None);
    assert_eq!(server.get("lock").await.as_deref(), Some("v"));
    assert!(server.pttl("lock").await > 0, "the expiry is lost");
}

#[tokio::test]
async fn a_server_whose_save_failed_answers_misconf_to_writes_until_one_succeeds() {
    let server = Server::start().await;
    let mut connection = connect(server.url()).await.unwrap();
    server.misconf().await;
    assert_eq!(refusal(&mut connection).await.as_deref(), Some("MISCONF"));
    let in_script = cmd("EVAL").arg("return redis.call('DEL', KEYS[1])").arg(1).arg("k").clone();
    let error = in_script.query_async::<()>(&mut connection).await.unwrap_err();
    assert!(format!("{error:?}").contains("MISCONF"), "{error:?}");
    server.end_misconf().await;
    assert_eq!(refusal(&mut connection).await, None);
}

#[tokio::test]
async fn a_demoted_server_answers_readonly_on_open_connections() {
    let server = Server::start().await;
    let mut connection = connect(server.url()).await.unwrap();
    server.readonly().await;
    assert_eq!(refusal(&mut connection).await.as_deref(), Some("READONLY"));
    server.writable().await;
    assert_eq!(refusal(&mut connection).await, None);
}

#[tokio::test]
async fn flushed_scripts_are_unknown() {
    let server = Server::start().await;
    let mut connection = connect(server.url()).await.unwrap();
    let load = cmd("SCRIPT").arg("LOAD").arg("return 1").clone();
    let sha: String = load.query_async(&mut connection).await.unwrap();
    let evalsha = cmd("EVALSHA").arg(sha).arg(0).clone();
    assert_eq!(evalsha.query_async::<u32>(&mut connection).await.unwrap(), 1);
    server.flush_scripts().await;
    assert_eq!(evalsha.query_async::<u32>(&mut connection).await.unwrap_err().code(), Some("NOSCRIPT"));
}

#[tokio::test]
async fn killed_connections_are_closed() {
    let server = Server::start().await;
    let mut connection = connect(server.url()).await.unwrap();
    assert!(server.kill_clients("normal").await >= 1);
    assert!(set(&mut connection, "k").await.unwrap_err().is_connection_dropped());
}

#[tokio::test]
async fn a_node_that_is_cut_off_is_replaced_and_hears_of_it_when_it_joins_again() {
    let cluster = Cluster::start_with(3, 3, Server::options().linked()).await;
    cluster.be_impatient().await;
    cluster.cut_off(0);
    cluster.successor(0).await;
    assert!(cluster.nodes[0].is_primary().await, "it has heard of its successor");
    cluster.join_again(0);
    eventually("it to be a replica", || async { !cluster.nodes[0].is_primary().await }).await;
}
