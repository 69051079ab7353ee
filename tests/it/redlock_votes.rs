//! Which of several independent servers have a vote, how one that missed a lock gets it, and what is told about it.

use std::time::{Duration, Instant};

use distlock::LockManager;
use redis::cmd;
use tokio::runtime::Builder;
use tracing::Level;

use crate::calls::{Failure, brisk, redis_key};
use crate::events;
use crate::redlock_faults::Five;
use harness::eventually::{eventually, soon};
use harness::proxy::{Proxy, Trip, Way};
use harness::server::Server;

const LONG: Duration = Duration::from_secs(60);
const HOLDER: &str = "00000000-0000-4000-8000-000000000000/other";

async fn over(links: &[Proxy]) -> LockManager {
    LockManager::builder().redlock(links.iter().map(Proxy::url)).ttl(LONG).build().await.unwrap()
}

async fn warm_up(manager: &LockManager) {
    for _ in 0..3 {
        manager.lock("warm").acquire().await.unwrap().release().await.unwrap();
    }
}

/// Where the key stands.
async fn places(servers: &[Server], key: &str) -> Vec<bool> {
    let mut places = Vec::new();
    for server in servers {
        places.push(server.exists(&redis_key(key)).await);
    }
    places
}

async fn stands_on_all(servers: &[Server], key: &str) {
    eventually("all to have it", || async { places(servers, key).await.iter().all(|stands| *stands) }).await;
}

async fn is_free(servers: &[Server], key: &str) {
    eventually("nothing to be left", || async { !places(servers, key).await.contains(&true) }).await;
}

#[tokio::test]
async fn an_attempt_that_is_over_sets_nothing_where_its_connection_comes_later() {
    let five = Five::start().await;
    let manager = over(&five.links).await;
    warm_up(&manager).await;
    for server in &five.servers[..3] {
        server.set_for(&redis_key("k"), HOLDER, LONG * 5).await;
    }
    five.links.iter().for_each(Proxy::reset);
    tokio::time::sleep(Duration::from_millis(50)).await; // for the client to hear of it
    // One connects late, and one does as it is told but its answer is lost: that is what the watchdog looks after.
    five.links[4].delay(Way::Replies, Duration::from_millis(200));
    five.links[3].arm("PX", 0, Trip::LoseReply(Duration::ZERO));
    assert!(manager.lock("k").acquire().await.unwrap_err().is_transient());
    // By now the late one is connected to: that takes a few round trips.
    tokio::time::sleep(Duration::from_secs(2)).await;
    is_free(&five.servers[3..], "k").await;
}

#[tokio::test]
async fn a_lock_gets_the_votes_of_servers_that_missed_it() {
    let five = Five::start().await;
    let manager = over(&five.links).await;
    warm_up(&manager).await;
    // The other two have no connection when the lock is taken, though nothing is wrong with them.
    five.links[3..].iter().for_each(Proxy::reset);
    let ttl = Duration::from_millis(1_500);
    let guard = manager.lock("k").ttl(ttl).retry(1_000).backoff(brisk()).acquire().await.unwrap();
    stands_on_all(&five.servers, "k").await;
    five.servers[2].restart().await;
    stands_on_all(&five.servers, "k").await;
    // Their first renewals: what was just set counts from the next one on.
    tokio::time::sleep(ttl).await;
    five.servers[0].kill();
    five.servers[1].kill();
    // Two leases: only renewals on the three others keep it.
    tokio::time::sleep(ttl * 2).await;
    guard.lease().ensure_held().unwrap();
    guard.release().await.unwrap();
    is_free(&five.servers[2..], "k").await;
}

#[tokio::test]
async fn a_vote_that_comes_while_the_lock_is_released_is_given_back() {
    let five = Five::start().await;
    let manager = over(&five.links).await;
    warm_up(&manager).await;
    for round in 0..12 {
        // Requests to it arrive late, and so may meet the release on its way or be overtaken by it.
        five.links[4].delay(Way::Requests, Duration::from_millis(150));
        five.links[4].reset();
        let request = manager.lock("k").ttl(Duration::from_secs(2)).retry(1_000).backoff(brisk());
        let guard = request.acquire().await.unwrap();
        // From before the first renewal, which sets it there, to after it.
        tokio::time::sleep(Duration::from_millis(300 + round * 60)).await;
        guard.release().await.unwrap();
        five.links[4].pass();
    }
    is_free(&five.servers, "k").await;
    // What is late is there by now.
    tokio::time::sleep(Duration::from_millis(500)).await;
    is_free(&five.servers, "k").await;
}

