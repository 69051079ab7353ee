//! What a manager looks at when it connects to a server, and warns about once.

use std::time::Duration;

use distlock::{LockManager, LockManagerBuilder, ServerCheck};
use tracing::Level;

use crate::calls::connect;
use crate::events;
use crate::rights::least_rights;
use harness::eventually::{eventually, soon};
use harness::sentinel::{Fall, Guarded};
use harness::server::{Options, Server};

/// One that nothing is to be said about.
fn sound() -> Options {
    Server::options().directive("appendonly", "yes")
}

/// What was said about a server when somebody connected.
fn warnings(server: &Server) -> Vec<String> {
    events::seen_with(Level::WARN, &server.address()).into_iter().filter(|text| text.contains("\"check\"")).collect()
}

fn once(server: &Server, check: ServerCheck, part: &str) {
    let warnings = warnings(server);
    let about: Vec<_> = warnings.iter().filter(|text| text.contains(&format!("{check:?}"))).collect();
    assert!(about.len() == 1 && about[0].contains(part), "{check:?}, {part}: {warnings:?}");
}

#[tokio::test]
async fn nothing_is_said_about_a_sound_server() {
    events::listen();
    let server = sound().start().await;
    connect(&server.url()).await;
    assert_eq!(warnings(&server), Vec::<String>::new());
}

#[tokio::test]
async fn each_danger_is_told() {
    events::listen();
    let any = sound().directive("maxmemory-policy", "allkeys-lru").start().await;
    connect(&any.url()).await;
    once(&any, ServerCheck::Eviction, "any keys, locks too");
    let expiring = sound().directive("maxmemory-policy", "volatile-ttl").start().await;
    connect(&expiring.url()).await;
    once(&expiring, ServerCheck::Eviction, "which all locks do");
    let forgetful = Server::start().await;
    connect(&forgetful.url()).await;
    once(&forgetful, ServerCheck::Persistence, "a second holder is possible");
    let replica = sound().start().await;
    replica.readonly().await;
    connect(&replica.url()).await;
    once(&replica, ServerCheck::Role, "is a replica");
    for server in [any, expiring, forgetful, replica] {
        assert_eq!(warnings(&server).len(), 1, "{:?}", warnings(&server));
    }
}

fn all_at_once() -> Options {
    Server::options().directive("maxmemory-policy", "allkeys-lfu")
}

#[tokio::test]
async fn a_check_that_is_left_out_tells_nothing() {
    events::listen();
    let server = all_at_once().start().await;
    server.readonly().await;
    let builder = || LockManager::builder().url(server.url());
    let build = async |builder: LockManagerBuilder| builder.build().await.unwrap();
    let without = builder().skip_check(ServerCheck::Persistence).skip_check(ServerCheck::Role);
    build(without).await;
    assert_eq!(warnings(&server).len(), 1);
    once(&server, ServerCheck::Eviction, "allkeys-lfu");
    let checks = [ServerCheck::Version, ServerCheck::Role, ServerCheck::Eviction, ServerCheck::Persistence];
    let before = server.calls().await["info"];
    build(checks.into_iter().fold(builder(), LockManagerBuilder::skip_check)).await;
    // Our own look at the calls is one, too.
    assert_eq!(server.calls().await["info"], before + 1, "who looks for nothing need not ask");
    build(builder()).await;
    assert_eq!(warnings(&server).len(), 1 + 3, "another manager tells it again");
}

#[tokio::test]
async fn a_danger_is_told_once_however_often_the_connection_is_made_anew() {
    events::listen();
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    for _ in 0..5 {
        server.kill_clients("normal").await;
        manager.lock("k").acquire().await.unwrap().release().await.unwrap();
    }
    once(&server, ServerCheck::Persistence, "appendonly");
    // What is new is told: so it is looked at each time.
    server.config("maxmemory-policy", "volatile-lru").await;
    server.kill_clients("normal").await;
    manager.lock("k").acquire().await.unwrap().release().await.unwrap();
    eventually("the other warning", async || warnings(&server).len() == 2).await;
    once(&server, ServerCheck::Persistence, "appendonly");
    once(&server, ServerCheck::Eviction, "volatile-lru");
}

#[tokio::test]
async fn the_successor_of_a_primary_is_looked_at_too() {
    events::listen();
    let guarded = Guarded::start(1).await;
    let manager = connect(&guarded.url()).await;
    once(guarded.primary(), ServerCheck::Persistence, "appendonly");
    guarded.servers[1].config("maxmemory-policy", "allkeys-lru").await;
    let successor = guarded.fall(Fall::Killed).await;
    let guard = soon("a lock there", manager.lock("k").retry(1000).acquire()).await.unwrap();
    eventually("the successor's warning", async || !warnings(successor).is_empty()).await;
    once(successor, ServerCheck::Eviction, "allkeys-lru");
    assert_eq!(warnings(successor).len(), 1, "told of the first primary already: {:?}", warnings(successor));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn without_the_right_to_look_nothing_is_amiss() {
    events::listen();
    let server = all_at_once().user(&least_rights()).start().await;
    let builder = LockManager::builder().url(format!("redis://locks:password@{}", server.address()));
    let manager = builder.connect_timeout(Duration::from_secs(10)).build().await.unwrap();
    manager.lock("k").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(warnings(&server), Vec::<String>::new());
    let told = events::seen_with(Level::DEBUG, &server.address());
    let says = |text: &&String| text.contains("not inspected") && text.contains("'info'");
    assert_eq!(told.iter().filter(says).count(), 1, "{told:?}");
}
