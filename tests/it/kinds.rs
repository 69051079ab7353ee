//! Locks that several may hold at once: many readers or one writer, so many by their permits.
//!
//! Here is how these tests ask for such locks, and what they look for on the server.

mod alike;
mod annotated;
mod crowds;
mod dead;
mod dropped;
mod faults;
mod foreign;
mod leases;
mod line;
mod logs;
mod marks;
mod memory;
mod nesting;
mod permits;
mod processes;
mod readers;
mod replicas;
mod rights;
mod several;
mod topologies;
mod walks;

use std::time::Duration;

use distlock::{LockError, LockGuard, LockManager, LockRequest, Mode};
use redis::cmd;

pub(crate) use self::processes::{hold_and_tell, wait_to_write, work};
use crate::calls::redis_key;
use harness::eventually::eventually;
use harness::holders;
use harness::server::Server;
use harness::topology;

/// Longer than any test lasts, so what comes before it did not wait for it.
const LONG: Duration = Duration::from_secs(60);

/// How a lock is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// As if there were no other kinds.
    Plain,
    Write,
    Read,
    Permits(u32),
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Plain, Kind::Write, Kind::Read, Kind::Permits(2)];

    fn lock(self, manager: &LockManager, key: &str) -> LockRequest {
        self.of(manager.lock(key))
    }

    fn of(self, request: LockRequest) -> LockRequest {
        match self {
            Kind::Plain => request,
            Kind::Write => request.mode(Mode::Write),
            Kind::Read => request.mode(Mode::Read),
            Kind::Permits(permits) => request.permits(permits),
        }
    }

    /// Whether two may hold a lock at once, one as this and one as that.
    fn goes_with(self, other: Kind) -> bool {
        match (self, other) {
            (Kind::Read, Kind::Read) => true,
            (Kind::Permits(one), Kind::Permits(other)) => one.min(other) >= 2,
            _ => false,
        }
    }

    /// As the log of holders has it.
    fn in_the_log(self) -> holders::Kind {
        match self {
            Kind::Plain | Kind::Write => holders::Kind::Exclusive,
            Kind::Read => holders::Kind::Reader,
            Kind::Permits(permits) => holders::Kind::Permits(usize::try_from(permits).unwrap()),
        }
    }
}

/// A manager whose label tells it from others of this process.
async fn owned(server: &Server, owner: &str) -> LockManager {
    LockManager::builder().url(topology::url(&server.url())).owner(owner).build().await.unwrap()
}

/// Who holds the lock by a refusal; fails for anything else.
fn holder(outcome: Result<LockGuard, LockError>) -> String {
    match outcome {
        Err(LockError::Busy { holder, .. }) => holder,
        other => panic!("not refused, but {other:?}"),
    }
}

/// Fails unless the lock is refused for now.
async fn is_refused(request: LockRequest) -> String {
    holder(request.acquire().await)
}

/// A share of a lock on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Share {
    /// `r:<uuid>/<owner>` or `p<n>:<uuid>/<owner>`.
    member: String,
    /// By the server's clock, in milliseconds.
    remaining: i64,
}

/// The shares of a lock that have not expired, in the order in which they do.
async fn shares(server: &Server, key: &str) -> Vec<Share> {
    let all: Vec<(String, f64)> =
        server.query(cmd("ZRANGE").arg(redis_key(key)).arg(0).arg(-1).arg("WITHSCORES")).await.unwrap();
    let now = time(server).await;
    // Those that begin so are numbers, and no shares.
    let shares = all.into_iter().filter(|(member, _)| !member.starts_with('#'));
    #[allow(clippy::cast_possible_truncation, reason = "milliseconds since 1970 are whole numbers far below 2^53")]
    let shares = shares.map(|(member, score)| Share { member, remaining: score as i64 - now });
    shares.filter(|share| share.remaining > 0).collect()
}

/// The server's clock, in milliseconds.
async fn time(server: &Server) -> i64 {
    let (seconds, micros): (i64, i64) = server.query(&cmd("TIME")).await.unwrap();
    seconds * 1_000 + micros / 1_000
}

async fn members(server: &Server, key: &str) -> Vec<String> {
    shares(server, key).await.into_iter().map(|share| share.member).collect()
}

/// Waits until so many shares of the lock stand.
async fn has_shares(server: &Server, key: &str, count: usize) {
    eventually(&format!("{count} shares of `{key}`"), || async { shares(server, key).await.len() == count }).await;
}

/// The mark by which a writer that will come back holds newcomers back.
fn mark_of(key: &str) -> String {
    format!("{}:next", redis_key(key))
}

fn line_of(key: &str) -> String {
    format!("{}:line", redis_key(key))
}