/// Its questions have had answers, which nobody reads.
#[test]
fn a_runtime_that_nobody_drives_costs_others_no_votes() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (five, manager) = runtime.block_on(async {
        let five = Five::start().await;
        let manager = over(&five.links).await;
        (five, manager)
    });
    let idle = Builder::new_current_thread().enable_all().build().unwrap();
    idle.block_on(warm_up(&manager));
    for link in &five.links[3..] {
        link.delay(Way::Replies, Duration::from_millis(100));
    }
    idle.block_on(async { manager.lock("idle").acquire().await.unwrap().release().await.unwrap() });
    five.links.iter().for_each(Proxy::pass);
    runtime.block_on(async {
        warm_up(&manager).await;
        for number in 0..5 {
            // Longer than a server may owe an answer.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let key = format!("k{number}");
            // Without renewals, those who miss it don't get it later.
            let guard = manager.lock(&key).watchdog(false).acquire().await.unwrap();
            stands_on_all(&five.servers, &key).await;
            guard.release().await.unwrap();
        }
    });
    drop(idle);
}

#[tokio::test]
async fn a_token_for_several_locks_needs_a_majority_for_each() {
    let five = Five::start().await;
    let (servers, links) = (&five.servers[..3], &five.links[..3]);
    let urls = servers.iter().map(Server::url);
    let (manager, other) = (over(links).await, LockManager::builder().redlock(urls).build().await.unwrap());
    warm_up(&manager).await;
    let held = other.lock("b").acquire().await.unwrap();
    links[0].refuse().await;
    let both = tokio::spawn(manager.lock_all(["a", "b"]).fencing_token(true).wait(LONG).acquire());
    eventually("the first", || async { places(servers, "a").await == [false, true, true] }).await;
    links[0].accept().await;
    eventually("all to take part again", || async {
        let guard = manager.lock("c").acquire().await.unwrap();
        let places = places(servers, "c").await;
        guard.release().await.unwrap();
        places == [true; 3]
    })
    .await;
    links[1].refuse().await;
    held.release().await.unwrap();
    eventually("the second", || async { places(servers, "b").await == [true, false, true] }).await;
    links[1].accept().await;
    let guard = soon("both", both).await.unwrap().unwrap();
    assert!(guard.lease().fencing_token().is_some());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_refuses_draws_no_storm() {
    let five = Five::start().await;
    let manager = over(&five.links).await;
    warm_up(&manager).await;
    five.links[4].delay(Way::Replies, Duration::from_millis(5));
    five.servers[4].readonly().await;
    let scripts = async || five.servers[4].calls().await.get("evalsha").copied().unwrap_or(0);
    let before = scripts().await;
    for number in 0..100 {
        manager.lock(format!("k{number}")).acquire().await.unwrap().release().await.unwrap();
    }
    // In this time an unanswered release would be repeated several times.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let more = scripts().await - before;
    assert!(more <= 200, "{more} releases for 100 locks that it never had");
}

#[tokio::test]
async fn a_key_that_holds_something_else_on_a_minority_keeps_nobody_from_waiting() {
    let five = Five::start().await;
    let (one, two) = (over(&five.links).await, over(&five.links).await);
    five.servers[0].set(&redis_key("k"), "junk").await;
    let guard = one.lock("k").acquire().await.unwrap();
    let calls = [two.lock("k").wait(LONG), one.lock("k").retry(u32::MAX).backoff(brisk())];
    let calls = calls.map(|request| tokio::spawn(async { request.acquire().await.unwrap().release().await.unwrap() }));
    // Both have tried several times by then.
    tokio::time::sleep(Duration::from_millis(500)).await;
    guard.release().await.unwrap();
    for call in calls {
        soon("the lock", call).await.unwrap();
    }
}

fn told(level: Level, server: &Server) -> usize {
    let about = events::seen_with(level, &server.address());
    about.iter().filter(|event| event.contains("one of the servers")).count()
}

#[tokio::test]
async fn a_server_without_a_vote_is_told_of_once() {
    events::listen();
    let mut servers = Vec::new();
    for number in 0..3 {
        let password = if number == 0 { "another" } else { "geheim" };
        let rules = format!("locker on >{password} resetkeys ~lock:* &lock:* +@all");
        servers.push(Server::options().user(&rules).start().await);
    }
    let urls = servers.iter().map(|server| format!("redis://locker:geheim@{}", server.address()));
    let manager = LockManager::builder().redlock(urls).build().await.unwrap();
    let work =
        async || manager.lock("k").retry(1_000).backoff(brisk()).acquire().await.unwrap().release().await.unwrap();
    for _ in 0..30 {
        work().await;
        // Over more than the second for which a failure may pass.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(told(Level::WARN, &servers[0]), 1, "the wrong password");
    assert_eq!((told(Level::WARN, &servers[1]), told(Level::INFO, &servers[0])), (0, 0));
    servers[0].query::<()>(cmd("ACL").arg("SETUSER").arg("locker").arg(">geheim")).await.unwrap();
    eventually("its vote to be told", || async {
        work().await;
        told(Level::INFO, &servers[0]) == 1
    })
    .await;
    servers[1].freeze();
    eventually("the frozen one to be told", || async {
        work().await;
        told(Level::WARN, &servers[1]) == 1
    })
    .await;
    servers[1].thaw();
    eventually("its vote to be told", || async {
        work().await;
        told(Level::INFO, &servers[1]) == 1
    })
    .await;
    assert_eq!(told(Level::WARN, &servers[0]), 1);
}

#[tokio::test]
async fn a_release_takes_no_longer_than_a_command() {
    let five = Five::start().await;
    let manager = over(&five.links).await;
    warm_up(&manager).await;
    let guard = manager.lock("k").acquire().await.unwrap();
    stands_on_all(&five.servers, "k").await;
    for place in [0, 3, 4] {
        five.links[place].blackhole();
    }
    // Two have no connection, and so are asked only after one has owed its answer for the whole time.
    five.links[3..].iter().for_each(Proxy::reset);
    eventually("the two to be known as gone", || async { five.links[4].connections() > 0 }).await;
    tokio::time::sleep(Duration::from_millis(20)).await; // for the client to hear of it
    let begin = Instant::now();
    guard.release().await.unwrap_err();
    // A command may take a second.
    assert!(begin.elapsed() < Duration::from_millis(1_600), "{:?}", begin.elapsed());
    five.links.iter().for_each(Proxy::pass);
    is_free(&five.servers, "k").await;
}

#[tokio::test]
async fn a_manager_does_not_wait_long_for_a_minority() {
    let five = Five::start().await;
    five.servers[0].freeze();
    let begin = Instant::now();
    let manager = over(&five.links).await;
    // To connect may take two seconds, and is done twice.
    assert!(begin.elapsed() < Duration::from_millis(1_600), "{:?}", begin.elapsed());
    warm_up(&manager).await;
    five.servers[0].thaw();
}

#[tokio::test]
async fn connections_that_were_closed_while_idle_cost_no_call() {
    let five = Five::start().await;
    let urls = five.servers.iter().map(|server| format!("{}?protocol=resp2", server.url()));
    let manager = LockManager::builder().redlock(urls).ttl(LONG).build().await.unwrap();
    for round in 0..5 {
        for server in &five.servers[..if round % 2 == 0 { 5 } else { 3 }] {
            server.kill_clients("normal").await;
        }
        let guard = manager.lock("k").acquire().await.unwrap();
        let body = async { Ok::<_, Failure>(()) };
        guard.lease().ensure_held().unwrap();
        drop(guard);
        is_free(&five.servers, "k").await;
        for server in &five.servers {
            server.kill_clients("normal").await;
        }
        manager.lock("run").run(body).await.unwrap();
    }
}

/// As TOPOLOGIES.md has it: until it is renewed, a lock stands where it was granted, and a vote there may be one too many.
#[tokio::test]
async fn a_clock_that_jumps_forward_costs_nothing_once_a_lock_has_been_renewed() {
    let mut servers = Vec::new();
    for _ in 0..5 {
        servers.push(Server::options().own_clock().start().await);
    }
    let ttl = Duration::from_millis(1_500);
    let manager = || LockManager::builder().redlock(servers.iter().map(Server::url)).ttl(ttl).build();
    let (one, other) = (manager().await.unwrap(), manager().await.unwrap());
    let by_three = async |key: &str| {
        for server in &servers[3..] {
            server.set_for(&redis_key(key), HOLDER, LONG).await;
        }
        let guard = one.lock(key).acquire().await.unwrap();
        for server in &servers[3..] {
            server.del(&redis_key(key)).await;
        }
        guard
    };
    let jumps = |seconds| servers[0].clock().unwrap().jump_to(seconds);

    let renewed = by_three("renewed").await;
    stands_on_all(&servers, "renewed").await;
    jumps(60);
    other.lock("renewed").acquire().await.unwrap_err();
    renewed.release().await.unwrap();

    let fresh = by_three("fresh").await;
    jumps(120);
    let second = other.lock("fresh").acquire().await.expect("its third vote is one that the first has, too");
    fresh.lease().ensure_held().unwrap();
    second.lease().ensure_held().unwrap();
}
