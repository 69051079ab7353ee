//! The database goes down, or hangs.

use sqlx::Connection as _;

use crate::equal_payments::join_all;
use crate::harness::{Gate, Kind, Reply, World, eventually};

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

#[tokio::test]
async fn a_payment_that_was_stopped_has_given_its_key_back() {
    let world = World::new(Kind::Servers, PROVIDER).await;
    // Without the lock, whose `max_hold` would be over first.
    let customer = world.serve("--lock off --ttl 1s --wait 1s --provider-timeout 100ms --settle-after 1h").await;
    let order = customer.order(1_200).await;
    let gate = Gate::close(&world.database()).await;
    assert_is_503(&customer.pay(&order, "tap").await, "timed_out");
    let stopped = r#"payments_total{result="timed_out"} 1"#;
    eventually("the payment is over", async || customer.text("/metrics").await.contains(stopped).then_some(())).await;
    gate.open().await;
    // What the database makes of the intent that it was still at is left to it.
    let again = customer.pay(&order, "tap").await;
    assert!(again.status == 200 || again.body["kind"] == "unsettled", "{again:?}");
}

/// The first to hang are stopped, lock or not; those behind them, for whom there is no connection, hear of it sooner.
#[tokio::test]
async fn a_database_that_hangs_is_503_and_keeps_no_lock() {
    let world = World::new(Kind::Servers, PROVIDER).await;
    let flags = "--ttl 1s --wait 1s --provider-timeout 500ms";
    let without_keys = format!("{flags} --idempotency off");
    let (one, other) = tokio::join!(world.serve(flags), world.serve(&without_keys));
    let orders = [one.order(1_200).await, other.order(1_200).await];
    let hanging = Hanging::begin(&world.database()).await;

    let path = format!("/orders/{}", orders[0]);
    let (before_the_lock, under_the_lock, reads) = tokio::join!(
        one.pay(&orders[0], "tap"),
        other.pay(&orders[1], "tap"),
        join_all((0..12).map(|_| one.get(&path))),
    );
    assert_is_503(&before_the_lock, "timed_out");
    assert_is_503(&under_the_lock, "lost");
    for reply in &reads {
        assert_is_503(reply, if reply.body["kind"] == "database" { "database" } else { "timed_out" });
    }
    let turned_away = reads.iter().filter(|reply| reply.body["kind"] == "database").count();
    assert!((1..12).contains(&turned_away), "all or none found a connection: {reads:?}");
    let stopped = r#"payments_total{result="timed_out"} 1"#;
    eventually("the payment is over", async || one.text("/metrics").await.contains(stopped).then_some(())).await;

    hanging.end().await;
    for (customer, order) in [(&one, &orders[0]), (&other, &orders[1])] {
        assert_eq!(customer.pay_at_last(order, "tap").await.status, 200);
        assert_eq!(world.charges(order).await, 1);
    }
}

fn assert_is_503(reply: &Reply, kind: &str) {
    assert_eq!((reply.status, reply.body["kind"].as_str()), (503, Some(kind)), "{reply:?}");
}

/// Statements on the tables of payments are not answered until it is ended.
struct Hanging(sqlx::AnyConnection);

impl Hanging {
    async fn begin(database: &str) -> Hanging {
        let mut connection = sqlx::AnyConnection::connect(database).await.unwrap();
        let lock = "BEGIN; LOCK TABLE orders, idempotency IN ACCESS EXCLUSIVE MODE";
        sqlx::raw_sql(lock).execute(&mut connection).await.unwrap();
        Hanging(connection)
    }

    async fn end(mut self) {
        sqlx::raw_sql("ROLLBACK").execute(&mut self.0).await.unwrap();
    }
}
