//! Locks on several independent servers, of which some are dead, frozen or late.

use std::time::{Duration, Instant};

use distlock::{Backoff, FencingToken, LockError, LockManager, conformance};

use crate::calls::{Failure, brisk, redis_key};
use harness::eventually::{eventually, soon};
use harness::server::Server;

const LONG: Duration = Duration::from_secs(60);

async fn five() -> Vec<Server> {
    let mut servers = Vec::new();
    for _ in 0..5 {
        servers.push(Server::start().await);
    }
    servers
}

async fn over(servers: &[Server]) -> LockManager {
    let urls = servers.iter().map(Server::url);
    LockManager::builder().redlock(urls).build().await.unwrap()
}

/// On how many of the servers the key stands, of those that answer.
async fn standing(servers: &[Server], key: &str) -> usize {
    let mut standing = 0;
    for server in servers {
        standing += usize::from(server.exists(&redis_key(key)).await);
    }
    standing
}

async fn nothing_is_left(servers: &[Server]) {
    for server in servers {
        eventually("nothing to be left", || async { server.dbsize().await == 0 }).await;
    }
}

#[tokio::test]
async fn a_lock_stands_on_all_servers_and_is_freed_on_all() {
    let servers = five().await;
    let (manager, another) = (over(&servers).await, over(&servers).await);
    let guard = manager.lock("k").acquire().await.unwrap();
    eventually("all to have it", || async { standing(&servers, "k").await == 5 }).await;
    let error = another.lock("k").acquire().await.unwrap_err();
    assert!(error.is_busy() && error.to_string().contains('/'), "{error}");
    assert_eq!(standing(&servers, "k").await, 5, "a refused attempt takes nothing from the holder");
    guard.release().await.unwrap();
    nothing_is_left(&servers).await;
}

#[tokio::test]
async fn one_dead_and_one_frozen_server_cost_nothing_but_their_votes() {
    let servers = five().await;
    let manager = over(&servers).await;
    servers[0].kill();
    servers[1].freeze();
    for _ in 0..5 {
        let begin = Instant::now();
        let guard = manager.lock("k").acquire().await.unwrap();
        // A command may take a second, and to connect two; nobody waits for those that don't answer.
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
        guard.release().await.unwrap();
    }
    let ttl = Duration::from_secs(2);
    let guard = manager.lock("k").ttl(ttl).acquire().await.unwrap();
    // Two ttls: only renewals on the three others keep it.
    tokio::time::sleep(ttl * 2).await;
    guard.lease().ensure_held().unwrap();
    guard.release().await.unwrap();
    servers[1].thaw();
    nothing_is_left(&servers[1..]).await;
}

