//! Locks on five independent servers, of which one, two or three fail in every way, before, while and after a lock is held.

use std::future::pending;
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, LostReason};

use crate::calls::{Body, Call, Failure, brisk, redis_key};
use harness::eventually::{eventually, soon, within};
use harness::holders::{Log, NotingPolls, Until, assert_no_overlap};
use harness::process::Child;
use harness::proxy::{Proxy, Trip, Way};
use harness::server::Server;

/// A server has a tenth of this for its answer.
const TTL: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(60);

/// Five servers, each behind a link that can fail.
pub(crate) struct Five {
    pub(crate) servers: Vec<Server>,
    pub(crate) links: Vec<Proxy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Dead,
    Frozen,
    /// Answers, but late: half of the time that it has is over by then.
    Slow,
    /// Does what it is asked, and its answers don't arrive.
    Mute,
}

const FAULTS: [Fault; 4] = [Fault::Dead, Fault::Frozen, Fault::Slow, Fault::Mute];

impl Five {
    pub(crate) async fn start() -> Five {
        let (mut servers, mut links) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let server = Server::start().await;
            links.push(Proxy::start(&server).await);
            servers.push(server);
        }
        Five { servers, links }
    }

    pub(crate) async fn manager(&self) -> LockManager {
        let builder = LockManager::builder().redlock(self.links.iter().map(Proxy::url));
        builder.ttl(TTL).connect_timeout(Duration::from_millis(500)).build().await.unwrap()
    }

    fn break_some(&self, fault: Fault, some: usize) {
        for (server, link) in self.servers.iter().zip(&self.links).take(some) {
            match fault {
                Fault::Dead => server.kill(),
                Fault::Frozen => server.freeze(),
                Fault::Slow => link.delay(Way::Replies, TTL / 20),
                Fault::Mute => link.hold(Way::Replies),
            }
        }
    }

    async fn mend_some(&self, fault: Fault, some: usize) {
        for (server, link) in self.servers.iter().zip(&self.links).take(some) {
            match fault {
                Fault::Dead => server.restart().await,
                Fault::Frozen => server.thaw(),
                Fault::Slow | Fault::Mute => link.pass(),
            }
        }
    }

    /// Waits until no server has a key, and says how long that took.
    pub(crate) async fn are_free(&self) -> Duration {
        let begin = Instant::now();
        for server in &self.servers {
            // For what an unanswered request may have left, a server that answers again is asked for ten seconds.
            within(LONG, "nothing to be left", || async { server.dbsize().await == 0 }).await;
        }
        begin.elapsed()
    }

    /// Waits until all five take part again: each has a lock that is new.
    async fn all_take_part(&self, manager: &LockManager) -> Duration {
        let begin = Instant::now();
        eventually("all to have a lock", || async {
            let guard = manager.lock("rejoin").retry(1_000).backoff(brisk()).acquire().await.unwrap();
            let mut standing = 0;
            for server in &self.servers {
                standing += usize::from(server.exists(&redis_key("rejoin")).await);
            }
            guard.release().await.unwrap();
            standing == 5
        })
        .await;
        begin.elapsed()
    }
}

/// Takes a lock, holds it for longer than its ttl, and frees it, while servers fail in all three.
async fn survives(five: &Five, manager: &LockManager, fault: Fault, some: usize) {
    // So that all know the scripts: the first call of one takes two round trips.
    five.all_take_part(manager).await;
    five.break_some(fault, some);
    let begin = Instant::now();
    let guard = manager.lock("acquire").retry(1_000).backoff(brisk()).acquire().await.unwrap();
    let acquired = begin.elapsed();
    guard.release().await.unwrap();
    five.mend_some(fault, some).await;
    five.all_take_part(manager).await;

    let guard = manager.lock("hold").ttl(TTL).acquire().await.unwrap();
    five.break_some(fault, some);
    // A ttl and more: only renewals by the others keep it.
    tokio::time::sleep(TTL + TTL / 3).await;
    guard.lease().ensure_held().unwrap();
    let begin = Instant::now();
    guard.release().await.unwrap();
    let released = begin.elapsed();
    five.mend_some(fault, some).await;
    let (freed, joined) = (five.are_free().await, five.all_take_part(manager).await);
    println!(
        "{some} {fault:?}: acquired in {acquired:?}, released in {released:?}; mended: free after {freed:?}, all after {joined:?}"
    );
}

