//! Each of the three lines holds alone, and without all of them the incident happens.

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
