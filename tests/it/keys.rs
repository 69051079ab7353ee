//! Which lock a call takes: one for each key, and never one by accident.

use distlock::{LockError, LockManager, distributed_lock};
use redis::cmd;

use crate::calls::{Failure, connect};
use harness::server::Server;

#[distributed_lock(key = "order:<id>", ttl = "10m")]
async fn of_text(id: &str) -> Result<(), Failure> {
    Ok(())
}

#[distributed_lock(key = "pair:<a>:<b>", ttl = "10m")]
async fn of_two(a: &str, b: &str) -> Result<(), Failure> {
    Ok(())
}

#[tokio::test]
async fn a_placeholder_that_renders_to_nothing_is_refused_and_the_body_does_not_run() {
    let manager = LockManager::in_memory();
    for empty in ["", " ", "\t"] {
        match manager.scope(of_text(empty)).await {
            Err(Failure::Lock(error @ LockError::InvalidKey { .. })) => {
                assert!(error.to_string().contains("`<id>` rendered to nothing"), "{error}");
            }
            other => panic!("{empty:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_key_that_is_too_long_is_refused_before_anything_is_sent() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let monitor = server.monitor().await;
    for key in [String::new(), "k".repeat(1_025)] {
        let error = manager.lock(key).acquire().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidKey { .. }), "{error:?}");
    }
    assert!(monitor.lines_with(&["lock:"]).await.is_empty(), "something was sent");
    manager.lock("k".repeat(1_024)).acquire().await.unwrap().release().await.unwrap();
}

/// Keys that would be one lock, or another lock's helper, if they stood on the server as they are.
const ODD: &[&str] =
    &["a", "a}", "a%7D", "a%", "a%25", "{a}", "{a", "}", "{}", "a}:queue", "a:b", "a\r\nb", "a\0b", "ä", " "];

#[tokio::test]
async fn different_keys_are_different_locks_on_the_server_and_each_has_one_hash_tag() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let mut guards = Vec::new();
    for key in ODD {
        guards.push(manager.lock(*key).acquire().await.unwrap_or_else(|why| panic!("{key:?}: {why}")));
        assert!(manager.lock(*key).acquire().await.is_err_and(|error| error.is_busy()), "{key:?} is not locked");
    }
    let names = server.keys().await;
    assert_eq!(names.len(), ODD.len(), "{names:?}");
    for name in &names {
        let tag = name.strip_prefix("lock:{").and_then(|rest| rest.strip_suffix('}'));
        assert!(tag.is_some_and(|tag| !tag.is_empty() && !tag.contains('}')), "{name:?}");
        let slot: u32 = server.query(cmd("CLUSTER").arg("KEYSLOT").arg(name)).await.unwrap_or(0);
        let of_helper: u32 =
            server.query(cmd("CLUSTER").arg("KEYSLOT").arg(format!("{name}:fence"))).await.unwrap_or(0);
        assert_eq!(slot, of_helper, "{name:?} and its helper have different slots");
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn values_with_the_separator_in_them_are_kept_apart() {
    let manager = LockManager::in_memory();
    let _held = manager.lock("pair:x:y%3Az").acquire().await.unwrap();
    assert!(matches!(manager.scope(of_two("x", "y:z")).await, Ok(())), "the last value needs no encoding");
    let _held = manager.lock("pair:x%3Ay:z").acquire().await.unwrap();
    assert!(matches!(manager.scope(of_two("x:y", "z")).await, Err(Failure::Lock(LockError::Busy { .. }))));
}

/// Different argument tuples give different keys.
#[tokio::test]
async fn different_arguments_give_different_keys() {
    #[distributed_lock(key = "<a>%<b>", lease = lease)]
    async fn key(a: &str, b: &str) -> Result<String, Failure> {
        Ok(lease.key().to_owned())
    }
    let locks = LockManager::in_memory();
    let one = locks.scope(key("x%y", "25z")).await.unwrap();
    let other = locks.scope(key("x", "25y%z")).await.unwrap();
    assert_ne!(one, other);
}

struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Err(std::fmt::Error)
    }
}

/// No panic in library code: a key that can't be rendered is an `InvalidKey`, as it is in a template.
#[tokio::test]
async fn a_key_expression_that_fails_to_render_is_an_error() {
    #[distributed_lock(key = id)]
    async fn locked(id: Broken) -> Result<(), Failure> {
        let _ = id;
        Ok(())
    }
    let outcome = tokio::spawn(LockManager::in_memory().scope(locked(Broken))).await;
    assert!(outcome.is_ok(), "it panicked: {outcome:?}");
}

/// A placeholder that renders to blanks is refused, whichever blanks they are.
#[tokio::test]
async fn a_value_of_control_blanks_is_refused_as_spaces_are() {
    #[distributed_lock(key = "order:<id>")]
    async fn locked(id: &str) -> Result<(), Failure> {
        Ok(())
    }
    let locks = LockManager::in_memory();
    assert!(locks.scope(locked("  ")).await.is_err());
    for blank in ["\n", "\t", "\r\n"] {
        assert!(locks.scope(locked(blank)).await.is_err(), "{blank:?} is taken for a value");
    }
}
