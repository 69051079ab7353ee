//! What can't be meant is refused, as JSON with a kind, before it comes to a lock or the database.

use serde_json::json;

use crate::harness::{Kind, Reply, World};

const PROVIDER: &str = "--delay 10ms --failure-rate 0";

#[tokio::test]
async fn names_that_cannot_be_are_refused_on_sqlite_and_memory() {
    names_that_cannot_be_are_refused(Kind::Local).await;
}

#[tokio::test]
async fn names_that_cannot_be_are_refused_on_postgres_and_redis() {
    names_that_cannot_be_are_refused(Kind::Servers).await;
}

async fn names_that_cannot_be_are_refused(kind: Kind) {
    let world = World::new(kind, PROVIDER).await;
    let customer = world.serve("").await;
    let long = "x".repeat(2_000);
    for id in ["%00", "a%00b", "a%0Ab", "%20", "%ff", &long] {
        assert_is(&customer.get(&format!("/orders/{id}")).await, 404, "not_found", id);
        assert_is(&customer.pay(id, "key").await, 404, "not_found", id);
        assert_is(&customer.get(&format!("/accounts/{id}")).await, 404, "not_found", id);
        assert_is(&customer.get(&format!("/stock/{id}")).await, 404, "not_found", id);
        let reserved = customer.post(&format!("/stock/{id}/reserve"), &json!({ "count": 1 })).await;
        assert_is(&reserved, 404, "not_found", id);
    }
    let account = customer.post("/accounts", &json!({ "balance": 10 })).await.body["id"].clone();
    for name in ["", " ", "a\0b", "a\nb", &long] {
        assert_is(&customer.post("/stock", &json!({ "sku": name, "count": 1 })).await, 422, "invalid", name);
        for (from, to) in [(&json!(name), &account), (&account, &json!(name))] {
            let transfer = json!({ "from": from, "to": to, "amount": 1 });
            assert_is(&customer.post("/transfers", &transfer).await, 422, "invalid", name);
        }
    }
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_refused() {
    let world = World::new(Kind::Local, PROVIDER).await;
    let customer = world.serve("").await;
    for body in ["", "{", r#"{"amount": "much"}"#, r#"{"amount": 9223372036854775808}"#, r#"{"amount": 0}"#] {
        assert_is(&customer.send("/orders", Some("application/json"), body.as_bytes()).await, 422, "invalid", body);
    }
    assert_is(&customer.send("/orders", None, br#"{"amount": 1}"#).await, 415, "invalid", "no content type");

    let order = customer.order(1_200).await;
    for body in [b"\xff".as_slice(), b"{\"amount\":1200}\0", b"{\"amount\":1200.5}"] {
        let reply = customer.send(&format!("/orders/{order}/pay"), None, body).await;
        assert_is(&reply, 422, "invalid", &String::from_utf8_lossy(body));
    }
    assert_is(&customer.get("/nowhere").await, 404, "not_found", "a path that there isn't");
}

/// A payment is not where one should hear of it.
#[tokio::test]
async fn flags_that_the_locks_would_refuse_end_the_service_at_its_start() {
    let world = World::new(Kind::Local, PROVIDER).await;
    for (flag, length) in [("--ttl", "10ms"), ("--ttl", "25h"), ("--wait", "0s"), ("--wait", "48h")] {
        let why = world.refuses(&format!("{flag} {length}")).await;
        let option = format!("`{}`", flag.trim_start_matches('-'));
        assert!(why.contains(&option) && why.contains("must be"), "{flag} {length}: {why}");
    }
    for flag in ["--provider-timeout", "--reconcile-every"] {
        let why = world.refuses(&format!("{flag} 0s")).await;
        assert!(why.contains(flag) && why.contains("more than nothing"), "{why}");
    }
}

fn assert_is(reply: &Reply, status: u16, kind: &str, what: &str) {
    assert_eq!((reply.status, reply.body["kind"].as_str()), (status, Some(kind)), "{what:?}: {reply:?}");
}
