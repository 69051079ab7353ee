//! Money that moves between accounts is neither made nor lost.

use serde_json::json;

use crate::equal_payments::join_all;
use crate::harness::{Customer, Kind, World, eventually};

#[tokio::test]
async fn transfers_both_ways_keep_the_sum_on_sqlite_and_memory() {
    let world = World::new(Kind::Local, "").await;
    transfers_both_ways_keep_the_sum(&[&world.serve("").await]).await;
}

#[tokio::test]
async fn transfers_both_ways_keep_the_sum_over_instances_on_postgres_and_redis() {
    let world = World::new(Kind::Servers, "").await;
    let (one, other) = tokio::join!(world.serve(""), world.serve(""));
    transfers_both_ways_keep_the_sum(&[&one, &other]).await;
}

async fn transfers_both_ways_keep_the_sum(instances: &[&Customer]) {
    let (one, other) = (account(instances[0], 1_000).await, account(instances[0], 0).await);
    let forth = json!({ "from": one, "to": other, "amount": 30 });
    let back = json!({ "from": other, "to": one, "amount": 20 });
    let transfers = (0..40).map(|at| {
        let transfer = if at % 2 == 0 { &forth } else { &back };
        instances[at / 2 % instances.len()].post_at_last("/transfers", transfer)
    });
    let replies = join_all(transfers).await;

    let done = |from: &str| replies.iter().filter(|reply| reply.status == 200 && reply.body["from"] == from).count();
    let refused = replies.iter().filter(|reply| reply.body["kind"] == "not_enough").count();
    let (forth, back) = (i64::try_from(done(&one)).unwrap(), i64::try_from(done(&other)).unwrap());
    assert_eq!(forth + back + i64::try_from(refused).unwrap(), 40, "some failed otherwise: {replies:?}");
    let moved = 30 * forth - 20 * back;
    assert_eq!((balance(instances[0], &one).await, balance(instances[0], &other).await), (1_000 - moved, moved));
}

#[tokio::test]
async fn nothing_is_moved_that_is_not_there() {
    let world = World::new(Kind::Local, "").await;
    let customer = world.serve("").await;
    let (one, other) = (account(&customer, 10).await, account(&customer, 0).await);
    let transfer = async |to: &str, amount| {
        customer.post_at_last("/transfers", &json!({ "from": one, "to": to, "amount": amount })).await.status
    };
    assert_eq!(transfer(&other, 11).await, 409);
    assert_eq!(transfer("nobody", 1).await, 404);
    assert_eq!(transfer(&one, 1).await, 422);
    assert_eq!(transfer(&other, 10).await, 200);
    assert_eq!((balance(&customer, &one).await, balance(&customer, &other).await), (0, 10));
}

#[tokio::test]
async fn a_transfer_that_is_sent_again_with_its_key_is_made_once_on_sqlite_and_memory() {
    let world = World::new(Kind::Local, "").await;
    a_transfer_that_is_sent_again_with_its_key_is_made_once(&[&world.serve("").await]).await;
}

#[tokio::test]
async fn a_transfer_that_is_sent_again_with_its_key_is_made_once_on_postgres_and_redis() {
    let world = World::new(Kind::Servers, "").await;
    let (one, other) = tokio::join!(world.serve(""), world.serve("--lock off"));
    a_transfer_that_is_sent_again_with_its_key_is_made_once(&[&one, &other]).await;
}

async fn a_transfer_that_is_sent_again_with_its_key_is_made_once(instances: &[&Customer]) {
    let (one, other) = (account(instances[0], 1_000).await, account(instances[0], 0).await);
    let transfer = json!({ "from": one, "to": other, "amount": 30 });
    let sent = (0..20).map(|at| {
        let customer = instances[at % instances.len()];
        let transfer = &transfer;
        async move {
            eventually("the transfer is made", async || {
                let reply = customer.post_with("once", "/transfers", transfer).await;
                (reply.status == 200).then_some(reply)
            })
            .await
        }
    });
    for reply in join_all(sent).await {
        assert_eq!(reply.body, transfer, "{reply:?}");
    }
    assert_eq!((balance(instances[0], &one).await, balance(instances[0], &other).await), (970, 30));
    let another = json!({ "from": one, "to": other, "amount": 31 });
    let reused = instances[0].post_with("once", "/transfers", &another).await;
    assert_eq!((reused.status, reused.body["kind"].as_str()), (422, Some("key_reused")), "{reused:?}");
    let unreadable = instances[0].post_with(&"k".repeat(256), "/transfers", &another).await;
    assert_eq!(unreadable.status, 422, "what its sender relies on must not be left out: {unreadable:?}");
    assert_eq!(balance(instances[0], &one).await, 970);
}

async fn account(customer: &Customer, balance: i64) -> String {
    let made = customer.post("/accounts", &json!({ "balance": balance })).await;
    made.body["id"].as_str().unwrap().to_owned()
}

async fn balance(customer: &Customer, account: &str) -> i64 {
    customer.get(&format!("/accounts/{account}")).await.body["balance"].as_i64().unwrap()
}
