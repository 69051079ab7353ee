//! The lock and what can stand in its place, side by side in the same test: thirty reservations of a stock of ten.

use order_service::alternatives::{by_row_lock, by_script, by_statement, by_version, stock_key};
use order_service::error::Error;
use order_service::store::Store;
use redis::AsyncCommands as _;
use serde_json::json;

use crate::equal_payments::join_all;
use crate::harness::{Kind, World};

const SKU: &str = "socks";

/// Runs thirty at once, and shows that ten get one each.
async fn ten_of_thirty_get_one(reserve: impl AsyncFn() -> Result<i64, Error>) {
    let outcomes = join_all((0..30).map(|_| reserve())).await;
    let mut left: Vec<i64> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok().copied()).collect();
    left.sort_unstable();
    assert_eq!(left, (0..10).collect::<Vec<_>>(), "not everybody who got one got another one: {outcomes:?}");
    let refused = outcomes.iter().filter(|outcome| matches!(outcome, Err(Error::NotEnough(_)))).count();
    assert_eq!(refused, 20, "some failed otherwise: {outcomes:?}");
}

async fn side_by_side(kind: Kind) {
    let world = World::new(kind, "").await;
    let (one, other) = (world.serve("").await, world.serve("").await);
    let store = Store::open(&world.database()).await.unwrap();

    store.set_stock(SKU, 10, None).await.unwrap();
    // Locks in memory are for one instance.
    let instances = if kind == Kind::Local { [&one, &one] } else { [&one, &other] };
    let turn = std::sync::atomic::AtomicUsize::new(0);
    ten_of_thirty_get_one(async || {
        let instance = instances[turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 2];
        let reply = instance.post_at_last(&format!("/stock/{SKU}/reserve"), &json!({ "count": 1 })).await;
        assert!(reply.status == 200 || reply.body["kind"] == "not_enough", "{reply:?}");
        reply.body["left"].as_i64().ok_or(Error::NotEnough("stock"))
    })
    .await;
    assert_eq!(one.get(&format!("/stock/{SKU}")).await.body["count"], 0);

    store.set_stock(SKU, 10, None).await.unwrap();
    ten_of_thirty_get_one(async || by_version(&store, SKU, 1).await).await;
    assert_eq!(store.stock(SKU).await.unwrap(), 0);

    store.set_stock(SKU, 10, None).await.unwrap();
    ten_of_thirty_get_one(async || by_row_lock(&store, SKU, 1).await).await;
    assert_eq!(store.stock(SKU).await.unwrap(), 0);

    store.set_stock(SKU, 10, None).await.unwrap();
    ten_of_thirty_get_one(async || by_statement(&store, SKU, 1).await).await;
    assert_eq!(store.stock(SKU).await.unwrap(), 0);

    if kind == Kind::Servers {
        let redis = world.redis().connection().await.unwrap();
        let mut connection = redis.clone();
        let (): () = connection.set(stock_key(SKU), 10).await.unwrap();
        ten_of_thirty_get_one(async || by_script(&redis, SKU, 1).await).await;
        let left: i64 = connection.get(stock_key(SKU)).await.unwrap();
        assert_eq!(left, 0);
    }
}

#[tokio::test]
async fn stock_is_never_oversold_on_sqlite_and_memory() {
    side_by_side(Kind::Local).await;
}

#[tokio::test]
async fn stock_is_never_oversold_on_postgres_and_redis() {
    side_by_side(Kind::Servers).await;
}

#[tokio::test]
async fn a_new_number_waits_for_who_reserves() {
    let world = World::new(Kind::Servers, "").await;
    let customer = world.serve("--wait 1s").await;
    let locks = distlock::LockManager::connect(&world.redis().url()).await.unwrap();
    let guard = locks.lock(format!("stock:{SKU}")).acquire().await.unwrap();
    let refused = customer.post("/stock", &json!({ "sku": SKU, "count": 10 })).await;
    assert!(refused.body["kind"] == "busy" || refused.body["kind"] == "lock", "{refused:?}");
    assert_eq!(customer.get(&format!("/stock/{SKU}")).await.status, 404);
    guard.release().await.unwrap();
    assert_eq!(customer.post_at_last("/stock", &json!({ "sku": SKU, "count": 10 })).await.status, 201);
}