/// Returns once so many stand in the server's line.
async fn stand_in_line(server: &Server, key: &str, many: u64) {
    let length = || async {
        let length: u64 = server.query(cmd("ZCOUNT").arg(line_of(key)).arg(0).arg("+inf")).await.unwrap();
        length == many
    };
    eventually(&format!("{many} to stand in line"), length).await;
}

/// Waits until the server has nothing any more.
async fn nothing_is_left(server: &Server) {
    left_are(server, &[]).await;
}

/// Waits until the server has nothing any more but this lock.
async fn nothing_but(server: &Server, key: &str) {
    left_are(server, &[redis_key(key)]).await;
}

async fn left_are(server: &Server, expected: &[String]) {
    let begin = std::time::Instant::now();
    loop {
        let mut left = server.keys().await;
        // What is documented: a lock's last fencing token is kept for a day.
        left.retain(|key| !key.ends_with(":fence"));
        if left == expected {
            return;
        }
        // Much less than after what time the places of dead waiters are forgotten, and much more than freeing takes.
        assert!(begin.elapsed() < distlock::backend::FORGET / 2, "left are {left:?}, and not {expected:?}");
        // The pause between two looks.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn every_two_kinds_share_or_exclude_each_other() {
    let server = Server::start().await;
    let (one, other) = (owned(&server, "one").await, owned(&server, "other").await);
    for first in Kind::ALL {
        for second in Kind::ALL {
            let guard = first.lock(&one, "k").acquire().await.unwrap();
            let outcome = second.lock(&other, "k").acquire().await;
            if first.goes_with(second) {
                outcome.unwrap().release().await.unwrap();
            } else {
                assert_eq!(holder(outcome), "one", "{second:?} beside {first:?}");
            }
            guard.release().await.unwrap();
            assert_eq!(server.keys().await, [""; 0], "left after {second:?} beside {first:?}");
        }
    }
}

/// The same for those who ask for it at the same time: whoever wins, they are never both in.
#[tokio::test]
async fn of_two_kinds_that_exclude_each_other_one_gets_in_at_a_time() {
    let server = Server::start().await;
    let (one, other) = (owned(&server, "one").await, owned(&server, "other").await);
    for first in Kind::ALL {
        for second in Kind::ALL {
            let (first_outcome, second_outcome) =
                tokio::join!(first.lock(&one, "k").acquire(), second.lock(&other, "k").acquire());
            let got = [first_outcome.is_ok(), second_outcome.is_ok()].map(usize::from).iter().sum::<usize>();
            assert_eq!(got, if first.goes_with(second) { 2 } else { 1 }, "{first:?} and {second:?}");
            for guard in [first_outcome, second_outcome].into_iter().flatten() {
                guard.release().await.unwrap();
            }
        }
    }
    assert_eq!(server.keys().await, [""; 0]);
}

#[tokio::test]
async fn options_that_make_no_sense_are_refused_before_anything_is_sent() {
    let server = Server::start().await;
    let manager = owned(&server, "one").await;
    let monitor = server.monitor().await;
    let lock = || manager.lock("k");
    let requests = [
        (lock().permits(0), "permits"),
        (lock().permits(10_001), "permits"),
        (lock().permits(u32::MAX), "permits"),
        (lock().permits(2).mode(Mode::Read), "permits"),
        (lock().mode(Mode::Exclusive).permits(2), "permits"),
        (lock().permits(2).fencing_token(true), "fencing_token"),
        (lock().permits(1).fencing_token(true), "fencing_token"),
        (lock().mode(Mode::Read).fencing_token(true), "fencing_token"),
    ];
    for (request, expected) in requests {
        let text = format!("{request:?}");
        let Err(LockError::InvalidOption { option, reason, .. }) = request.acquire().await else { panic!("{text}") };
        assert_eq!(option, expected, "{text}: {reason}");
    }
    assert!(monitor.lines_with(&["lock:"]).await.is_empty(), "something was sent");
}

#[tokio::test]
async fn over_several_independent_servers_all_but_exclusive_locks_are_refused() {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let manager = LockManager::builder().redlock(servers.iter().map(Server::url)).build().await.unwrap();
    for (kind, expected) in [(Kind::Read, "mode"), (Kind::Write, "mode"), (Kind::Permits(2), "permits")] {
        for request in [kind.lock(&manager, "k"), kind.of(manager.lock_all(["k", "j"])).wait(LONG)] {
            let outcome = request.acquire().await;
            let Err(LockError::InvalidOption { option, .. }) = outcome else { panic!("{kind:?}: {outcome:?}") };
            assert_eq!(option, expected);
        }
    }
    manager.lock("k").mode(Mode::Exclusive).acquire().await.unwrap().release().await.unwrap();
    for server in &servers {
        assert_eq!(server.keys().await, [""; 0]);
    }
}
