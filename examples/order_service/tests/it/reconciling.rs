//! The nightly job runs on one instance, and finds what is wrong.

use std::time::Duration;

use clap::Parser as _;
use distlock::LockManager;
use order_service::app::App;
use order_service::config::{Cli, Role};
use order_service::reconcile::reconcile;
use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::harness::{Customer, Kind, SOON, SlowList, World, eventually};

#[tokio::test]
async fn while_one_instance_reconciles_another_skips_it() {
    let world = World::new(Kind::Servers, "").await;
    let customer = world.serve("").await;
    // An instance runs it at its start.
    let another = LockManager::connect(&world.redis().url()).await.unwrap();
    let guard = another.lock("reconcile").wait(SOON).acquire().await.unwrap();
    let skipped = eventually("Redis answers in time", async || {
        let reply = customer.post("/reconcile", &Value::Null).await;
        (reply.body["kind"] != "lock").then_some(reply)
    })
    .await;
    assert_eq!((skipped.status, &skipped.body["ran"]), (200, &json!(false)), "{skipped:?}");
    drop(guard);
    let ran = async || (customer.post("/reconcile", &Value::Null).await.body["ran"] == true).then_some(());
    eventually("it runs", ran).await;
}

#[tokio::test]
async fn where_the_locks_cannot_be_asked_it_is_not_skipped_but_fails() {
    let world = World::new(Kind::Servers, "").await;
    let customer = world.serve("").await;
    world.redis().go_down();
    let reply = customer.post("/reconcile", &Value::Null).await;
    assert_eq!((reply.status, reply.body["kind"].as_str()), (503, Some("lock")), "{reply:?}");
}

