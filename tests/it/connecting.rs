//! The ways to a server, and the managers that there can be.

use distlock::{LockError, LockManager, distributed_lock};

use crate::calls::{Failure, connect};
use harness::process::{Child, emit};
use harness::server::Server;

async fn a_lock_is_taken_and_freed(server: &Server, url: &str) {
    let manager = connect(url).await;
    let guard = manager.lock("k").acquire().await.unwrap();
    assert_eq!(server.keys().await, ["lock:{k}"]);
    guard.release().await.unwrap();
    assert_eq!(server.dbsize().await, 0);
}

#[tokio::test]
async fn over_a_unix_socket() {
    let server = Server::options().unix_socket().start().await;
    a_lock_is_taken_and_freed(&server, &server.unix_url()).await;
}

#[tokio::test]
async fn over_the_older_protocol() {
    let server = Server::start().await;
    a_lock_is_taken_and_freed(&server, &format!("{}?protocol=resp2", server.url())).await;
}

#[tokio::test]
async fn an_idle_connection_that_was_closed_costs_no_call_in_either_protocol() {
    let server = Server::start().await;
    for query in ["", "?protocol=resp2"] {
        let manager = connect(&format!("{}{query}", server.url())).await;
        for _ in 0..5 {
            server.kill_clients("normal").await;
            manager.lock("k").acquire().await.unwrap_or_else(|why| panic!("{query}: {why}")).release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_url_that_can_not_be_used_is_told_without_its_password() {
    let urls = [
        "",
        "127.0.0.1:6379",
        "http://u:secret@127.0.0.1",
        "redis://",
        "redis://u:secret@127.0.0.1:99999",
        "redis://u:secret@127.0.0.1/zero",
        "redis://u:secret@127.0.0.1?protocol=resp4",
        "redis://u:secret@127.0.0.1#orders",
        "redis://u:secret@127.0.0.1,127.0.0.2",
        "redis://127.0.0.1?protocl=secret",
        "redis-cluster://u:secret@127.0.0.1/3",
        "redis-cluster://u:secret@127.0.0.1,u:secret@127.0.0.2",
        "redis-sentinel://u:secret@127.0.0.1",
        "redis-sentinel://u:secret@127.0.0.1:secret#orders",
        "redis-sentinel://127.0.0.1/0#orders?sentinel_password=secret",
    ];
    for url in urls {
        let error = LockManager::connect(url).await.expect_err(url);
        assert!(matches!(error, LockError::InvalidOption { option: "url", .. }), "{url}: {error:?}");
        let text = format!("{error} {error:?}");
        assert!(!text.contains("secret"), "{url}: the password is in the text: {text}");
    }
    let builder = format!("{:?}", LockManager::builder().url("redis://u:secret@127.0.0.1"));
    assert!(!builder.contains("secret"), "{builder}");
}

#[tokio::test]
async fn the_password_shows_in_no_debug_text() {
    let server = Server::options().password("secret").start().await;
    let manager = connect(&server.url()).await;
    let guard = manager.lock("k").acquire().await.unwrap();
    let text = format!("{manager:?} {guard:?} {:?}", manager.lock("k"));
    assert!(!text.contains("secret"), "{text}");
    guard.release().await.unwrap();
}

#[distributed_lock(key = "which-manager", ttl = "5s")]
async fn locked() -> Result<(), Failure> {
    emit("ran", "");
    Ok(())
}

/// A role: calls without a manager, with one, and with a second one that is refused.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn install_twice(_arguments: &[&str]) {
    match locked().await {
        Err(Failure::Lock(error @ LockError::NotInstalled)) => emit("not-installed", error),
        other => panic!("{other:?}"),
    }
    let first = LockManager::in_memory();
    first.install().unwrap();
    match LockManager::in_memory().install() {
        Err(error @ LockError::AlreadyInstalled) => emit("already-installed", error),
        other => panic!("{other:?}"),
    }
    let _held = first.lock("which-manager").acquire().await.unwrap();
    assert!(matches!(locked().await, Err(Failure::Lock(LockError::Busy { .. }))), "the first one does not stay");
    LockManager::in_memory().scope(locked()).await.unwrap();
    emit("done", "");
}

/// In a process of its own, since what is installed is the process's.
#[tokio::test]
async fn without_a_manager_nothing_runs_and_the_first_one_that_is_installed_stays() {
    let child = Child::spawn("connecting: install twice", &[""]).await;
    let text = child.event("not-installed").await;
    assert!(text.contains(".install()") && text.contains(".scope("), "how to mend it? {text}");
    child.event("already-installed").await;
    child.event("done").await;
    let ran = child.output().matches("@ran").count();
    assert_eq!(ran, 1, "of three calls, the body runs in the one that gets its lock");
}

/// The text says why a server can't be reached.
#[tokio::test]
async fn an_address_that_is_wrong_is_told_with_its_reason() {
    let error = LockManager::connect("redis+unix:///no/such/socket").await.unwrap_err().to_string();
    assert!(!error.contains("refused the connection"), "nobody refused: {error}");
    let error = LockManager::connect("redis://no-such-host.invalid").await.unwrap_err().to_string();
    assert!(error.contains("lookup") || error.contains("resolve") || error.contains("not known"), "no reason: {error}");
}
