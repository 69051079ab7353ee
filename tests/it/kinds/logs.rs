//! What the log gets to know of locks that are shared.

use std::time::Duration;

use tracing::Level;

use super::{Kind, owned};
use crate::calls::{Call, brisk, redis_key};
use crate::events::{listen, tells, told};
use harness::server::Server;

#[tokio::test]
async fn a_share_is_told_of_from_its_acquire_to_its_release() {
    listen();
    let server = Server::start().await;
    let manager = owned(&server, "ours").await;
    let all = [(Kind::Read, "kinds:read", "read", None), (Kind::Permits(2), "kinds:permits", "permit", Some("2"))];
    for (kind, key, name, permits) in all {
        let call = Call::under(kind.lock(&manager, key).ttl(Duration::from_millis(1_500))).await;
        let acquired = tells(key, "acquired", Level::DEBUG).await;
        assert_eq!(acquired.fields["attempt"], "1");
        assert_eq!(acquired.fields["kind"], name);
        assert_eq!(acquired.fields.get("permits").map(String::as_str), permits);
        tells(key, "renewed", Level::DEBUG).await;
        call.finished().await.unwrap();
        let released = tells(key, "released", Level::DEBUG).await;
        assert_eq!(released.fields["token"], acquired.fields["token"]);
    }
}

#[tokio::test]
async fn each_refusal_is_told_with_those_who_hold_the_lock() {
    listen();
    let server = Server::start().await;
    let (manager, other) = (owned(&server, "ours").await, owned(&server, "theirs").await);
    let key = "kinds:refused";
    let guards = [
        Kind::Read.lock(&manager, key).acquire().await.unwrap(),
        Kind::Read.lock(&manager, key).acquire().await.unwrap(),
    ];
    Kind::Write.lock(&other, key).retry(2).backoff(brisk()).acquire().await.unwrap_err();
    let refused = told(key, "refused");
    let levels: Vec<_> = refused.iter().map(|seen| (seen.fields["attempt"].as_str(), seen.level)).collect();
    assert_eq!(levels, [("1", Level::DEBUG), ("2", Level::DEBUG), ("3", Level::WARN)]);
    assert!(refused.iter().all(|seen| seen.fields["holder"] == "ours and 1 other"), "{refused:?}");
    for guard in guards {
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_share_that_is_lost_is_told_of_once_as_an_error() {
    listen();
    let server = Server::start().await;
    let manager = owned(&server, "ours").await;
    for (kind, key) in [(Kind::Read, "kinds:lost:read"), (Kind::Permits(2), "kinds:lost:permits")] {
        let call = Call::under(kind.lock(&manager, key).ttl(Duration::from_millis(1_500))).await;
        assert!(server.del(&redis_key(key)).await);
        let lost = tells(key, "lost", Level::ERROR).await;
        assert_eq!(lost.fields["reason"], "Gone");
        call.ended().await.unwrap_err();
        assert_eq!(told(key, "lost").len(), 1);
    }
}
