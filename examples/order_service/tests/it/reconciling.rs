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
