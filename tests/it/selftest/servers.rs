//! Starting, stopping, looking.

use std::time::Duration;

use redis::cmd;

use super::{connect, set};
use harness::inspect::query_at;
use harness::sentinel::followed;
use harness::server::Server;

#[tokio::test]
async fn a_server_starts_empty_and_is_gone_after_its_drop() {
    let server = Server::start().await;
    assert_eq!(server.dbsize().await, 0);
    let url = server.url();
    drop(server);
    let error = query_at::<String>(url, cmd("PING")).await.unwrap_err();
    assert!(error.is_connection_refusal(), "{error}");
}

#[tokio::test]
async fn a_killed_server_refuses_and_a_restarted_one_has_lost_its_data() {
    let server = Server::start().await;
    server.set("k", "v").await;
    server.kill();
    assert!(server.query::<String>(&cmd("PING")).await.unwrap_err().is_connection_refusal());
    server.restart().await;
    assert!(server.keys().await.is_empty());
}

#[tokio::test]
async fn a_server_can_be_restarted_with_its_data() {
    let server = Server::start().await;
    server.set_for("k", "v", Duration::from_secs(60)).await;
    server.restart_with_data().await;
    assert_eq!(server.get("k").await.as_deref(), Some("v"));
    assert!(server.pttl("k").await > 0, "the expiry is lost");
}

#[tokio::test]
async fn a_server_that_was_shut_down_in_order_comes_back_with_all_it_had() {
    let server = Server::start().await;
    server.set_for("k", "v", Duration::from_secs(60)).await;
    server.shut_down().await;
    assert!(server.query::<String>(&cmd("PING")).await.unwrap_err().is_connection_refusal());
    server.relaunch().await;
    assert_eq!(server.get("k").await.as_deref(), Some("v"));
    assert!(server.pttl("k").await > 0, "the expiry is lost");
}

#[tokio::test]
async fn a_linked_server_tells_its_replicas_the_address_of_its_link() {
    let servers = followed(1, Server::options().linked()).await;
    let link = servers[1].announced().replace("127.0.0.1:", "ip=127.0.0.1,port=");
    assert_ne!(servers[1].announced(), servers[1].address());
    let known = servers[0].info("replication").await.unwrap();
    assert!(known.contains(&link), "there is no {link} in {known}");
    assert!(servers[0].link().unwrap().connections() > 0, "the replica came another way");
}

#[tokio::test]
async fn passwords_and_users_are_asked_for() {
    let server = Server::options().password("p").user("locker on >secret ~lock:* +@all").start().await;
    server.set("k", "v").await;
    let at = server.address();
    let refused = query_at::<String>(format!("redis://:wrong@{at}"), cmd("PING")).await.unwrap_err();
    assert_eq!(refused.kind(), redis::ErrorKind::AuthenticationFailed, "{refused:?}");
    let as_locker = query_at::<String>(format!("redis://locker:secret@{at}"), cmd("GET").arg("k").clone()).await;
    assert_eq!(as_locker.unwrap_err().code(), Some("NOPERM"));
}

#[tokio::test]
async fn a_server_listens_on_a_socket_file() {
    let server = Server::options().unix_socket().start().await;
    server.set("k", "v").await;
    let value: String = query_at(server.unix_url(), cmd("GET").arg("k").clone()).await.unwrap();
    assert_eq!(value, "v");
}

#[tokio::test]
async fn monitor_has_all_that_was_asked_before() {
    let server = Server::start().await;
    let monitor = server.monitor().await;
    let mut connection = connect(server.url()).await.unwrap();
    for _ in 0..50 {
        set(&mut connection, "k").await.unwrap();
    }
    assert_eq!(monitor.count(&["\"set\"", "\"k\""]).await, 50);
    assert_eq!(server.calls().await["set"], 50);
    assert!(server.connections_received().await >= 3, "ours, the monitor's and the client's");
}
