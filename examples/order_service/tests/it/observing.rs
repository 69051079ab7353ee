//! Health and metrics.

use crate::harness::{Kind, World};

#[tokio::test]
async fn metrics_tell_of_requests_payments_and_locks() {
    let world = World::new(Kind::Local, "--delay 10ms --failure-rate 0").await;
    let customer = world.serve("").await;
    let order = customer.order(1_200).await;
    assert_eq!(customer.pay(&order, "key").await.status, 200);
    assert_eq!(customer.pay(&order, "key").await.status, 200);
    assert_eq!(customer.get("/health").await.status, 200);

    let metrics = customer.text("/metrics").await;
    for expected in [
        r#"http_requests_total{route="/orders/{id}/pay",method="POST",status="200"} 2"#,
        r#"payments_total{result="paid"} 1"#,
        r#"payments_total{result="repeated"} 1"#,
        r#"distlock_acquires_total{function="order_service::pay::pay_locked",kind="exclusive",result="acquired"} 1"#,
    ] {
        assert!(metrics.contains(expected), "there is no {expected} in\n{metrics}");
    }
    assert!(metrics.contains("distlock_held_seconds_bucket"), "{metrics}");
}