#[tokio::test]
async fn without_a_majority_nothing_is_granted_and_nothing_is_left() {
    let servers = five().await;
    let manager = over(&servers).await;
    for server in &servers[..3] {
        server.freeze();
    }
    let body = async { Ok::<_, Failure>("ran") };
    let outcome = manager.lock("k").retry(2).backoff(brisk()).run(body).await;
    let Err(Failure::Lock(error @ LockError::Backend { .. })) = outcome else { panic!("{outcome:?}") };
    assert!(error.is_transient() && error.to_string().contains("of 5 servers 3 are needed"), "{error}");
    nothing_is_left(&servers[3..]).await;
    for server in &servers[..3] {
        server.thaw();
    }
    nothing_is_left(&servers).await;
    manager.lock("k").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_lock_is_lost_by_its_deadline_when_the_majority_is_lost() {
    let servers = five().await;
    let manager = over(&servers).await;
    let request = manager.lock("k").ttl(Duration::from_secs(1));
    let call = tokio::spawn(request.run(std::future::pending::<Result<(), Failure>>()));
    eventually("the lock to be held", || async { standing(&servers, "k").await == 5 }).await;
    for server in &servers[..3] {
        server.freeze();
    }
    let outcome = soon("the body to be stopped", call).await.unwrap();
    assert!(matches!(outcome, Err(Failure::Lock(LockError::Lost { .. }))), "{outcome:?}");
    for server in &servers[..3] {
        server.thaw();
    }
    nothing_is_left(&servers).await;
}

#[tokio::test]
async fn a_server_that_comes_back_joins() {
    let servers = five().await;
    let manager = over(&servers).await;
    servers[0].kill();
    manager.lock("k").acquire().await.unwrap().release().await.unwrap();
    servers[0].restart().await;
    servers[1].kill();
    servers[2].kill();
    // Three of five, one of which was gone.
    let guard = manager.lock("k").retry(1_000).backoff(brisk()).acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn callers_that_split_the_votes_still_get_their_turns() {
    let servers = five().await;
    let (one, two) = (over(&servers).await, over(&servers).await);
    let turns = |manager: LockManager, waits: bool| async move {
        for _ in 0..30 {
            let request = manager.lock("k");
            let backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(20)).unwrap();
            let request = if waits { request.wait(LONG) } else { request.retry(u32::MAX).backoff(backoff) };
            request.acquire().await.unwrap().release().await.unwrap();
        }
    };
    let tasks = [
        tokio::spawn(turns(one.clone(), false)),
        tokio::spawn(turns(two.clone(), false)),
        tokio::spawn(turns(one, true)),
        tokio::spawn(turns(two, true)),
    ];
    for task in tasks {
        tokio::time::timeout(LONG, task).await.expect("all turns").unwrap();
    }
    nothing_is_left(&servers).await;
}

async fn token(manager: &LockManager) -> FencingToken {
    let guard = manager.lock("k").fencing_token(true).retry(1_000).backoff(brisk()).acquire().await.unwrap();
    let token = guard.lease().fencing_token().unwrap();
    guard.release().await.unwrap();
    token
}

#[tokio::test]
async fn fencing_tokens_rise_over_any_two_majorities() {
    let servers = five().await;
    // Those of one server are far ahead of the clock.
    let fence = format!("{}:fence", redis_key("k"));
    servers[0].set_for(&fence, "8000000000000000", LONG).await;
    let first = token(&over(&servers).await).await;
    let second = token(&over(&servers).await).await;
    servers[0].kill();
    // Another manager, which has seen no token, and a majority without that server.
    let third = token(&over(&servers).await).await;
    assert!(first < second && second < third, "{first}, {second}, {third}");
}

/// Another manager each time, which has seen no token, and another majority, of which a minority has forgotten all.
#[tokio::test]
async fn fencing_tokens_rise_whichever_servers_are_away() {
    let servers = five().await;
    let mut last = FencingToken::MIN;
    for (one, two) in [(0, 1), (2, 3), (4, 0), (1, 2), (3, 4), (0, 2)] {
        let away = [&servers[one], &servers[two]];
        for server in away {
            server.freeze();
        }
        let builder = LockManager::builder().redlock(servers.iter().map(Server::url));
        let manager = builder.connect_timeout(Duration::from_millis(300)).build().await.unwrap();
        for wait in [false, true] {
            let request = manager.lock("k").fencing_token(true);
            let request = if wait { request.wait(LONG) } else { request.retry(1_000).backoff(brisk()) };
            let guard = request.acquire().await.unwrap();
            let token = guard.lease().fencing_token().unwrap();
            assert!(token > last, "{token} after {last}, without {one} and {two}");
            last = token;
            guard.release().await.unwrap();
        }
        for server in away {
            server.thaw();
            server.query::<()>(&redis::cmd("FLUSHALL")).await.unwrap();
        }
    }
}

/// A tenure has more tokens than the one that is handed out first, and none of them is minted again elsewhere.
#[tokio::test]
async fn tokens_of_a_tenure_are_known_to_a_majority() {
    let servers = five().await;
    let ahead = "8000000000000000";
    let fence = format!("{}:fence", redis_key("k"));
    for server in &servers {
        server.set_for(&fence, ahead, LONG).await;
    }
    let manager = over(&servers).await;
    let guard = manager.lock("k").fencing_token(true).wait(LONG).acquire().await.unwrap();
    let first = guard.lease().fencing_token().unwrap().get();
    guard.release().await.unwrap();
    let mut knowing = 0;
    for server in &servers {
        let last: u64 = server.get(&fence).await.unwrap().parse().unwrap();
        knowing += usize::from(last >= first + 15);
    }
    assert!(knowing >= 3, "{knowing}");
}

#[tokio::test]
async fn several_locks_are_all_or_none_and_have_one_token() {
    let servers = five().await;
    let (manager, another) = (over(&servers).await, over(&servers).await);
    let held = another.lock("b").acquire().await.unwrap();
    let error = manager.lock_all(["a", "b"]).retry(1).backoff(brisk()).acquire().await.unwrap_err();
    assert!(error.is_busy() && error.to_string().contains("`b`"), "{error}");
    eventually("nothing of `a` to be left", || async { standing(&servers, "a").await == 0 }).await;
    let second = tokio::spawn({
        let request = manager.lock_all(["a", "b"]).fencing_token(true).retry(1_000).backoff(brisk());
        request.acquire()
    });
    held.release().await.unwrap();
    let guard = soon("both", second).await.unwrap().unwrap();
    let first = guard.lease().fencing_token().unwrap();
    assert_eq!(guard.lease().keys().collect::<Vec<_>>(), ["a", "b"]);
    guard.release().await.unwrap();
    let guard = another.lock_all(["b", "c"]).fencing_token(true).wait(LONG).acquire().await.unwrap();
    assert!(guard.lease().fencing_token().unwrap() > first);
    guard.lease().ensure_held().unwrap();
    guard.release().await.unwrap();
    let held = standing(&servers, "a").await + standing(&servers, "b").await + standing(&servers, "c").await;
    assert!(held <= 2 * 3, "no majority is left: {held}");
    for key in ["a", "b", "c"] {
        eventually("nothing to be left", || async { standing(&servers, key).await == 0 }).await;
    }
}

#[tokio::test]
async fn nested_calls_pass_and_take_further_keys() {
    let servers = five().await;
    let manager = over(&servers).await;
    let inner = manager.clone();
    let body = async move {
        let token = inner.lock("a").fencing_token(true).run(async { Ok::<_, Failure>(1) }).await?;
        let both = inner.lock_all(["a", "b"]).fencing_token(true).run(async { Ok::<_, Failure>(1) }).await?;
        Ok::<_, Failure>(token + both)
    };
    assert_eq!(manager.lock("a").run(body).await.unwrap(), 2);
    for key in ["a", "b"] {
        eventually("nothing to be left", || async { standing(&servers, key).await == 0 }).await;
    }
}

#[tokio::test]
async fn the_rules_of_backends_hold() {
    let servers = five().await;
    conformance::check(over(&servers).await.backend()).await;
}

#[tokio::test]
async fn an_even_number_of_servers_works() {
    let servers = five().await;
    let manager = over(&servers[..4]).await;
    servers[0].kill();
    // Three of four are a majority; two are not.
    manager.lock("k").retry(1_000).backoff(brisk()).acquire().await.unwrap().release().await.unwrap();
    servers[1].kill();
    let error = manager.lock("k").acquire().await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("of 4 servers 3 are needed"), "{error}");
}

