//! The database goes down, or hangs.

use crate::harness::{Gate, Kind, World};

const PROVIDER: &str = "--delay 10ms --failure-rate 0";

#[tokio::test]
async fn a_database_that_goes_down_in_mid_payment_is_503() {
    let world = World::new(Kind::Servers, PROVIDER).await;
    let customer = world.serve("").await;
    let order = customer.order(1_200).await;
    let gate = Gate::close(&world.database()).await;
    let cut_off = async {
        gate.is_waited_at_by(1).await;
        gate.cut_off().await;
    };
    let (reply, ()) = tokio::join!(customer.pay(&order, "tap"), cut_off);
    assert_eq!((reply.status, reply.body["kind"].as_str()), (503, Some("database")), "{reply:?}");
    gate.open().await;
    assert_eq!(customer.pay_at_last(&order, "tap").await.status, 200);
    assert_eq!(world.charges(&order).await, 1);
}
