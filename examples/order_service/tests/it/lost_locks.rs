//! Redis forgets the lock, is restarted, or is not there.

use crate::harness::{Kind, World};

const PROVIDER: &str = "--delay 3s --failure-rate 0";
const SERVICE: &str = "--ttl 2s --settle-after 12s";

#[tokio::test]
async fn a_redis_that_is_restarted_in_mid_payment_costs_no_second_charge() {
    let world = World::new(Kind::Servers, PROVIDER).await;
    let (one, other) = tokio::join!(world.serve(SERVICE), world.serve(SERVICE));
    let order = one.order(1_200).await;
    let restart_and_tap = async {
        world.is_asked_for(&order).await;
        world.redis().go_down();
        assert!(world.redis().go_up().await, "redis didn't come back");
        // The server knows nothing of the lock: the others get it while the first is being charged.
        other.pay_at_last(&order, "tap").await
    };
    let (first, last) = tokio::join!(one.pay_at_last(&order, "tap"), restart_and_tap);
    world.is_idle().await;
    assert_eq!((first.status, last.status), (200, 200), "{first:?}, {last:?}");
    assert_eq!(first.body, last.body, "there are two receipts");
    assert_eq!(world.charges(&order).await, 1, "the customer was not charged exactly once");
}

#[tokio::test]
async fn a_lock_that_is_lost_in_mid_payment_is_503_and_the_payment_is_settled() {
    let world = World::new(Kind::Servers, "--delay 8s --failure-rate 0").await;
    // A loss is noticed after a third of the ttl.
    let customer = world.serve("--ttl 6s --settle-after 20s").await;
    let order = customer.order(1_200).await;
    let lose = async {
        world.is_asked_for(&order).await;
        assert!(world.redis().delete(&format!("lock:{{order:{order}}}")).await, "there was no lock to delete");
    };
    let (reply, ()) = tokio::join!(customer.pay(&order, "tap"), lose);
    assert_eq!((reply.status, reply.body["kind"].as_str()), (503, Some("lost")), "{reply:?}");

    // Nobody is at it any more, so a repeat hears at once when it can be settled.
    let early = customer.pay(&order, "tap").await;
    assert_eq!((early.status, early.body["kind"].as_str()), (409, Some("unsettled")), "{early:?}");
    assert!(early.retry_after.is_some_and(|seconds| (2..=20).contains(&seconds)), "{early:?}");
    let last = customer.pay_at_last(&order, "tap").await;
    world.is_idle().await;
    assert_eq!((last.status, world.charges(&order).await), (200, 1), "{last:?}");
}

#[tokio::test]
async fn a_redis_that_is_down_is_503_and_nobody_is_charged() {
    let world = World::new(Kind::Servers, PROVIDER).await;
    let customer = world.serve("--wait 2s").await;
    let order = customer.order(1_200).await;
    world.redis().go_down();
    let reply = customer.pay(&order, "tap").await;
    assert_eq!((reply.status, reply.body["kind"].as_str()), (503, Some("lock")), "{reply:?}");
    world.is_idle().await;
    assert_eq!(world.charges(&order).await, 0);
}
