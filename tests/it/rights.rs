//! The rights that a user of the server needs: those of the README are enough, and none of them is too much.

use std::time::Duration;

use distlock::{LockError, LockManager, LostReason, Mode};
use redis::cmd;
use tracing::Level;

use crate::calls::{Call, FOR_EVER, Failure, brisk, connect, is_freed, redis_key, sees_renewals, warm_up};
use crate::events;
use harness::cluster::Cluster;
use harness::eventually::{eventually, soon};
use harness::sentinel::{Fall, Guarded, Passwords, SERVICE, followed};
use harness::server::{Options, Server};

const ANOTHER: &str = "00000000-0000-4000-8000-000000000000/another-host/1";
/// What a wait may take that is refused at once.
const LONG: Duration = Duration::from_secs(60);

/// The line of the README, word for word.
pub(crate) fn least_rights() -> String {
    let readme = include_str!("../../README.md");
    readme.lines().find_map(|line| line.strip_prefix("user ")).unwrap().to_owned()
}

/// The line of TOPOLOGIES.md for a node of a cluster, word for word.
fn least_rights_on_a_node() -> String {
    let text = include_str!("../../TOPOLOGIES.md");
    let rights = text.lines().filter_map(|line| line.strip_prefix("user "));
    rights.filter(|rights| rights.contains("cluster|nodes")).collect::<String>()
}

/// The same as [`least_rights`] without one of its words.
fn without(right: &str) -> String {
    let rights = least_rights();
    assert!(rights.split(' ').any(|word| word == right), "`{right}` is none of: {rights}");
    rights.split(' ').filter(|word| *word != right).collect::<Vec<_>>().join(" ")
}

fn url(server: &Server) -> String {
    format!("redis://locks:password@{}", server.address())
}

/// Uses all that there is.
async fn does_everything(server: &Server, url: &str) {
    let manager = || LockManager::builder().url(url).replica_acks(1).build();
    let (manager, another) = (manager().await.unwrap(), manager().await.unwrap());
    // A grant, a refusal, a try by script, a release.
    warm_up(&manager).await;
    let call = Call::holding(&manager, "renewed", Duration::from_millis(900)).await;
    sees_renewals(server, "renewed", 1).await;
    call.finished().await.unwrap();

    let guard = manager.lock("k").fencing_token(true).acquire().await.unwrap();
    let waiter = tokio::spawn(another.lock("k").wait(FOR_EVER).fencing_token(true).acquire());
    let subscribed = async || server.query::<Vec<String>>(cmd("PUBSUB").arg("CHANNELS").arg("lock:*")).await.unwrap();
    eventually("the waiter to subscribe", async || subscribed().await.len() == 1).await;
    guard.release().await.unwrap();
    let guard = soon("the waiter", waiter).await.unwrap().unwrap();
    let gives_up = another.lock("k").wait(Duration::from_millis(200)).acquire().await;
    assert!(gives_up.unwrap_err().to_string().contains("another"), "the holder waits for itself");
    guard.release().await.unwrap();

    another.lock_all(["k", "l"]).fencing_token(true).acquire().await.unwrap().release().await.unwrap();
    another.lock_all(["k", "l"]).wait(LONG).acquire().await.unwrap().release().await.unwrap();
    let inner = manager.clone();
    let nested = async move { inner.lock("k").fencing_token(true).run(async { Ok::<_, Failure>(()) }).await };
    manager.lock("k").run(nested).await.unwrap();
    let dropped = manager.lock("k").acquire().await.unwrap();
    drop(dropped);
    is_freed(server, "k").await;
}

#[tokio::test]
async fn the_least_rights_are_enough_for_everything() {
    let servers = followed(1, Server::options().user(&least_rights())).await;
    does_everything(&servers[0], &url(&servers[0])).await;
}

#[tokio::test]
async fn they_are_enough_through_sentinels_that_have_users_too() {
    let text = include_str!("../../TOPOLOGIES.md");
    let lines = text.lines().filter_map(|line| line.strip_prefix("user "));
    let rights: String = lines.filter(|rights| rights.contains("+role")).collect();
    let asker = "asker on >password -@all +sentinel|get-master-addr-by-name +sentinel|master";
    let passwords = Passwords { user: Some(asker), ..Passwords::default() };
    let guarded = Guarded::start_with(2, Server::options().user(&rights), passwords).await;
    let query = "?sentinel_user=asker&sentinel_password=password";
    let url = format!("redis-sentinel://locks:password@{}{query}#{SERVICE}", guarded.hosts());
    does_everything(guarded.primary(), &url).await;
    let manager = LockManager::builder().url(&url).replica_acks(1).build().await.unwrap();
    let successor = guarded.fall(Fall::Killed).await;
    // The one that is left has to follow the successor first.
    let guard = soon("a lock there", manager.lock("k").retry(1000).acquire()).await.unwrap();
    assert!(successor.exists(&redis_key("k")).await);
    guard.release().await.unwrap();

    for sentinel in &guarded.sentinels {
        let mut rights = cmd("ACL");
        rights.arg("SETUSER").arg("asker").arg("-sentinel|master");
        sentinel.query::<()>(&rights).await.unwrap();
    }
    let error = LockManager::connect(&url).await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("'sentinel|master'"), "{error}");
}

