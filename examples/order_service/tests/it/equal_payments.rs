//! A customer taps "pay" a hundred times.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::{Customer, Kind, Reply, World};

#[tokio::test]
async fn a_hundred_equal_payments_at_once_charge_once_on_sqlite_and_memory() {
    let world = World::new(Kind::Local, "--delay 500ms --failure-rate 0").await;
    a_hundred_equal_payments_charge_once(&world, &[&world.serve("").await]).await;
}

#[tokio::test]
async fn a_hundred_equal_payments_at_once_charge_once_over_instances_on_postgres_and_redis() {
    let world = World::new(Kind::Servers, "--delay 500ms --failure-rate 0").await;
    let (one, other) = tokio::join!(world.serve(""), world.serve(""));
    a_hundred_equal_payments_charge_once(&world, &[&one, &other]).await;
}

/// A charge that fails is not made, so that the same payment may charge later.
#[tokio::test]
async fn a_provider_that_fails_every_other_time_still_charges_once() {
    let world = World::new(Kind::Servers, "--delay 10ms..100ms --failure-rate 0.5").await;
    let (one, other) = tokio::join!(world.serve(""), world.serve(""));
    a_hundred_equal_payments_charge_once(&world, &[&one, &other]).await;
}

async fn a_hundred_equal_payments_charge_once(world: &World, instances: &[&Customer]) {
    let order = instances[0].order(1_200).await;
    let taps = (0..100).map(|tap| instances[tap % instances.len()].pay_at_last(&order, "one-and-only"));
    let replies: Vec<Reply> = join_all(taps).await;

    let bodies: BTreeSet<String> = replies.iter().map(|reply| reply.body.to_string()).collect();
    assert!(replies.iter().all(|reply| reply.status == 200), "not everybody got the receipt: {replies:?}");
    assert_eq!(bodies.len(), 1, "there are different receipts: {bodies:?}");
    assert_eq!(world.charges(&order).await, 1, "the customer was not charged exactly once");
    let paid = instances[0].get(&format!("/orders/{order}")).await.body;
    assert_eq!((&paid["status"], &paid["charge"]), (&Value::from("paid"), &replies[0].body["charge"]));
}

/// All at once, and the replies in order.
pub(crate) async fn join_all<T>(futures: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    futures_util::future::join_all(futures).await
}
