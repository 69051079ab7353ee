//! The rights of the README are enough for locks of all kinds.

use std::time::Duration;

use distlock::LockManager;

use super::{Kind, LONG, nothing_is_left, stand_in_line};
use crate::calls::{Call, FOR_EVER, brisk, connect, warm_up};
use crate::rights::least_rights;
use harness::eventually::{eventually, soon};
use harness::server::Server;

async fn with_least_rights() -> (Server, String) {
    let server = Server::options().user(&least_rights()).start().await;
    let url = format!("redis://locks:password@{}", server.address());
    (server, url)
}

async fn nothing_was_refused(server: &Server) {
    let stats = server.info("commandstats").await.unwrap();
    let is_refused = |line: &&str| line.contains("rejected_calls=") && !line.contains("rejected_calls=0,");
    let refused: Vec<&str> = stats.lines().filter(is_refused).collect();
    // A look at the server is left out where it is not allowed.
    assert!(refused.iter().all(|line| line.starts_with("cmdstat_info:")), "{refused:?}");
}

#[tokio::test]
async fn the_least_rights_are_enough_for_all_kinds() {
    let (server, url) = with_least_rights().await;
    let (manager, another) = (connect(&url).await, connect(&url).await);
    warm_up(&manager).await;
    for kind in Kind::ALL {
        for rival in [Kind::Write, Kind::Read, Kind::Permits(1)] {
            does_everything(&server, &manager, &another, kind, rival).await;
        }
    }
    nothing_is_left(&server).await;
    nothing_was_refused(&server).await;
}

async fn does_everything(server: &Server, one: &LockManager, other: &LockManager, kind: Kind, rival: Kind) {
    // Renewed, with one in line behind it and one that leaves a mark.
    let call = Call::under(kind.lock(one, "k").ttl(Duration::from_millis(1_500))).await;
    let waiter = if kind.goes_with(rival) {
        None
    } else {
        let waiter = tokio::spawn(rival.lock(other, "k").wait(LONG).acquire());
        stand_in_line(server, "k", 1).await;
        Some(waiter)
    };
    let tries = rival.lock(other, "k").retry(3).backoff(brisk()).acquire().await;
    drop(tries);
    // A ttl: long enough to need a renewal.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    call.finished().await.unwrap();
    if let Some(waiter) = waiter {
        soon("the waiter", waiter).await.unwrap().unwrap().release().await.unwrap();
    }
    let several = || kind.of(one.lock_all(["k", "j"])).ttl(FOR_EVER);
    eventually("both to be free", || async {
        match several().acquire().await {
            Ok(guard) => guard.release().await.is_ok(),
            Err(error) => panic!("{kind:?} behind {rival:?}: {error}"),
        }
    })
    .await;
    several().wait(LONG).acquire().await.unwrap().release().await.unwrap();
    drop(kind.lock(one, "k").wait(LONG).acquire().await.unwrap());
    nothing_is_left(server).await;
}

/// A script that stops half way must not leave what never ends.
#[tokio::test]
async fn without_any_one_of_the_rights_nothing_stands_for_ever() {
    let rights = least_rights();
    let words: Vec<&str> = rights.split(' ').collect();
    let named: Vec<&str> = words.iter().copied().filter(|word| word.starts_with('+')).collect();
    assert!(named.len() > 10, "{named:?}");
    for some in named.chunks(5) {
        let mut tasks = tokio::task::JoinSet::new();
        for right in some {
            let less: Vec<&str> = words.iter().copied().filter(|word| word != right).collect();
            tasks.spawn(nothing_stands_for_ever((*right).to_owned(), less.join(" ")));
        }
        tasks.join_all().await;
    }
}

async fn nothing_stands_for_ever(without: String, rights: String) {
    let server = Server::options().user(&rights).start().await;
    let url = format!("redis://locks:password@{}", server.address());
    let managers = (LockManager::connect(&url).await, LockManager::connect(&url).await);
    // Without some of them nobody connects.
    let (Ok(holder), Ok(manager)) = managers else { return };
    // Whatever comes of each.
    let ttl = Duration::from_millis(600);
    let mut guards = Vec::new();
    for (key, kind) in [("r", Kind::Read), ("p", Kind::Permits(3)), ("r", Kind::Read), ("p", Kind::Permits(2))] {
        guards.push(kind.lock(&holder, key).ttl(ttl).acquire().await);
    }
    for key in ["r", "p", "free"] {
        for kind in Kind::ALL {
            let asked = [
                kind.lock(&manager, key).ttl(ttl).retry(1).backoff(brisk()),
                kind.lock(&manager, key).ttl(ttl).wait(Duration::from_millis(100)),
                kind.of(manager.lock_all([key, "another"])).ttl(ttl),
            ];
            for request in asked {
                drop(request.acquire().await);
            }
        }
    }
    drop(guards);
    for name in server.keys().await {
        assert_ne!(server.pttl(&name).await, -1, "`{name}` never expires without {without}");
    }
    let locks = async || server.keys().await.into_iter().filter(|name| !name.ends_with(":line")).count();
    eventually(&format!("all to be free without {without}"), || async { locks().await == 0 }).await;
}