#[tokio::test]
async fn one_server_that_fails_costs_its_vote_and_nothing_else() {
    let five = Five::start().await;
    let manager = five.manager().await;
    for fault in FAULTS {
        survives(&five, &manager, fault, 1).await;
    }
}

#[tokio::test]
async fn two_servers_that_fail_cost_their_votes_and_nothing_else() {
    let five = Five::start().await;
    let manager = five.manager().await;
    for fault in FAULTS {
        survives(&five, &manager, fault, 2).await;
    }
}

/// Three that are late are slow, and nothing else.
#[tokio::test]
async fn three_slow_servers_grant_slowly() {
    let five = Five::start().await;
    let manager = five.manager().await;
    survives(&five, &manager, Fault::Slow, 3).await;
}

#[tokio::test]
async fn without_three_of_five_nothing_is_granted_or_kept_and_nothing_is_left() {
    let five = Five::start().await;
    let manager = five.manager().await;
    for fault in [Fault::Frozen, Fault::Mute, Fault::Dead] {
        let held = Call::holding(&manager, "hold", TTL).await;
        let ending = Body::default();
        let ends = manager.lock("release").run(ending.clone().future(Ok::<_, Failure>("done")));
        let ends = Call::of(ending, tokio::spawn(ends)).await;
        five.break_some(fault, 3);
        let error = manager.lock("acquire").retry(2).backoff(brisk()).acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Backend { .. }) && error.is_transient(), "{fault:?}: {error}");
        assert_eq!(ends.finished().await.unwrap(), "done", "{fault:?}: a release that fails changes nothing");
        let lost = held.ended().await.unwrap_err().lost();
        assert!(matches!(lost, LostReason::Expired | LostReason::Gone), "{fault:?}: {lost:?}");
        five.mend_some(fault, 3).await;
        let (freed, joined) = (five.are_free().await, five.all_take_part(&manager).await);
        println!("3 {fault:?}: mended: free after {freed:?}, all after {joined:?}");
    }
}

#[tokio::test]
async fn an_acquire_takes_less_than_twice_the_time_of_one_server() {
    let five = Five::start().await;
    let manager = five.manager().await;
    manager.lock("k").acquire().await.unwrap().release().await.unwrap();
    five.servers[0].freeze();
    five.servers[1].kill();
    // A tenth of the ttl is what a server has.
    let ttl = Duration::from_secs(10);
    let begin = Instant::now();
    let guard = manager.lock("k").ttl(ttl).retry(1_000).backoff(brisk()).acquire().await.unwrap();
    println!("acquired in {:?}", begin.elapsed());
    assert!(begin.elapsed() < ttl / 10 * 2, "{:?}", begin.elapsed());
    guard.release().await.unwrap();
}

/// One refuses connections, one is frozen, and one does as it is told but its answer is lost.
#[tokio::test]
async fn three_faults_at_once_fail_one_attempt_and_not_the_next() {
    let five = Five::start().await;
    let manager = five.manager().await;
    manager.lock("k").acquire().await.unwrap().release().await.unwrap();
    five.are_free().await;
    five.links[0].refuse().await;
    five.servers[1].freeze();
    five.links[2].arm("SET", 0, Trip::LoseReply(Duration::ZERO));
    let guard = manager.lock("k").ttl(LONG).retry(1_000).backoff(brisk()).acquire().await.unwrap();
    five.links[2].tripped(1).await;
    for server in &five.servers[2..] {
        assert!(server.exists(&redis_key("k")).await, "these three have it");
    }
    guard.release().await.unwrap();
    five.links[0].accept().await;
    five.servers[1].thaw();
    println!("free after {:?}", five.are_free().await);
    println!("all after {:?}", five.all_take_part(&manager).await);
}

