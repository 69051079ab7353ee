//! The lease and the token that the attribute binds are those of the lock, whichever attempt has brought it.

use std::time::{Duration, Instant};

use distlock::{FencingToken, Lease, LockError, LockManager, LostReason, Mode, distributed_lock};
use redis::cmd;

use crate::calls::{FOR_EVER, connect, redis_key};
use harness::cluster::Cluster;
use harness::eventually::{eventually, soon};
use harness::server::Server;

const ANOTHER: &str = "00000000-0000-4000-8000-000000000000/another-host/1";

/// What a body has seen: whether its lease is held, how much is left of it, its token and its fencing token.
type Seen = (bool, Duration, String, FencingToken);

fn seen(lease: &Lease, token: FencingToken) -> Result<Seen, LockError> {
    lease.ensure_held()?;
    assert_eq!(lease.fencing_token(), Some(token));
    Ok((lease.is_held(), lease.remaining(), lease.token().to_string(), token))
}

#[distributed_lock(key = "<key>", retry = 100, lease = lease, fencing_token = token, manager = manager)]
async fn by_tries(manager: &LockManager, key: &str) -> Result<Seen, LockError> {
    seen(&lease, token)
}

#[distributed_lock(key = "<key>", wait = FOR_EVER, lease = lease, fencing_token = token, manager = manager)]
async fn by_waiting(manager: &LockManager, key: &str) -> Result<Seen, LockError> {
    seen(&lease, token)
}

#[distributed_lock(keys = ["<one>", "<two>"], retry = 100, lease = lease, fencing_token = token, manager = manager)]
async fn several(manager: &LockManager, one: &str, two: &str) -> Result<Seen, LockError> {
    seen(&lease, token)
}

#[distributed_lock(keys = ["<one>", "<two>"], wait = FOR_EVER, lease = lease, fencing_token = token, manager = manager)]
async fn several_by_waiting(manager: &LockManager, one: &str, two: &str) -> Result<Seen, LockError> {
    seen(&lease, token)
}

/// Locks `a`, or `a` and `b`, in all ways. With `busy`, `a` is held by somebody else when a call begins, until it was refused.
async fn all_ways(manager: &LockManager, (a, b): (&str, &str), busy: Option<&[&Server]>) -> Vec<Seen> {
    let mut all = Vec::new();
    for way in 0..4 {
        for server in busy.into_iter().flatten() {
            server.set_for(&redis_key(a), ANOTHER, FOR_EVER).await;
        }
        let (manager, a, b) = (manager.clone(), a.to_owned(), b.to_owned());
        let key = redis_key(&a);
        let call = tokio::spawn(async move {
            match way {
                0 => by_tries(&manager, &a).await,
                1 => by_waiting(&manager, &a).await,
                2 => several(&manager, &a, &b).await,
                _ => several_by_waiting(&manager, &a, &b).await,
            }
        });
        if busy.is_some() {
            // Longer than several attempts take.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        for server in busy.into_iter().flatten() {
            server.del(&key).await;
        }
        all.push(call.await.unwrap().unwrap());
    }
    all
}

fn are_good(all: &[Seen]) {
    for (way, (is_held, remaining, token, fence)) in all.iter().enumerate() {
        assert!(*is_held && *remaining > Duration::from_secs(20), "way {way}: {remaining:?} are left");
        assert!(fence.get() > 1_000_000, "way {way}: the token is {fence}");
        assert_eq!(token.len(), 36);
    }
}

#[tokio::test]
async fn over_several_servers() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Server::start().await);
    }
    let manager = LockManager::builder().redlock(servers.iter().map(Server::url)).build().await.unwrap();
    are_good(&all_ways(&manager, ("a", "b"), None).await);
    let servers: Vec<&Server> = servers.iter().collect();
    are_good(&all_ways(&manager, ("a", "b"), Some(&servers)).await);
}

#[tokio::test]
async fn on_a_cluster() {
    let cluster = Cluster::start(3, 0).await;
    let manager = connect(&cluster.url()).await;
    let (a, b) = (cluster.key_at(0).await, cluster.key_at(1).await);
    are_good(&all_ways(&manager, (&a, &b), None).await);
    are_good(&all_ways(&manager, (&a, &b), Some(&[&cluster.nodes[0]])).await);
}

