//! The holder that loses Redis while everything else works: it stops before another process can begin.

use std::time::Duration;

use crate::calls::{Failure, brisk, connect};
use harness::eventually::soon;
use harness::holders::{Log, NotingPolls, Until, assert_no_overlap};
use harness::process::{Child, emit};
use harness::proxy::{Proxy, Way};
use harness::server::Server;

const TTL: Duration = Duration::from_secs(1);
const KEYS: usize = 10;

/// A role: holds all keys of a round until it loses them, and tells of both.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn hold_until_lost(arguments: &[&str]) {
    for_each_key(arguments, |manager, key, log| async move {
        let body = async {
            let holder = log.start(&key, &uuid::Uuid::new_v4().to_string());
            emit("holds", &key);
            loop {
                // The pace of the body's steps; it never ends by itself.
                tokio::time::sleep(Duration::from_millis(2)).await;
                holder.step();
            }
        };
        let call = manager.lock(&key).ttl(TTL).run::<(), Failure, _>(body);
        let failure = NotingPolls::of(call).await.unwrap_err();
        emit("lost", format_args!("{:?}", failure.lost()));
    })
    .await;
}

/// A role: takes all keys of a round as soon as it can get them, does a few steps with each, and tells.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn take_over(arguments: &[&str]) {
    for_each_key(arguments, |manager, key, log| async move {
        let body = async {
            let holder = log.start(&key, &uuid::Uuid::new_v4().to_string());
            for _ in 0..5 {
                // The pace of the body's steps.
                tokio::time::sleep(Duration::from_millis(2)).await;
                holder.step();
            }
            Ok::<_, Failure>(())
        };
        let call = manager.lock(&key).ttl(TTL).retry(u32::MAX).backoff(brisk()).run(body);
        NotingPolls::of(call).await.unwrap();
        emit("took", &key);
    })
    .await;
}

/// Plays a part for every key of a round at once. Arguments: the URL, the log of holders, the name of the round.
async fn for_each_key<F>(arguments: &[&str], part: impl Fn(distlock::LockManager, String, Log) -> F)
where
    F: Future<Output = ()> + 'static,
{
    let [url, log, round] = arguments[..] else { panic!("{arguments:?}") };
    let manager = connect(url).await;
    emit("connected", "");
    let tasks = tokio::task::LocalSet::new();
    for number in 0..KEYS {
        tasks.spawn_local(part(manager.clone(), format!("{round}/{number}"), Log::open(log)));
    }
    tasks.await;
}

/// One round of [`KEYS`] keys: the holder is cut off by `cut`, and `mend` lets the successor in where the fault keeps it
/// out too.
async fn a_round(server: &Server, round: &str, cut: impl AsyncFnOnce(&Proxy), mend: impl FnOnce()) {
    let link = Proxy::start(server).await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("holders");
    let log_name = log.to_str().unwrap();
    let holder = Child::spawn("isolated: hold", &[&link.url(), log_name, round]).await;
    for _ in 0..KEYS {
        holder.event("holds").await;
    }
    let successor = Child::spawn("isolated: take over", &[&server.url(), log_name, round]).await;
    successor.event("connected").await;
    cut(&link).await;
    for _ in 0..KEYS {
        assert_eq!(holder.event("lost").await, "Expired");
    }
    mend();
    for _ in 0..KEYS {
        successor.event("took").await;
    }
    // Steps count and drops don't: on a crowded machine the drop may be late, but no step may follow the lease.
    let holds = assert_no_overlap(&log, Until::LastStep);
    assert_eq!(holds.len(), 2 * KEYS, "each key had a holder and a successor");
    soon("the holder to end", holder.wait()).await;
}

#[tokio::test]
async fn behind_a_black_hole() {
    let server = Server::start().await;
    for round in ["1", "2"] {
        a_round(&server, round, async |link| link.blackhole(), || ()).await;
    }
}

#[tokio::test]
async fn behind_a_link_that_refuses() {
    let server = Server::start().await;
    a_round(&server, "1", async |link| link.refuse().await, || ()).await;
}

/// The server goes on extending the lease, as long as the holder sends renewals: nobody else gets in before the holder
/// has stopped, which is all that is asked.
#[tokio::test]
async fn behind_a_link_that_loses_replies() {
    let server = Server::start().await;
    a_round(&server, "1", async |link| link.hold(Way::Replies), || ()).await;
}

#[tokio::test]
async fn of_a_frozen_server() {
    let server = Server::start().await;
    a_round(&server, "1", async |_| server.freeze(), || server.thaw()).await;
}