#[tokio::test]
async fn a_lock_that_is_lost_in_the_middle_is_told() {
    let world = World::new(Kind::Servers, "").await;
    let slow = SlowList::before(&world.provider.url).await;
    // A loss is noticed after a third of the ttl.
    let customer = world.serve_with(&slow.url, "--ttl 3s --reconcile-every 24h").await;
    slow.is_there().await;
    assert!(world.redis().delete("lock:{reconcile}").await, "there was no lock to delete");
    let failed =
        async || customer.text("/metrics").await.contains(r#"reconciliations_total{result="failed"} 1"#).then_some(());
    eventually("the loss is noticed", failed).await;
    assert!(customer.service.log().contains("reconciliation failed"), "{}", customer.service.log());
}

#[tokio::test]
async fn an_order_that_is_paid_while_it_runs_is_not_reported() {
    let world = World::new(Kind::Local, "--delay 10ms --failure-rate 0").await;
    let (slow, customer) = behind_a_slow_list(&world, "").await;
    let report = reconciled_while(&slow, &customer, async {
        let order = customer.order(1_200).await;
        assert_eq!(customer.pay(&order, "key").await.status, 200);
    })
    .await;
    assert_eq!(report["not_charged"], json!([]), "{report}");
}

#[tokio::test]
async fn what_the_customer_settles_meanwhile_is_not_its_merit() {
    let world = World::new(Kind::Local, "--delay 10ms --failure-rate 0 --lose-rate 1").await;
    // The list that is kept must not count as lost.
    let (slow, customer) = behind_a_slow_list(&world, "--provider-timeout 5s --settle-after 6s").await;
    let order = customer.order(1_200).await;
    customer.pay_until(&order, "key", "no_answer").await;
    let report = reconciled_while(&slow, &customer, async {
        assert_eq!(customer.pay_at_last(&order, "key").await.status, 200);
    })
    .await;
    assert_eq!((&report["settled"], &report["unsettled"]), (&json!(0), &json!(0)), "{report}");
}

/// An instance whose first reconciliation, the one at its start, is over.
async fn behind_a_slow_list(world: &World, flags: &str) -> (SlowList, Customer) {
    let slow = SlowList::before(&world.provider.url).await;
    let customer = world.serve_with(&slow.url, flags).await;
    slow.is_there().await;
    slow.let_go();
    (slow, customer)
}

/// What the reconciliation says, where something happens after the provider has made its list.
async fn reconciled_while(slow: &SlowList, customer: &Customer, happens: impl Future<Output = ()>) -> Value {
    let happens = async {
        slow.is_there().await;
        happens.await;
        slow.let_go();
    };
    tokio::join!(by_hand(customer), happens).0
}

/// Again where it is being done, as at the start of an instance.
async fn by_hand(customer: &Customer) -> Value {
    eventually("it runs by hand", async || {
        let report = customer.post("/reconcile", &Value::Null).await.body;
        (report["ran"] == true).then_some(report)
    })
    .await
}

#[tokio::test]
async fn what_is_paid_without_a_charge_is_found() {
    let world = World::new(Kind::Local, "").await;
    let elsewhere = world.another_provider("--delay 10ms --failure-rate 0").await;
    let order = {
        let customer = world.serve_with(&elsewhere.url, "").await;
        let order = customer.order(1_200).await;
        assert_eq!(customer.pay(&order, "key").await.status, 200);
        order
    };
    let report = by_hand(&world.serve("").await).await;
    assert_eq!(report["not_charged"], json!([order]), "{report}");
}

#[tokio::test]
async fn what_was_done_a_moment_ago_is_not_done_again() {
    let world = World::new(Kind::Local, "").await;
    let arguments = ["order-service", "serve", "--database", &world.database(), "--provider", &world.provider.url];
    let Role::Serve(config) = Cli::parse_from(arguments).role else { panic!("another role") };
    let app = App::connect(config).await.unwrap();
    let hour = Duration::from_secs(3_600);
    assert!(reconcile(&app, hour).await.unwrap().ran, "it was never done, and is not done now");
    assert!(!reconcile(&app, hour).await.unwrap().ran, "it is done again");
    assert!(reconcile(&app, Duration::ZERO).await.unwrap().ran);
}

/// A service that is deployed every day would otherwise never reconcile.
#[tokio::test]
async fn an_instance_that_starts_when_it_is_overdue_runs_it() {
    let world = World::new(Kind::Local, "").await;
    let has_run = async |customer: &Customer| {
        let ran = r#"reconciliations_total{result="ran"} 1"#;
        eventually("it has run", async || customer.text("/metrics").await.contains(ran).then_some(())).await;
    };
    has_run(&world.serve("--reconcile-every 24h").await).await;
    sqlx::any::install_default_drivers();
    let mut database = sqlx::AnyConnection::connect(&world.database()).await.unwrap();
    let set_back = sqlx::query("UPDATE jobs SET done_at = done_at - 90000000 WHERE name = 'reconcile'");
    assert_eq!(set_back.execute(&mut database).await.unwrap().rows_affected(), 1);
    has_run(&world.serve("--reconcile-every 24h").await).await;
}

#[tokio::test]
async fn what_the_provider_charged_twice_is_found() {
    let world = World::new(Kind::Local, "--delay 10ms --failure-rate 0").await;
    let customer = world.serve("").await;
    let (once, twice) = (customer.order(1_200).await, customer.order(1_300).await);
    for order in [&once, &twice] {
        assert_eq!(customer.pay(order, order).await.status, 200);
    }
    let again = reqwest::Client::new().post(format!("{}/charge", world.provider.url));
    assert!(again.json(&json!({ "order": twice, "amount": 1_300 })).send().await.unwrap().status().is_success());
    let report = by_hand(&customer).await;
    assert_eq!(report["charged_twice"], json!([twice]), "{report}");
    assert_eq!(report["not_charged"], json!([]), "{report}");
}

#[tokio::test]
async fn what_nobody_comes_back_for_is_settled_at_its_time_by_one_of_all_instances() {
    // Charged, and never answered.
    let world = World::new(Kind::Servers, "--delay 10ms --failure-rate 0 --lose-rate 1").await;
    let flags = "--provider-timeout 1s --settle-after 2s --reconcile-every 1s";
    let (one, other) = tokio::join!(world.serve(flags), world.serve(flags));
    let order = one.order(1_200).await;
    let reply = one.pay(&order, "key").await;
    assert_eq!((reply.status, reply.body["kind"].as_str()), (504, Some("no_answer")), "{reply:?}");

    let paid = async || (other.get(&format!("/orders/{order}")).await.body["status"] == "paid").then_some(());
    eventually("the order is settled", paid).await;
    assert_eq!(one.pay(&order, "key").await.status, 200, "who comes back late gets the receipt");
    assert_eq!(world.charges(&order).await, 1);
    let skipped = async || {
        let both = [one.text("/metrics").await, other.text("/metrics").await];
        both.iter().any(|metrics| metrics.contains(r#"reconciliations_total{result="skipped"}"#)).then_some(())
    };
    eventually("one of them has seen that the other was at it", skipped).await;
}