#[distributed_lock(key = "k", global, ttl = "900ms", retry = 100, on_lost = finish, lease = lease, manager = manager)]
async fn until_it_is_lost(manager: &LockManager, servers: &[Server]) -> Result<LostReason, LockError> {
    for server in servers {
        server.query::<()>(&cmd("FLUSHALL")).await.unwrap();
    }
    let reason = lease.lost().await;
    assert!(lease.ensure_held().is_err() && !lease.is_held(), "it was lost, and the lease says that it is held");
    Ok(reason)
}

#[tokio::test]
async fn a_loss_is_told_after_several_attempts_too() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Server::start().await);
        servers.last().unwrap().set_for(&redis_key("k"), ANOTHER, FOR_EVER).await;
    }
    let manager = LockManager::builder().redlock(servers.iter().map(Server::url)).build().await.unwrap();
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let free = tokio::spawn(async move {
        // Longer than an attempt takes.
        tokio::time::sleep(Duration::from_millis(500)).await;
        for url in urls {
            harness::inspect::query_at::<()>(url, cmd("DEL").arg(redis_key("k")).clone()).await.unwrap();
        }
    });
    assert_eq!(until_it_is_lost(&manager, &servers).await.unwrap(), LostReason::Gone);
    free.await.unwrap();
    eventually("all to be free", || async { servers[0].dbsize().await == 0 }).await;
}

/// How often a script was called, by hash or by source.
async fn script_calls(server: &Server) -> u64 {
    let calls = server.calls().await;
    ["evalsha", "eval"].iter().filter_map(|name| calls.get(*name)).sum()
}

#[tokio::test]
async fn the_leases_of_many_locks_are_renewed_in_few_commands_and_each_for_itself() {
    // There are at most 16 batches in a period, however far apart the locks were taken.
    const LOCKS: usize = 600;
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let ttl = Duration::from_millis(1_500);
    let mut guards = Vec::new();
    for number in 0..LOCKS {
        guards.push(manager.lock(format!("k{number}")).ttl(ttl).acquire().await.unwrap());
    }
    let share = manager.lock("shared").mode(Mode::Read).ttl(ttl).acquire().await.unwrap();
    // One is gone, and one has made place for something else: those two are lost, and no other.
    server.del(&redis_key("k7")).await;
    server.del(&redis_key("k8")).await;
    server.query::<()>(cmd("HSET").arg(redis_key("k8")).arg("field").arg("value")).await.unwrap();
    for number in [7, 8] {
        assert_eq!(soon("a loss", guards[number].lease().lost()).await, LostReason::Gone);
    }
    let (before, renewed) = (script_calls(&server).await, Instant::now());
    // For two ttls, in which each of them is renewed several times.
    tokio::time::sleep(2 * ttl).await;
    let (calls, ttls) = (script_calls(&server).await - before, renewed.elapsed().as_secs_f64() / ttl.as_secs_f64());
    for (number, guard) in guards.iter().enumerate() {
        assert_eq!(guard.lease().is_held(), number != 7 && number != 8, "{number}");
    }
    share.lease().ensure_held().unwrap();
    // Three times in each ttl at least. What was acquired at different times may be renewed at different times.
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let (calls, locks) = (calls as f64, (LOCKS - 2) as f64);
    let renewals = 3.0 * ttls * locks;
    assert!(calls < renewals / 20.0, "{calls} calls for {renewals:.0} renewals");
}

/// An error says nothing of who has a lock, also where one command renews several.
#[tokio::test]
async fn a_server_that_refuses_to_look_costs_no_lease_before_its_end() {
    let server = Server::options().user("locks on >password ~* &* +@all").start().await;
    let manager = connect(&format!("redis://locks:password@{}", server.address())).await;
    let ttl = Duration::from_secs(6);
    let mut guards = Vec::new();
    for number in 0..50 {
        guards.push(manager.lock(format!("k{number}")).ttl(ttl).acquire().await.unwrap());
    }
    let user = |rule: &str| cmd("ACL").arg("SETUSER").arg("locks").arg(rule).clone();
    server.query::<()>(&user("-get")).await.unwrap();
    server.query::<()>(cmd("ACL").arg("LOG").arg("RESET")).await.unwrap();
    let refused = || async { !server.query::<Vec<redis::Value>>(cmd("ACL").arg("LOG")).await.unwrap().is_empty() };
    eventually("a renewal to be refused", refused).await;
    // Long enough for all of them to be due, and for a loss to be noticed; far from the end of any lease.
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.query::<()>(&user("+get")).await.unwrap();
    for guard in &guards {
        // Beyond the end of what was granted at first.
        eventually("another renewal", || async { server.pttl(&redis_key(guard.lease().key())).await > 5_000 }).await;
        guard.lease().ensure_held().unwrap();
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
}