/// Nodes say `NOPERM` of what is missing, and what each of them has to do alone is done by rights of its own.
#[tokio::test]
async fn they_are_enough_on_each_node_of_a_cluster() {
    let rights = least_rights_on_a_node();
    let cluster = Cluster::start_with(3, 0, Server::options().user(&rights)).await;
    let url = cluster.url().replace("://", "://locks:password@");
    let (manager, another) = (connect(&url).await, connect(&url).await);
    let mut keys = Vec::new();
    for home in 0..3 {
        let key = cluster.key_at(home).await;
        let guard = manager.lock(&key).fencing_token(true).acquire().await.unwrap();
        let waiter = tokio::spawn(another.lock(&key).wait(FOR_EVER).fencing_token(true).acquire());
        let node = &cluster.nodes[home];
        let channels =
            async || node.query::<Vec<String>>(cmd("PUBSUB").arg("SHARDCHANNELS").arg("lock:*")).await.unwrap();
        eventually("the waiter to subscribe", async || channels().await.len() == 1).await;
        guard.release().await.unwrap();
        soon("the waiter", waiter).await.unwrap().unwrap().release().await.unwrap();
        let call = Call::holding(&manager, &key, Duration::from_millis(900)).await;
        sees_renewals(node, &key, 1).await;
        call.finished().await.unwrap();
        keys.push(key);
    }
    another.lock_all(&keys).fencing_token(true).acquire().await.unwrap().release().await.unwrap();
    another.lock_all(&keys).wait(LONG).acquire().await.unwrap().release().await.unwrap();
    // A look at the server is left out where it is not allowed. Nothing else was refused.
    for node in &cluster.nodes {
        let stats = node.info("commandstats").await.unwrap();
        let is_refused = |line: &&str| line.contains("rejected_calls=") && !line.contains("rejected_calls=0,");
        let refused: Vec<&str> = stats.lines().filter(is_refused).collect();
        assert!(refused.iter().all(|line| line.starts_with("cmdstat_info:")), "{refused:?}");
    }
    // The right to ask is missed only while a slot is on its way.
    cluster.nodes[1].query::<()>(cmd("ACL").arg("SETUSER").arg("locks").arg("-asking")).await.unwrap();
    cluster.begin_move(cluster.slot(&keys[0]).await, &cluster.nodes[0], &cluster.nodes[1]).await;
    let error = manager.lock(&keys[0]).acquire().await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("'asking'"), "{error}");
    cluster.nodes[0].query::<()>(cmd("ACL").arg("SETUSER").arg("locks").arg("-cluster|nodes")).await.unwrap();
    let url = format!("redis-cluster://locks:password@{}", cluster.nodes[0].address());
    let error = LockManager::connect(&url).await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("cluster|nodes"), "{error}");
}

#[tokio::test]
async fn another_database_needs_one_right_more() {
    let rules = least_rights();
    let server = Server::options().user(&rules).start().await;
    let error = LockManager::connect(&format!("{}/3", url(&server))).await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("'select'"), "which right is missing? {error}");
    let server = Server::options().user(&format!("{rules} +select")).start().await;
    connect(&format!("{}/3", url(&server))).await.lock("k").acquire().await.unwrap().release().await.unwrap();
}

/// Without them it goes on, and says so: see below.
const FOR_CALLS: [&str; 3] = ["+publish", "+subscribe", "&lock:*"];

