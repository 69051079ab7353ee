//! The nightly job runs on one instance, and finds what is wrong.

use distlock::LockManager;
use serde_json::{Value, json};

use crate::harness::{Kind, World, eventually};

#[tokio::test]
async fn while_one_instance_reconciles_another_skips_it() {
    let world = World::new(Kind::Servers, "").await;
    let customer = world.serve("").await;
    let another = LockManager::connect(&world.redis().url()).await.unwrap();
    let guard = another.lock("reconcile").acquire().await.unwrap();
    let skipped = customer.post("/reconcile", &Value::Null).await;
    assert_eq!((skipped.status, &skipped.body["ran"]), (200, &json!(false)), "{skipped:?}");
    drop(guard);
    // It is also skipped where Redis takes too long to answer.
    let ran = async || (customer.post("/reconcile", &Value::Null).await.body["ran"] == true).then_some(());
    eventually("it runs", ran).await;
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
    let report = customer.post("/reconcile", &Value::Null).await.body;
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
