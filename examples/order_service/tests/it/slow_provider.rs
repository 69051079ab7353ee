//! The provider takes longer than the ttl, or never answers.

use crate::equal_payments::join_all;
use crate::harness::{Gateway, Kind, Own, World, eventually};

#[tokio::test]
async fn a_provider_slower_than_the_ttl_charges_once_on_sqlite_and_memory() {
    a_provider_slower_than_the_ttl_charges_once(Kind::Local).await;
}

#[tokio::test]
async fn a_provider_slower_than_the_ttl_charges_once_on_postgres_and_redis() {
    a_provider_slower_than_the_ttl_charges_once(Kind::Servers).await;
}

/// Without idempotency, so that the lock is what holds: under different keys they are different payments.
async fn a_provider_slower_than_the_ttl_charges_once(kind: Kind) {
    let world = World::new(kind, "--delay 6s --failure-rate 0").await;
    let customer = world.serve("--ttl 2s --idempotency off --provider-timeout 40s --wait 5s").await;
    let order = customer.order(1_200).await;
    let keys: Vec<String> = (0..10).map(|tap| format!("tap-{tap}")).collect();
    let replies = join_all(keys.iter().map(|key| customer.pay_at_last(&order, key))).await;

    let paid = replies.iter().filter(|reply| reply.status == 200).count();
    let too_late = replies.iter().filter(|reply| reply.status == 409 && reply.body["kind"] == "already_paid").count();
    // None has paid if this machine was so slow that the lease was lost: then the charge was found later.
    assert!(paid <= 1 && paid + too_late == 10, "{replies:?}");
    assert_eq!(world.charges(&order).await, 1, "the customer was not charged exactly once");
    let metrics = customer.text("/metrics").await;
    let renewals =
        metrics.lines().find(|line| line.starts_with("distlock_renewals_total") && line.contains("extended"));
    assert!(renewals.is_some(), "the lease was never renewed:\n{metrics}");
}

#[tokio::test]
async fn a_charge_whose_answer_is_lost_is_found_and_not_made_again() {
    let world = World::new(Kind::Servers, "--delay 10ms --failure-rate 0 --lose-rate 1").await;
    let customer = world.serve("--provider-timeout 1s --settle-after 4s").await;
    let order = customer.order(1_200).await;

    let first = customer.pay_until(&order, "lost", "no_answer").await;
    assert_eq!(first.status, 504, "{first:?}");
    assert!(first.retry_after.is_some(), "the customer isn't told when to come back: {first:?}");
    let last = customer.pay_at_last(&order, "lost").await;
    assert_eq!((last.status, world.charges(&order).await), (200, 1), "{last:?}");
}

#[tokio::test]
async fn a_customer_who_hangs_up_has_paid_nevertheless() {
    let world = World::new(Kind::Local, "--delay 6s --failure-rate 0").await;
    let customer = world.serve("--settle-after 24h").await;
    let order = customer.order(1_200).await;
    tokio::select! {
        reply = customer.pay(&order, "tap") => panic!("answered before the customer hung up: {reply:?}"),
        () = world.is_asked_for(&order) => {}
    }
    let path = format!("/orders/{order}");
    eventually("it is paid", async || (customer.get(&path).await.body["status"] == "paid").then_some(())).await;
    let counted = r#"payments_total{result="paid"} 1"#;
    eventually("it is counted", async || customer.text("/metrics").await.contains(counted).then_some(())).await;
}

/// While it is uncertain whether the order is being charged, nobody charges it, under whatever key.
#[tokio::test]
async fn an_order_whose_charge_is_uncertain_is_not_charged_for_anybody() {
    let world = World::new(Kind::Local, "--delay 10ms --failure-rate 0 --lose-rate 1").await;
    let customer = world.serve("--provider-timeout 500ms --settle-after 5m").await;
    let order = customer.order(1_200).await;
    customer.pay_until(&order, "one", "no_answer").await;

    let other = customer.pay_until(&order, "other", "unsettled").await;
    assert_eq!(other.status, 409, "{other:?}");
    let again = other.retry_after.expect("it is told when");
    assert!((200..=300).contains(&again), "not the time until it can be settled: {other:?}");
    assert_eq!(world.charges(&order).await, 1);
}

/// Whoever stands before the provider does not know what it does.
#[tokio::test]
async fn what_the_provider_does_not_say_itself_is_no_answer() {
    let world = World::new(Kind::Local, "--delay 10ms --failure-rate 0").await;
    let all = [
        Own { status: 504, body: "<h1>gateway time-out</h1>" },
        Own { status: 502, body: r#"{"error": "bad gateway"}"# },
        Own { status: 429, body: "" },
        Own { status: 500, body: r#"{"charged": true}"# },
        Own { status: 307, body: r#"{"charged": false}"# },
        Own { status: 200, body: r#"{"charged": false}"# },
    ];
    join_all(all.map(|own| charges_once_behind(&world, own))).await;
}

async fn charges_once_behind(world: &World, own: Own) {
    let gateway = Gateway::before(&world.provider.url, own).await;
    let customer = world.serve_with(&gateway.url, "--settle-after 3s").await;
    let order = customer.order(1_200).await;
    let first = customer.pay_until(&order, &order, "no_answer").await;
    assert_eq!(first.status, 504, "{own:?}: {first:?}");
    let last = customer.pay_at_last(&order, &order).await;
    assert_eq!((last.status, world.charges(&order).await), (200, 1), "{own:?}: {last:?}");
    assert_eq!(gateway.posts(), 1, "{own:?}: the provider was asked for a charge again");
}