/// Does what needs the right, and returns the error.
async fn needing(right: &str, server: &Server, manager: &LockManager) -> LockError {
    let lock = || manager.lock("k");
    let held = async || server.set_for(&redis_key("k"), ANOTHER, FOR_EVER).await;
    let release = async || lock().acquire().await.unwrap().release().await.unwrap_err();
    match right {
        "+set" | "+wait" | "~lock:*" => lock().acquire().await.unwrap_err(),
        "+get" | "+pttl" => {
            held().await;
            lock().acquire().await.unwrap_err()
        }
        "+del" | "+eval" | "+evalsha" => release().await,
        "+time" => lock().fencing_token(true).acquire().await.unwrap_err(),
        // Those of locks that several may hold.
        "+exists" => lock().mode(Mode::Read).acquire().await.unwrap_err(),
        "+zrem" | "+zcard" => lock().wait(LONG).acquire().await.unwrap_err(),
        "+pexpire" | "+zadd" | "+zscore" | "+zrange" | "+zrangebyscore" => {
            held().await;
            lock().wait(LONG).acquire().await.unwrap_err()
        }
        other => panic!("nothing is known that needs `{other}`"),
    }
}

#[tokio::test]
async fn each_right_is_needed_and_the_error_names_it() {
    let rights = least_rights();
    let begin = rights.split(' ').position(|word| word == "resetkeys").unwrap() + 1;
    let words: Vec<&str> = rights.split(' ').skip(begin).filter(|word| *word != "-@all").collect();
    assert!(words.len() >= 18 && FOR_CALLS.iter().all(|right| words.contains(right)), "{words:?}");
    for right in words.into_iter().filter(|word| !FOR_CALLS.contains(word)) {
        let server = Server::options().user(&without(right)).start().await;
        let builder = LockManager::builder().url(url(&server)).replica_acks(u32::from(right == "+wait"));
        let manager = builder.build().await.unwrap();
        let error = soon(right, needing(right, &server, &manager)).await;
        let (text, command) = (error.to_string(), right.trim_start_matches('+'));
        assert!(!error.is_transient(), "{right}: it does not pass: {text}");
        let named = text.contains(&format!("'{command}'")) || text.contains(&format!("`{right}`"));
        assert!(named && text.contains(&server.address()), "{right}: {text}");
        // What can't be released without the right is another matter.
        if !["+del", "+eval", "+evalsha"].contains(&right) {
            let left = server.get(&redis_key("k")).await;
            assert!(left.is_none_or(|value| value == ANOTHER), "{right}: something was left behind");
        }
    }
}

#[tokio::test]
async fn a_renewal_that_lacks_its_right_is_told_before_the_lease_ends() {
    events::listen();
    let server = Server::options().user(&without("+pexpire")).start().await;
    let call = Call::holding(&connect(&url(&server)).await, "rights:renewed", Duration::from_secs(1)).await;
    assert_eq!(call.ended().await.unwrap_err().lost(), LostReason::Expired);
    let warnings = events::seen_with(Level::WARN, &server.address());
    assert!(warnings.iter().any(|text| text.contains("`+pexpire`")), "{warnings:?}");
}

/// Nobody is called for its turn then, and yet the turn is found.
#[tokio::test]
async fn without_the_rights_for_calls_waiting_goes_on_and_a_warning_names_them() {
    events::listen();
    for right in FOR_CALLS {
        let server = Server::options().user(&without(right)).start().await;
        let (holder, waiter) = (connect(&url(&server)).await, connect(&url(&server)).await);
        let guard = holder.lock("k").acquire().await.unwrap();
        let waiting = tokio::spawn(waiter.lock("k").wait(FOR_EVER).acquire());
        let command = right.trim_start_matches('+');
        let told = async || {
            let named = |text: &String| text.contains(&format!("'{command}'")) || text.contains(&format!("`{right}`"));
            events::seen_with(Level::WARN, &server.address()).iter().any(named)
        };
        eventually(&format!("a warning about {right}"), told).await;
        guard.release().await.unwrap();
        soon("the waiter", waiting).await.unwrap().unwrap().release().await.unwrap();
    }
}

/// To look at the server is a right that nobody needs.
#[tokio::test]
async fn all_rights_but_one_key_pattern_are_not_enough() {
    let rights = Options::default().user("locks on >password ~other:* &* +@all");
    let server = rights.start().await;
    let manager = connect(&url(&server)).await;
    for error in [
        manager.lock("k").acquire().await.unwrap_err(),
        manager.lock("k").fencing_token(true).acquire().await.unwrap_err(),
        manager.lock("k").wait(LONG).acquire().await.unwrap_err(),
        manager.lock_all(["k", "l"]).acquire().await.unwrap_err(),
    ] {
        assert!(!error.is_transient() && error.to_string().contains("`~lock:*`"), "{error}");
    }
    let other = LockManager::builder().url(url(&server)).prefix("other:").build().await.unwrap();
    other.lock("k").retry(1).backoff(brisk()).acquire().await.unwrap().release().await.unwrap();
}
