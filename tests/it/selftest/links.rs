//! Faults of the link to a server.

use std::time::{Duration, Instant};

use super::{PATIENCE, connect, set, took};
use harness::eventually::eventually;
use harness::proxy::{Proxy, Trip, Way};
use harness::server::Server;

#[tokio::test]
async fn a_black_hole_swallows_old_and_new_connections() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let mut connection = connect(proxy.url()).await.unwrap();
    set(&mut connection, "before").await.unwrap();
    proxy.blackhole();
    assert!(set(&mut connection, "k").await.unwrap_err().is_timeout());
    let error = connect(proxy.url()).await.expect_err("a new connection got through");
    assert!(error.is_timeout(), "{error}");
    assert!(!server.exists("k").await);
    proxy.pass();
    eventually("the command that was held back", || server.exists("k")).await;
    set(&mut connection, "after").await.unwrap();
}

#[tokio::test]
async fn held_replies_leave_the_server_obeying() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let mut connection = connect(proxy.url()).await.unwrap();
    proxy.hold(Way::Replies);
    assert!(set(&mut connection, "k").await.unwrap_err().is_timeout());
    assert!(server.exists("k").await);
}

#[tokio::test]
async fn dropped_replies_never_arrive_and_end_the_connection() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let mut connection = connect(proxy.url()).await.unwrap();
    proxy.hold(Way::Replies);
    let setting = set(&mut connection, "k");
    let dropping = async {
        eventually("the command at the server", || server.exists("k")).await;
        proxy.reset();
        proxy.pass();
    };
    let (answer, ()) = tokio::join!(setting, dropping);
    let error = answer.unwrap_err();
    assert!(error.is_connection_dropped(), "{error:?}");
    let mut connection = connect(proxy.url()).await.unwrap();
    set(&mut connection, "after").await.unwrap();
}

#[tokio::test]
async fn requests_and_replies_can_be_delayed() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let mut connection = connect(proxy.url()).await.unwrap();
    let time = Duration::from_millis(100);
    for direction in [Way::Requests, Way::Replies] {
        proxy.delay(direction, time);
        let begin = Instant::now();
        set(&mut connection, "k").await.unwrap();
        assert!(took(begin, time), "{direction:?} took only {:?}", begin.elapsed());
        proxy.pass();
    }
}

#[tokio::test]
async fn a_request_delayed_past_the_callers_patience_lands_after_all() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let mut connection = connect(proxy.url()).await.unwrap();
    proxy.delay(Way::Requests, PATIENCE * 2);
    assert!(set(&mut connection, "k").await.unwrap_err().is_timeout());
    drop(connection);
    assert!(!server.exists("k").await);
    eventually("the late command", || server.exists("k")).await;
}

#[tokio::test]
async fn connections_can_be_reset_and_refused() {
    let server = Server::start().await;
    let proxy = Proxy::start(&server).await;
    let mut connection = connect(proxy.url()).await.unwrap();
    proxy.reset();
    assert!(set(&mut connection, "k").await.unwrap_err().is_connection_dropped());
    proxy.refuse().await;
    assert!(connect(proxy.url()).await.err().unwrap().is_connection_refusal());
    proxy.accept().await;
    set(&mut connect(proxy.url()).await.unwrap(), "k").await.unwrap();
    assert_eq!(proxy.connections(), 2);
}

#[tokio::test]
async fn a_reply_can_be_late_alone() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let mut connection = connect(link.url()).await.unwrap();
    link.arm("late", 0, Trip::LateReply(PATIENCE * 2));
    assert!(set(&mut connection, "late").await.unwrap_err().is_timeout());
    assert!(server.exists("late").await, "the server did it");
    set(&mut connect(link.url()).await.unwrap(), "late").await.unwrap();
}

#[tokio::test]
async fn a_link_that_was_split_off_fails_for_those_who_say_its_word_first() {
    let server = Server::options().user("asker on >password ~* +@all").start().await;
    let proxy = Proxy::start(&server).await;
    let askers = proxy.split("asker");
    let mut asker = connect(proxy.url().replace("://", "://asker:password@")).await.unwrap();
    let mut other = connect(proxy.url()).await.unwrap();
    askers.blackhole();
    assert!(set(&mut asker, "k").await.unwrap_err().is_timeout());
    set(&mut other, "k").await.unwrap();
    askers.pass();
    set(&mut asker, "k").await.unwrap();
    proxy.reset();
    assert!(set(&mut other, "k").await.unwrap_err().is_connection_dropped());
    set(&mut asker, "k").await.unwrap();
    assert_eq!((proxy.connections(), askers.connections()), (1, 1));
}

#[tokio::test]
async fn a_tripwire_loses_the_reply_to_exactly_the_command_that_was_meant() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let mut connection = connect(link.url()).await.unwrap();
    link.arm("second", 1, Trip::LoseReply(Duration::ZERO));
    set(&mut connection, "first").await.unwrap();
    set(&mut connection, "second").await.unwrap();
    server.del("second").await;
    assert!(set(&mut connection, "second").await.unwrap_err().is_connection_dropped());
    link.tripped(1).await;
    assert!(server.exists("second").await, "the server did it");
    set(&mut connect(link.url()).await.unwrap(), "second").await.unwrap();
}

#[tokio::test]
async fn a_tripwire_keeps_a_command_from_the_server_with_a_reset_or_in_silence() {
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    for (trip, silent) in [(Trip::Reset, false), (Trip::Silence, true)] {
        let mut connection = connect(link.url()).await.unwrap();
        link.arm("k", 0, trip);
        let error = set(&mut connection, "k").await.unwrap_err();
        assert_eq!(error.is_timeout(), silent, "{error}");
        assert!(!server.exists("k").await);
    }
    link.tripped(2).await;
}