#[tokio::test]
async fn a_call_that_is_dropped_in_mid_attempt_leaves_nothing() {
    let five = Five::start().await;
    let manager = five.manager().await;
    five.break_some(Fault::Mute, 5);
    let call = tokio::spawn(manager.lock("k").ttl(LONG).run(pending::<Result<(), Failure>>()));
    eventually("all to have it", || async {
        let mut standing = 0;
        for server in &five.servers {
            standing += usize::from(server.exists(&redis_key("k")).await);
        }
        standing == 5
    })
    .await;
    call.abort();
    five.mend_some(Fault::Mute, 5).await;
    five.are_free().await;
}

/// Client processes that are paused and killed, and servers that fail, a minority at a time.
#[tokio::test]
async fn processes_never_overlap_whatever_fails() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let five = Five::start().await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("holders");
    let hosts: Vec<String> = five.links.iter().map(|link| link.url().replace("redis://", "")).collect();
    let url = format!("redlock://{}", hosts.join(","));
    let spawn = async |number: u64| {
        let seed = seed.wrapping_add(number).to_string();
        let child = Child::spawn("exclusion: work", &[&url, log.to_str().unwrap(), &seed]).await;
        child.event("works").await;
        child
    };
    let mut random = fastrand::Rng::with_seed(seed);
    let mut children = vec![spawn(0).await, spawn(1).await, spawn(2).await, spawn(3).await];
    let (begin, mut number) = (Instant::now(), 4);
    while begin.elapsed() < Duration::from_secs(20) {
        let (fault, some, victim) = (FAULTS[random.usize(0..4)], random.usize(0..3), random.usize(0..4));
        five.break_some(fault, some);
        if random.u8(0..4) == 0 {
            children[victim] = spawn(number).await;
            number += 1;
        } else {
            children[victim].stop();
            // From a third of the processes' ttl to twice as long.
            tokio::time::sleep(Duration::from_millis(random.u64(200..1_200))).await;
            children[victim].cont();
        }
        // One that comes back without its data stays away for longer than the longest lease.
        tokio::time::sleep(Duration::from_millis(if fault == Fault::Dead { 800 } else { 100 })).await;
        five.mend_some(fault, some).await;
    }
    drop(children);
    let holds = assert_no_overlap(&log, Until::LastStep);
    println!("{} holds", holds.len());
    assert!(holds.len() > 20, "too little happened");
}

/// Ten callers of three managers, and no two at once.
#[tokio::test]
async fn ten_callers_all_get_their_turns() {
    let five = Five::start().await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("holders");
    let managers = [five.manager().await, five.manager().await, five.manager().await];
    let begin = Instant::now();
    let tasks: Vec<_> = (0..10)
        .map(|caller| {
            let (manager, log) = (managers[caller % 3].clone(), Log::open(&log));
            tokio::spawn(async move {
                for _ in 0..5 {
                    let body = async {
                        let holder = log.start("k", &uuid::Uuid::new_v4().to_string());
                        // A short body.
                        tokio::time::sleep(Duration::from_millis(2)).await;
                        holder.step();
                        Ok::<_, Failure>(())
                    };
                    let request = manager.lock("k");
                    let request =
                        if caller % 2 == 0 { request.wait(LONG) } else { request.retry(u32::MAX).backoff(brisk()) };
                    NotingPolls::of(request.run(body)).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        tokio::time::timeout(LONG, task).await.expect("all turns").unwrap();
    }
    println!("50 turns in {:?}", begin.elapsed());
    assert_eq!(assert_no_overlap(&log, Until::Dropped).len(), 50);
    soon("nothing to be left", five.are_free()).await;
}
