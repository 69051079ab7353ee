//! What is said over HTTP, and when.

use std::time::Duration;

use distlock::LockManager;
use serde_json::json;

use crate::harness::{Kind, World};

const PROVIDER: &str = "--delay 10ms --failure-rate 0";

#[tokio::test]
async fn the_same_key_with_a_different_body_is_refused_on_sqlite_and_memory() {
    the_same_key_with_a_different_request_is_refused(Kind::Local).await;
}

#[tokio::test]
async fn the_same_key_with_a_different_body_is_refused_on_postgres_and_redis() {
    the_same_key_with_a_different_request_is_refused(Kind::Servers).await;
}

async fn the_same_key_with_a_different_request_is_refused(kind: Kind) {
    let world = World::new(kind, PROVIDER).await;
    let customer = world.serve("").await;
    let (order, other) = (customer.order(1_200).await, customer.order(1_200).await);
    let first = customer.try_to_pay(&order, "key", r#"{"amount":1200}"#).await.unwrap();
    assert_eq!(first.status, 200, "{first:?}");

    let bodies = ["", r#"{"amount":1300}"#, r#"{"amount": 1200}"#];
    for (order, body) in bodies.iter().map(|body| (&order, *body)).chain([(&other, r#"{"amount":1200}"#)]) {
        let reply = customer.try_to_pay(order, "key", body).await.unwrap();
        assert_eq!((reply.status, reply.body["kind"].as_str()), (422, Some("key_reused")), "{body}: {reply:?}");
    }
    assert_eq!((world.charges(&order).await, world.charges(&other).await), (1, 0));
    let repeated = customer.try_to_pay(&order, "key", r#"{"amount":1200}"#).await.unwrap();
    assert_eq!(repeated.body, first.body, "the first answer is not what a repeat gets");
}

#[tokio::test]
async fn a_payment_needs_a_key_and_an_order_and_its_amount() {
    let world = World::new(Kind::Local, PROVIDER).await;
    let customer = world.serve("").await;
    let order = customer.order(1_200).await;
    let without_key = customer.post(&format!("/orders/{order}/pay"), &json!({ "amount": 1_200 })).await;
    assert_eq!((without_key.status, without_key.body["kind"].as_str()), (400, Some("key_missing")));
    assert_eq!(customer.pay("no-such-order", "key").await.status, 404);
    assert_eq!(customer.try_to_pay(&order, "amount", r#"{"amount":1}"#).await.unwrap().status, 422);
    assert_eq!(customer.try_to_pay(&order, "nonsense", "nonsense").await.unwrap().status, 422);
    assert_eq!(world.charges(&order).await, 0);
}

#[tokio::test]
async fn an_order_that_is_paid_is_409_with_the_receipt_for_another_key() {
    let world = World::new(Kind::Local, PROVIDER).await;
    let customer = world.serve("").await;
    let order = customer.order(1_200).await;
    let first = customer.pay(&order, "first").await;
    let second = customer.pay(&order, "second").await;
    assert_eq!((second.status, second.retry_after), (409, None), "{second:?}");
    assert_eq!(second.body["charge"], first.body["charge"]);
}

#[tokio::test]
async fn a_lock_that_somebody_holds_is_409_with_what_is_left_of_the_lease() {
    let world = World::new(Kind::Servers, PROVIDER).await;
    let customer = world.serve("--wait 2s").await;
    let order = customer.order(1_200).await;
    let locks = LockManager::connect(&world.redis().url()).await.unwrap();
    let lock = locks.lock(format!("order:{order}")).ttl(Duration::from_secs(600));
    let guard = lock.acquire().await.unwrap();

    let reply = customer.pay_until(&order, "key", "busy").await;
    assert_eq!(reply.status, 409, "{reply:?}");
    let after = reply.retry_after.expect("it is told when to come back");
    assert!((300..=600).contains(&after), "not what is left of a lease of 600 s: {reply:?}");
    drop(guard);
    assert_eq!(customer.pay_at_last(&order, "key").await.status, 200);
}

#[tokio::test]
async fn a_provider_that_makes_no_charge_is_502_and_the_same_payment_may_come_again() {
    let world = World::new(Kind::Local, PROVIDER).await;
    let failing = world.another_provider("--delay 10ms --failure-rate 1").await;
    let (order, refused) = {
        let customer = world.serve_with(&failing.url, "").await;
        let order = customer.order(1_200).await;
        let refused = customer.pay(&order, "key").await;
        (order, refused)
    };
    assert_eq!((refused.status, refused.body["kind"].as_str()), (502, Some("not_charged")), "{refused:?}");
    let customer = world.serve("").await;
    let other = customer.order(1_200).await;
    let another = customer.pay(&other, "key").await;
    assert_eq!((another.status, another.body["kind"].as_str()), (422, Some("key_reused")), "{another:?}");
    assert_eq!(customer.pay(&order, "key").await.status, 200);
}
