//! Sentinels that are down, silent, wrong or guarded, and what is told when there is no primary.

use std::time::Duration;

use distlock::{LockError, LockManager};
use redis::cmd;

use crate::calls::{connect, redis_key};
use crate::rights::least_rights;
use harness::eventually::eventually;
use harness::sentinel::{Fall, Guarded, Passwords, SERVICE, Sentinel, behind};
use harness::server::Server;

/// That this very server is where the lock stands.
async fn locks_on(server: &Server, url: &str) {
    let manager = connect(url).await;
    let guard = manager.lock("k").acquire().await.unwrap();
    assert!(server.exists(&redis_key("k")).await, "the lock stands elsewhere");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn sentinels_that_are_dead_or_frozen_are_passed_over() {
    let guarded = Guarded::start(1).await;
    guarded.sentinels[0].freeze();
    locks_on(guarded.primary(), &guarded.url()).await;
    guarded.sentinels[1].freeze();
    locks_on(guarded.primary(), &guarded.url()).await;
    guarded.sentinels[0].kill();
    locks_on(guarded.primary(), &guarded.url()).await;
    guarded.sentinels[1].kill();
    locks_on(guarded.primary(), &guarded.url()).await;
}

/// Two of three are enough for a failover, and for finding the new primary.
#[tokio::test]
async fn a_failover_is_followed_past_a_frozen_sentinel() {
    let guarded = Guarded::start(1).await;
    let manager = connect(&guarded.url()).await;
    let guard = manager.lock("k").ttl(Duration::from_secs(15)).acquire().await.unwrap();
    guarded.replicated().await;
    guarded.sentinels[0].freeze();
    let successor = guarded.fall(Fall::Killed).await;
    let other = manager.lock("l").retry(200).acquire().await.unwrap();
    assert!(successor.exists(&redis_key("l")).await);
    other.release().await.unwrap();
    guard.lease().ensure_held().unwrap();
    guard.release().await.unwrap();
    assert!(!successor.exists(&redis_key("k")).await, "freed elsewhere");
}

#[tokio::test]
async fn a_manager_goes_on_without_any_sentinel_while_its_primary_lives() {
    let guarded = Guarded::start(1).await;
    let manager = connect(&guarded.url()).await;
    let guard = manager.lock("k").ttl(Duration::from_secs(2)).acquire().await.unwrap();
    for sentinel in &guarded.sentinels {
        sentinel.kill();
    }
    // Longer than the lease and than all that the manager waits for.
    tokio::time::sleep(Duration::from_secs(5)).await;
    guard.lease().ensure_held().unwrap();
    manager.lock("l").acquire().await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
    let error = LockManager::connect(&guarded.url()).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    for sentinel in &guarded.sentinels {
        assert!(error.to_string().contains(&sentinel.address()), "not told of each: {error}");
    }
}

#[tokio::test]
async fn a_sentinel_that_names_a_wrong_server_is_outvoted() {
    let guarded = Guarded::start(1).await;
    let other = Server::start().await;
    let wrong = Sentinel::start(&other, &Passwords::default()).await;
    let url = format!("redis-sentinel://{},{}#{SERVICE}", wrong.address(), guarded.hosts());
    for _ in 0..5 {
        locks_on(guarded.primary(), &url).await;
    }
    guarded.sentinels[0].kill();
    locks_on(guarded.primary(), &url).await;
    // Now it is one against one: the wrong one's server is gone, then a replica.
    guarded.sentinels[1].kill();
    other.kill();
    locks_on(guarded.primary(), &url).await;
    other.restart().await;
    other.readonly().await;
    locks_on(guarded.primary(), &url).await;
}

/// It names the old primary, which is back and takes itself for one for some seconds.
#[tokio::test]
async fn a_sentinel_that_has_not_heard_of_the_failover_leads_nobody_back() {
    let guarded = Guarded::start(1).await;
    let old = behind(guarded.primary(), 0).await;
    let url = format!("redis-sentinel://{old},{}#{SERVICE}", guarded.hosts());
    let manager = connect(&url).await;
    let successor = guarded.fall(Fall::Frozen).await;
    let moved = async || match manager.lock("moved").acquire().await {
        Ok(guard) => successor.exists(&redis_key("moved")).await & guard.release().await.is_ok(),
        Err(_) => false,
    };
    eventually("the manager to move", &moved).await;
    guarded.primary().thaw();
    locks_on(successor, &url).await;
    // One against one: the epoch decides.
    guarded.sentinels[0].kill();
    guarded.sentinels[1].kill();
    locks_on(successor, &url).await;
    assert!(guarded.primary().is_primary().await, "it was made a replica: then this test can't fail");
    // Only the one that is behind is left. The manager knows better than that; a new one could not.
    for sentinel in &guarded.sentinels {
        sentinel.kill();
    }
    successor.kill();
    let request = || manager.lock("l").retry(2).acquire();
    let error = request().await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    let error = request().await.unwrap_err().to_string();
    assert!(error.contains("out of date"), "{error}");
    assert!(!guarded.primary().exists(&redis_key("l")).await, "the old primary was written to");
}

const SECURE: Passwords = Passwords { servers: Some("server-secret"), sentinels: Some("sentinel-secret"), user: None };

fn guarded_by_passwords(user: &str) -> harness::server::Options {
    Server::options().password("server-secret").directive("masterauth", "server-secret").user(user)
}

#[tokio::test]
async fn passwords_of_primary_and_sentinels_and_the_least_rights_are_enough() {
    let options = guarded_by_passwords(&format!("{} +role", least_rights()));
    let guarded = Guarded::start_with(1, options, SECURE).await;
    let hosts = guarded.hosts();
    let url = |at: &str, query: &str| format!("redis-sentinel://{at}{hosts}{query}#{SERVICE}");
    let right = url("locks:password@", "?sentinel_password=sentinel-secret");
    locks_on(guarded.primary(), &right).await;
    let manager = connect(&right).await;
    let text = format!("{manager:?} {:?}", LockManager::builder().url(&right));
    assert!(!text.contains("secret") && !text.contains("password@"), "{text}");

    for (wrong, told) in [
        (url("locks:password@", ""), "NOAUTH"),
        (url("locks:password@", "?sentinel_password=wrong-secret"), "authentication failed"),
        (url("locks:wrong-secret@", "?sentinel_password=sentinel-secret"), "WRONGPASS"),
    ] {
        let error = LockManager::connect(&wrong).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(!error.is_transient() && text.contains(told) && !text.contains("secret"), "{text}");
    }
    let successor = guarded.fall(Fall::Killed).await;
    let guard = manager.lock("k").retry(200).acquire().await.unwrap();
    assert!(successor.exists(&redis_key("k")).await);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn each_missing_right_is_told_by_its_command() {
    let passwords = Passwords { user: Some("asker on >password -@all +ping"), ..SECURE };
    let guarded = Guarded::start_with(1, guarded_by_passwords(&least_rights()), passwords).await;
    let hosts = guarded.hosts();
    let url = |query: &str| format!("redis-sentinel://locks:password@{hosts}{query}#{SERVICE}");
    let error = LockManager::connect(&url("?sentinel_password=sentinel-secret")).await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("'role'"), "{error}");
    let as_user = url("?sentinel_user=asker&sentinel_password=password");
    let error = LockManager::connect(&as_user).await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("'sentinel|get-master-addr-by-name'"), "{error}");
    // With all that README asks for, the primary's right is what is missing again.
    for sentinel in &guarded.sentinels {
        let mut rights = cmd("ACL");
        rights.arg("SETUSER").arg("asker").arg("+sentinel|get-master-addr-by-name").arg("+sentinel|master");
        sentinel.query::<()>(&rights).await.unwrap();
    }
    let error = LockManager::connect(&as_user).await.unwrap_err();
    assert!(error.to_string().contains("'role'"), "{error}");
}

#[tokio::test]
async fn a_service_that_nobody_knows_is_told_and_no_reason_to_try_again() {
    let guarded = Guarded::start(1).await;
    let url = format!("redis-sentinel://{}#other", guarded.hosts());
    let error = LockManager::connect(&url).await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }) && !error.is_transient(), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("`other`") && text.contains("does not know"), "{text}");
    // Servers are no sentinels.
    let error = LockManager::connect(&format!("redis-sentinel://{}#other", guarded.primary().address())).await;
    let error = error.unwrap_err();
    assert!(!error.is_transient() && error.to_string().to_lowercase().contains("sentinel"), "{error}");
}
