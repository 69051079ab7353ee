//! Each of the three lines holds alone, and without all of them the incident happens.

use distlock::FencingToken;
use order_service::error::Error;
use order_service::store::Store;

use crate::equal_payments::join_all;
use crate::harness::{Customer, Kind, Reply, World};

const PROVIDER: &str = "--delay 500ms --failure-rate 0";

#[tokio::test]
async fn the_lock_alone_lets_one_charge_through() {
    let world = World::new(Kind::Servers, PROVIDER).await;
    let flags = "--idempotency off --fencing off";
    let (one, other) = tokio::join!(world.serve(flags), world.serve(flags));
    let (order, _) = tap(&[&one, &other], &different(30)).await;
    assert_eq!(world.charges(&order).await, 1);
}

#[tokio::test]
async fn the_idempotency_key_alone_lets_one_charge_through() {
    let world = World::new(Kind::Servers, PROVIDER).await;
    let flags = "--lock off --fencing off";
    let (one, other) = tokio::join!(world.serve(flags), world.serve(flags));
    let (order, replies) = tap(&[&one, &other], &vec!["equal".to_owned(); 30]).await;
    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    assert_eq!(world.charges(&order).await, 1);
}

/// Locks in memory, of two instances: each believes that it has the lock. The token is all that is left of it.
#[tokio::test]
async fn the_fencing_token_alone_lets_one_charge_through() {
    let world = World::new(Kind::Local, PROVIDER).await;
    let flags = "--idempotency off --settle-after 12s";
    let (one, other) = tokio::join!(world.serve(flags), world.serve(flags));
    assert!(one.service.log().contains("locks are in memory"), "nobody was warned: {}", one.service.log());
    let (order, _) = tap(&[&one, &other], &different(10)).await;
    world.is_idle().await;
    assert_eq!(world.charges(&order).await, 1);
}

#[tokio::test]
async fn the_store_refuses_every_step_of_a_holder_that_is_late_on_sqlite() {
    the_store_refuses_every_step_of_a_holder_that_is_late(Kind::Local).await;
}

#[tokio::test]
async fn the_store_refuses_every_step_of_a_holder_that_is_late_on_postgres() {
    the_store_refuses_every_step_of_a_holder_that_is_late(Kind::Servers).await;
}

async fn the_store_refuses_every_step_of_a_holder_that_is_late(kind: Kind) {
    let world = World::new(kind, PROVIDER).await;
    let store = Store::open(&world.database()).await.unwrap();
    let id = store.add_order(1_200).await.unwrap();
    let (late, later) = (FencingToken::new(7), FencingToken::new(8));
    store.enter_order(&id, late).await.unwrap();
    store.record_intent(&id, late, None).await.unwrap();
    // The later holder sees what the late one has done, and from then on there is no more of it.
    assert!(store.enter_order(&id, later).await.unwrap().asked_ago.is_some());

    let refused = [
        store.enter_order(&id, late).await.map(drop),
        store.record_intent(&id, late, None).await,
        store.record_charge(&id, late, "charge").await,
        store.withdraw_intent(&id, late).await,
    ];
    assert!(refused.iter().all(|step| matches!(step, Err(Error::Late))), "{refused:?}");
    let order = store.order(&id).await.unwrap();
    assert!(order.charge.is_none() && order.asked_ago.is_some(), "a late holder has written: {order:?}");
    store.record_charge(&id, later, "charge").await.unwrap();
}

/// This also shows that the tests above can fail.
#[tokio::test]
async fn without_any_of_them_the_customer_is_charged_more_than_once() {
    let world = World::new(Kind::Servers, PROVIDER).await;
    let flags = "--lock off --idempotency off --fencing off";
    let (one, other) = tokio::join!(world.serve(flags), world.serve(flags));
    // Whether two requests meet is a matter of luck; in this many rounds it would take a lot of it to miss.
    for _ in 0..30 {
        let (order, _) = tap(&[&one, &other], &vec!["equal".to_owned(); 10]).await;
        world.is_idle().await;
        if world.charges(&order).await > 1 {
            return;
        }
    }
    panic!("thirty times in a row, ten requests at once charged once, though nothing hinders them");
}

fn different(count: usize) -> Vec<String> {
    (0..count).map(|tap| format!("tap-{tap}")).collect()
}

/// Pays a new order with all keys at once, by turns on the instances.
async fn tap(instances: &[&Customer], keys: &[String]) -> (String, Vec<Reply>) {
    let order = instances[0].order(1_200).await;
    let taps = keys.iter().enumerate().map(|(at, key)| instances[at % instances.len()].pay_at_last(&order, key));
    let replies = join_all(taps).await;
    (order, replies)
}
