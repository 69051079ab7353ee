//! An instance is killed while the provider is being asked.

use tokio::io::AsyncWriteExt as _;

use crate::harness::{Customer, Kind, Process, World, eventually, is_asked_for};

/// Longer than the ttl, so that somebody else has the lock while the dead one's charge is still to come.
const PROVIDER: &str = "--delay 5s --failure-rate 0";
/// Longer than the provider takes, so that its list is the truth when it is asked.
const MORTAL: &str = "--ttl 1s --settle-after 16s";
const SURVIVOR: &str = "--settle-after 16s";

#[tokio::test]
async fn a_payment_whose_instance_was_killed_is_settled_after_a_restart_on_sqlite_and_memory() {
    let world = World::new(Kind::Local, PROVIDER).await;
    let customer = world.serve(MORTAL).await;
    let order = killed_in_mid_payment(&world.provider, &customer).await;
    is_settled_with_one_charge(&world, &world.serve(SURVIVOR).await, &order).await;
}

#[tokio::test]
async fn a_payment_whose_instance_was_killed_is_settled_by_another_on_postgres_and_redis() {
    let world = World::new(Kind::Servers, PROVIDER).await;
    let (one, other) = tokio::join!(world.serve(MORTAL), world.serve(SURVIVOR));
    let order = killed_in_mid_payment(&world.provider, &one).await;
    is_settled_with_one_charge(&world, &other, &order).await;
}

/// It is told to end, as for a deployment: that is no crash, and nothing has to be settled.
#[tokio::test]
async fn an_instance_that_is_told_to_end_finishes_its_payment() {
    let world = World::new(Kind::Servers, PROVIDER).await;
    let (one, other) = tokio::join!(world.serve(""), world.serve(""));
    let order = one.order(1_200).await;
    let terminate = async {
        world.is_asked_for(&order).await;
        one.service.terminate().await
    };
    let (reply, ended_well) = tokio::join!(one.pay(&order, "tap"), terminate);
    assert_eq!((reply.status, ended_well), (200, true), "{reply:?}");
    assert_eq!(other.pay(&order, "tap").await.body, reply.body);
}

/// A client that never ends its request holds it up no longer than a provider that never ends its answer.
#[tokio::test]
async fn an_instance_that_is_told_to_end_waits_for_no_half_request() {
    let world = World::new(Kind::Local, PROVIDER).await;
    let customer = world.serve("--provider-timeout 100ms").await;
    let address = customer.service.url.trim_start_matches("http://");
    let mut half = tokio::net::TcpStream::connect(address).await.unwrap();
    half.write_all(b"POST /orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n").await.unwrap();
    // The service has accepted it, since it has answered one that came later.
    customer.order(1_200).await;
    assert!(customer.service.terminate().await, "it did not end well: {}", customer.service.log());
    assert!(customer.service.log().contains("somebody is still connected"), "{}", customer.service.log());
}

/// Nobody taps again: the nightly job settles it.
#[tokio::test]
async fn a_payment_whose_instance_was_killed_is_settled_by_the_reconciliation() {
    let world = World::new(Kind::Servers, PROVIDER).await;
    let (one, other) = tokio::join!(world.serve(MORTAL), world.serve(SURVIVOR));
    let order = killed_in_mid_payment(&world.provider, &one).await;
    let report = eventually("the reconciliation settles it", async || {
        let report = other.post("/reconcile", &serde_json::Value::Null).await.body;
        (report["settled"] == 1).then_some(report)
    })
    .await;
    assert_eq!(report["charged_twice"], serde_json::json!([]));
    assert_eq!(other.get(&format!("/orders/{order}")).await.body["status"], "paid");
    assert_eq!(world.charges(&order).await, 1);
}

/// The provider knows nothing of the dead one's request, so that it is certain that there is no charge.
#[tokio::test]
async fn a_payment_that_never_reached_the_provider_is_charged_by_the_next() {
    let world = World::new(Kind::Servers, PROVIDER).await;
    let elsewhere = world.another_provider(PROVIDER).await;
    let (one, other) = tokio::join!(world.serve_with(&elsewhere.url, MORTAL), world.serve(SURVIVOR));
    let order = killed_in_mid_payment(&elsewhere, &one).await;
    is_settled_with_one_charge(&world, &other, &order).await;
}

/// Makes an order, and kills the instance while the provider is being asked to charge for it.
async fn killed_in_mid_payment(provider: &Process, customer: &Customer) -> String {
    let order = customer.order(1_200).await;
    let kill = async {
        is_asked_for(provider, &order).await;
        customer.service.kill();
    };
    // Again and again, since on a machine that is slow the first may lose its short lease before it has asked.
    let taps = async {
        while let Ok(reply) = customer.try_to_pay(&order, "tap", "").await {
            assert_ne!(reply.status, 200, "answered before it was killed: {reply:?}");
        }
    };
    tokio::join!(taps, kill);
    order
}

async fn is_settled_with_one_charge(world: &World, customer: &Customer, order: &str) {
    // Under another key, so that nothing but the intent is in the way. On a machine that is slow it may be settled already.
    let other = customer.pay(order, "other").await;
    assert!(other.status != 200, "an order that may be charged yet was charged again: {other:?}");
    let last = customer.pay_at_last(order, "tap").await;
    world.is_idle().await;
    assert_eq!((last.status, world.charges(order).await), (200, 1), "{last:?}");
    // And that stays the answer.
    assert_eq!(customer.pay(order, "tap").await.body, last.body);
}
