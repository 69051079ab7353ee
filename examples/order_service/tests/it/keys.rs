//! A key is claimed by one request at a time, and stays with it.

use std::time::Duration;

use order_service::error::Error;
use order_service::idempotency::{Answer, Claim, Claimed, answered, claim};
use order_service::store::Store;
use serde_json::json;

use crate::harness::{Kind, World};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_key_is_claimed_by_one_and_stays_with_its_request_on_sqlite() {
    a_key_is_claimed_by_one_and_stays_with_its_request(Kind::Local).await;
}

#[tokio::test]
async fn a_key_is_claimed_by_one_and_stays_with_its_request_on_postgres() {
    a_key_is_claimed_by_one_and_stays_with_its_request(Kind::Servers).await;
}

async fn a_key_is_claimed_by_one_and_stays_with_its_request(kind: Kind) {
    let world = World::new(kind, "").await;
    let store = Store::open(&world.database()).await.unwrap();
    let first = ours(claim(&store, "key", "request", HOUR).await);
    let again = claim(&store, "key", "request", HOUR).await;
    assert!(matches!(again, Err(Error::InProgress)), "two have claimed it: {again:?}");

    first.give_back(&store).await.unwrap();
    let other = claim(&store, "key", "another", HOUR).await;
    assert!(matches!(other, Err(Error::KeyReused)), "what was given back went to another request: {other:?}");
    let second = ours(claim(&store, "key", "request", HOUR).await);
    let again = claim(&store, "key", "request", HOUR).await;
    assert!(matches!(again, Err(Error::InProgress)), "two have claimed what was given back: {again:?}");

    second.answer(&store, &receipt("second")).await.unwrap();
    let stored = answered(&store, "key", "request").await.unwrap();
    assert_eq!(stored.map(|answer| answer.body), Some(receipt("second").body));
}

#[tokio::test]
async fn of_two_who_find_a_claim_stale_one_takes_it_over_on_sqlite() {
    of_two_who_find_a_claim_stale_one_takes_it_over(Kind::Local).await;
}

#[tokio::test]
async fn of_two_who_find_a_claim_stale_one_takes_it_over_on_postgres() {
    of_two_who_find_a_claim_stale_one_takes_it_over(Kind::Servers).await;
}

/// Many rounds, since whether two meet is a matter of luck.
async fn of_two_who_find_a_claim_stale_one_takes_it_over(kind: Kind) {
    let world = World::new(kind, "").await;
    let store = Store::open(&world.database()).await.unwrap();
    for round in 0..30 {
        let key = format!("key-{round}");
        ours(claim(&store, &key, "request", HOUR).await).give_back(&store).await.unwrap();
        let claims = crate::equal_payments::join_all((0..8).map(|_| claim(&store, &key, "request", HOUR))).await;
        let won = claims.iter().filter(|claim| matches!(claim, Ok(Claim::Ours(_)))).count();
        assert_eq!(won, 1, "round {round}: {claims:?}");
    }
}

#[tokio::test]
async fn who_was_taken_over_neither_answers_nor_gives_back_on_sqlite() {
    who_was_taken_over_neither_answers_nor_gives_back(Kind::Local).await;
}

#[tokio::test]
async fn who_was_taken_over_neither_answers_nor_gives_back_on_postgres() {
    who_was_taken_over_neither_answers_nor_gives_back(Kind::Servers).await;
}

async fn who_was_taken_over_neither_answers_nor_gives_back(kind: Kind) {
    let world = World::new(kind, "").await;
    let store = Store::open(&world.database()).await.unwrap();
    let late = [taken_over(&store, "answers").await, taken_over(&store, "gives-back").await];
    let [(late_answers, later), (late_gives_back, _later)] = late;

    late_answers.answer(&store, &receipt("late")).await.unwrap();
    assert_eq!(answered(&store, "answers", "request").await.unwrap(), None, "who is late has answered");
    later.answer(&store, &receipt("later")).await.unwrap();
    let stored = answered(&store, "answers", "request").await.unwrap();
    assert_eq!(stored.map(|answer| answer.body), Some(receipt("later").body));

    late_gives_back.give_back(&store).await.unwrap();
    let third = claim(&store, "gives-back", "request", HOUR).await;
    assert!(matches!(third, Err(Error::InProgress)), "who is late has given back what is another's: {third:?}");
}

/// The claim of somebody who is late, and that of the one who has taken it over.
async fn taken_over(store: &Store, key: &str) -> (Claimed, Claimed) {
    let late = ours(claim(store, key, "request", HOUR).await);
    // A claim is known by its millisecond.
    tokio::time::sleep(Duration::from_millis(5)).await;
    (late, ours(claim(store, key, "request", Duration::ZERO).await))
}

fn ours(claim: Result<Claim, Error>) -> Claimed {
    match claim {
        Ok(Claim::Ours(claimed)) => claimed,
        other => panic!("the key was not to be had: {other:?}"),
    }
}

fn receipt(charge: &str) -> Answer {
    Answer { status: 200, body: json!({ "charge": charge }), is_repeated: false }
}
