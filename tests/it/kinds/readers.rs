//! Many readers or one writer.

use std::time::Duration;

use distlock::{LockError, Mode};

use super::{Kind, LONG, has_shares, holder, is_refused, members, nothing_is_left, owned, shares};
use crate::calls::{connect, redis_key};
use harness::eventually::eventually;
use harness::process::Child;
use harness::server::Server;

#[tokio::test]
async fn readers_hold_a_lock_together_and_a_writer_is_told_of_them() {
    let server = Server::start().await;
    let (one, other) = (owned(&server, "one").await, owned(&server, "other").await);
    let longest = Kind::Read.lock(&one, "k").ttl(2 * LONG).acquire().await.unwrap();
    assert_eq!(is_refused(Kind::Write.lock(&other, "k")).await, "one");
    let mut guards = Vec::new();
    for _ in 0..4 {
        guards.push(Kind::Read.lock(&other, "k").ttl(LONG).acquire().await.unwrap());
    }
    let error = Kind::Write.lock(&other, "k").acquire().await.unwrap_err();
    let LockError::Busy { holder, remaining, attempts, .. } = &error else { panic!("{error:?}") };
    assert_eq!((holder.as_str(), *attempts), ("one and 4 others", 1), "{error}");
    assert!(*remaining > LONG && *remaining <= 2 * LONG, "what is left of the longest lease, not {remaining:?}");
    let members = members(&server, "k").await;
    assert_eq!(members.len(), 5);
    assert!(members.iter().all(|member| member.starts_with("r:")), "{members:?}");
    let token = format!("r:{}/one", longest.lease().token());
    assert!(members.contains(&token), "{token} among {members:?}");
    for guard in guards {
        guard.release().await.unwrap();
    }
    longest.release().await.unwrap();
    assert_eq!(server.keys().await, [""; 0]);
}

#[tokio::test]
async fn one_reader_s_release_is_no_other_s() {
    let server = Server::start().await;
    let manager = owned(&server, "one").await;
    let first = Kind::Read.lock(&manager, "k").acquire().await.unwrap();
    let second = Kind::Read.lock(&manager, "k").acquire().await.unwrap();
    first.release().await.unwrap();
    second.lease().ensure_held().unwrap();
    assert_eq!(members(&server, "k").await, [format!("r:{}/one", second.lease().token())]);
    assert_eq!(is_refused(Kind::Write.lock(&manager, "k")).await, "one");
    drop(second);
    nothing_is_left(&server).await;
}

/// B10 (a): a reader of 30 s, and one of 1 s that dies.
#[tokio::test]
async fn a_dead_reader_takes_no_other_with_it() {
    let server = Server::start().await;
    let manager = owned(&server, "living").await;
    let ttl = Duration::from_secs(30);
    // Nobody renews it, so that it is the first lease that the writer still meets.
    let reader = Kind::Read.lock(&manager, "k").ttl(ttl).watchdog(false).acquire().await.unwrap();
    let child = Child::spawn("kinds: hold and tell", &[&server.url(), "k", "read", "1000", "1"]).await;
    child.event("holds").await;
    has_shares(&server, "k", 2).await;
    assert!(server.pttl(&redis_key("k")).await > 15_000, "the newcomer has shortened the key's life");
    child.kill();
    has_shares(&server, "k", 1).await;
    // As the case has it: five seconds, of which the dead one's lease is one.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(is_refused(Kind::Write.lock(&manager, "k")).await, "living");
    reader.lease().ensure_held().unwrap();
    reader.release().await.unwrap();
    assert_eq!(server.keys().await, [""; 0]);
}

/// B10 (b): a reader dies, and another one goes on for several of its leases.
#[tokio::test]
async fn a_dead_reader_is_gone_after_its_own_ttl_however_long_others_go_on() {
    let server = Server::start().await;
    let manager = owned(&server, "living").await;
    let child = Child::spawn("kinds: hold and tell", &[&server.url(), "k", "read", "2000", "1"]).await;
    child.event("holds").await;
    let reader = Kind::Read.lock(&manager, "k").ttl(Duration::from_secs(2)).acquire().await.unwrap();
    assert!(is_refused(Kind::Write.lock(&manager, "k")).await.ends_with(" and 1 other"));
    child.kill();
    // As the case has it: ten seconds, which are five leases, of which the living one is renewed over all.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(is_refused(Kind::Write.lock(&manager, "k")).await, "living", "the dead one still counts");
    reader.lease().ensure_held().unwrap();
    reader.release().await.unwrap();
    // One try, at once.
    let writer = Kind::Write.lock(&manager, "k").acquire().await.expect("a ghost still blocks the writer");
    writer.release().await.unwrap();
    assert_eq!(server.keys().await, [""; 0]);
}

#[tokio::test]
async fn a_newcomer_shortens_no_lease_and_the_key_lives_as_long_as_the_longest() {
    let server = Server::start().await;
    let manager = owned(&server, "one").await;
    let (short, long) = (Duration::from_secs(5), Duration::from_secs(50));
    for (first, second) in [(long, short), (short, long)] {
        let first = Kind::Read.lock(&manager, "k").ttl(first).watchdog(false).acquire().await.unwrap();
        let second = Kind::Read.lock(&manager, "k").ttl(second).watchdog(false).acquire().await.unwrap();
        let shares = shares(&server, "k").await;
        assert!(shares[0].remaining <= 5_000 && shares[1].remaining > 20_000, "{shares:?}");
        let pttl = server.pttl(&redis_key("k")).await;
        assert!(pttl > 20_000 && pttl <= 50_100, "the key lives for {pttl} ms");
        let (short, long) = if first.ttl() == short { (first, second) } else { (second, first) };
        long.release().await.unwrap();
        let pttl = server.pttl(&redis_key("k")).await;
        assert!(pttl > 0 && pttl <= 5_100, "what is left lives for {pttl} ms");
        short.release().await.unwrap();
        assert_eq!(server.keys().await, [""; 0]);
    }
}

#[tokio::test]
async fn a_writer_gets_in_when_the_last_reader_s_lease_ends_though_a_longer_one_was_there() {
    let server = Server::start().await;
    let manager = owned(&server, "one").await;
    let long = Kind::Read.lock(&manager, "k").ttl(10 * LONG).acquire().await.unwrap();
    let request = Kind::Read.lock(&manager, "k").ttl(Duration::from_secs(1)).watchdog(false);
    let dead = request.acquire().await.unwrap();
    long.release().await.unwrap();
    let writer = async || Kind::Write.lock(&manager, "k").acquire().await;
    eventually("the writer to get in", || async {
        match writer().await {
            Ok(guard) => guard.release().await.is_ok(),
            Err(_) => false,
        }
    })
    .await;
    assert!(dead.release().await.unwrap_err().is_lost());
    assert_eq!(server.keys().await, [""; 0]);
}

#[tokio::test]
async fn writers_have_fencing_tokens_that_rise_also_with_readers_in_between() {
    let server = Server::start().await;
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut last = None;
    for (manager, mode) in [(&one, Mode::Write), (&other, Mode::Exclusive), (&one, Mode::Write)] {
        let reader = Kind::Read.lock(&one, "k").acquire().await.unwrap();
        assert_eq!(reader.lease().fencing_token(), None);
        let request = || manager.lock("k").mode(mode).fencing_token(true);
        holder(request().acquire().await);
        reader.release().await.unwrap();
        let writer = request().acquire().await.unwrap();
        let token = writer.lease().fencing_token();
        assert!(token.is_some() && token > last, "{token:?} after {last:?}");
        last = token;
        writer.release().await.unwrap();
    }
}