#[tokio::test]
async fn no_text_has_a_password_in_it() {
    let options = Server::options().user("locker on >geheim resetkeys ~lock:* +@all");
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(options.clone().start().await);
    }
    let hosts: Vec<String> = servers.iter().map(Server::address).collect();
    let urls = hosts.iter().map(|host| format!("redis://locker:geheim@{host}"));
    let builder = LockManager::builder().redlock(urls).connect_timeout(Duration::from_millis(300));
    let mut texts = vec![format!("{builder:?}")];
    let manager = builder.build().await.unwrap();
    texts.push(format!("{manager:?} {:?}", manager.backend()));
    manager.lock("k").acquire().await.unwrap().release().await.unwrap();
    servers.iter().for_each(Server::kill);
    let error = manager.lock("k").acquire().await.unwrap_err();
    texts.extend([error.to_string(), format!("{error:?}")]);
    let list = hosts.join(",");
    for url in [
        format!("redlock://locker:geheim@{list}"),
        format!("redlock://locker:geheim@{list}/x"),
        format!("redlock://locker:geheim@{},{}", hosts[0], hosts[0]),
        format!("redlock://locker:geheim@{}", hosts[0]),
        format!("redlock://locker:ge/geheim@{list}"),
        format!("redlock://locker:ge?geheim@{list}"),
        format!("redlock://locker:ge,geheim@{list}"),
        format!("redlock://locker:ge@geheim@{list}"),
        format!("redlock://locker:ge#geheim@{list}"),
        format!("redlock://locker:geheim@{},:1,b", hosts[0]),
    ] {
        let error = LockManager::builder().url(url).connect_timeout(Duration::from_millis(300)).build().await;
        let error = error.unwrap_err();
        texts.extend([error.to_string(), format!("{error:?}")]);
    }
    for text in texts {
        assert!(!text.contains("geheim"), "{text}");
    }
}

#[tokio::test]
async fn what_is_no_redlock_is_refused() {
    let refused = async |urls: &[&str]| {
        let error = LockManager::builder().redlock(urls.iter().copied()).build().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidOption { .. }), "{error:?}");
        error.to_string()
    };
    assert!(refused(&[]).await.contains("at least three"));
    assert!(refused(&["redis://a", "redis://b"]).await.contains("at least three"));
    assert!(refused(&["redis://a", "redis://b", "redis://a"]).await.contains("stands there twice"));
    assert!(refused(&["redis://a", "redis://b", "redis://A"]).await.contains("stands there twice"));
    let error = LockManager::connect("redlock://a,b").await.unwrap_err().to_string();
    assert!(error.contains("at least three"), "{error}");
}

#[tokio::test]
async fn all_servers_stand_in_one_url() {
    let servers = five().await;
    let hosts: Vec<String> = servers.iter().map(Server::address).collect();
    let manager = LockManager::connect(&format!("redlock://{}/1", hosts.join(","))).await.unwrap();
    let guard = manager.lock("k").acquire().await.unwrap();
    guard.release().await.unwrap();
    manager.shutdown(LONG).await;
}
