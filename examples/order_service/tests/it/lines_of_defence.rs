//! What each of the three lines stops, and that without all of them the incident happens. None survives every attack alone.

use distlock::FencingToken;
use order_service::config::SENDING_MARGIN;
use order_service::error::Error;
use order_service::store::Store;
use order_service::transfer::write_balance;
use sqlx::Connection as _;

use crate::equal_payments::join_all;
use crate::harness::{Customer, Gate, Kind, Reply, World};

const PROVIDER: &str = "--delay 500ms --failure-rate 0";

#[tokio::test]
async fn the_lock_alone_lets_one_charge_through_while_nothing_breaks() {
    let world = World::new(Kind::Servers, PROVIDER).await;
    let flags = "--idempotency off --fencing off";
    let (one, other) = tokio::join!(world.serve(flags), world.serve(flags));
    let (order, _) = tap(&[&one, &other], &different(30)).await;
    assert_eq!(world.charges(&order).await, 1);
}

#[tokio::test]
async fn the_idempotency_key_alone_lets_equal_payments_charge_once() {
    let world = World::new(Kind::Servers, PROVIDER).await;
    let flags = "--lock off --fencing off";
    let (one, other) = tokio::join!(world.serve(flags), world.serve(flags));
    let (order, replies) = tap(&[&one, &other], &vec!["equal".to_owned(); 30]).await;
    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    assert_eq!(world.charges(&order).await, 1);
}

#[tokio::test]
async fn the_lock_with_its_fencing_token_stops_a_holder_that_is_late() {
    let (late, later, charges) = two_who_both_believe_they_have_the_lock("--idempotency off").await;
    assert_eq!((late.status, late.body["kind"].as_str()), (503, Some("late")), "{late:?}");
    assert_eq!((later.status, charges), (200, 1), "{later:?}");
}

/// The lock alone: what the test above would see if the store took everything.
#[tokio::test]
async fn without_the_fencing_token_a_holder_that_is_late_charges_as_well() {
    let (_, _, charges) = two_who_both_believe_they_have_the_lock("--idempotency off --fencing off").await;
    assert_eq!(charges, 2);
}

/// Stops one payment right before it records its intent, or its charge where there is no intent, lets Redis forget its lock, lets
/// another one get as far, and lets both go on. The ttl is so long that no renewal notices.
async fn two_who_both_believe_they_have_the_lock(flags: &str) -> (Reply, Reply, usize) {
    let world = World::new(Kind::Servers, PROVIDER).await;
    let flags = format!("{flags} --ttl 10m");
    let (one, other) = tokio::join!(world.serve(&flags), world.serve(&flags));
    let order = one.order(1_200).await;
    let gate = Gate::close(&world.database()).await;
    let late = async {
        let reply = one.pay(&order, "one").await;
        assert!(reply.retry_after.is_none(), "it didn't get as far as the test wants: {reply:?}");
        reply
    };
    let later = async {
        gate.is_waited_at_by(1).await;
        assert!(world.redis().delete(&format!("lock:{{order:{order}}}")).await, "there was no lock to delete");
        let open = async {
            gate.is_waited_at_by(2).await;
            gate.open().await;
        };
        tokio::join!(other.pay(&order, "other"), open).0
    };
    let (late, later) = tokio::join!(late, later);
    world.is_idle().await;
    (late, later, world.charges(&order).await)
}

#[tokio::test]
async fn an_intent_that_took_too_long_to_record_is_withdrawn_and_nothing_is_sent() {
    let world = World::new(Kind::Servers, PROVIDER).await;
    let customer = world.serve("--settle-after 24h").await;
    let order = customer.order(1_200).await;
    let gate = Gate::close(&world.database()).await;
    let open = async {
        gate.is_waited_at_by(1).await;
        // It is the time itself that matters here.
        tokio::time::sleep(SENDING_MARGIN).await;
        gate.open().await;
    };
    let (reply, ()) = tokio::join!(customer.pay(&order, "tap"), open);
    assert_eq!((reply.status, reply.body["kind"].as_str()), (503, Some("delayed")), "{reply:?}");
    world.is_idle().await;
    assert_eq!(world.charges(&order).await, 0, "the provider was asked all the same");
    // With an intent that stays it would be a day.
    assert_eq!(customer.pay_at_last(&order, "tap").await.status, 200);
}

#[tokio::test]
async fn that_payments_are_settled_too_early_is_said_at_the_start() {
    let world = World::new(Kind::Local, PROVIDER).await;
    let settles_after = async |flags: &str| world.serve(flags).await.service.log();
    let warning = "payments are settled too early";
    let early = settles_after("--provider-timeout 1s --settle-after 6999ms").await;
    assert!(early.contains(warning), "{early}");
    let in_time = settles_after("--provider-timeout 1s --settle-after 7s").await;
    assert!(!in_time.contains(warning), "{in_time}");
}

#[tokio::test]
async fn that_locks_in_memory_are_no_defence_is_said_at_the_start() {
    let world = World::new(Kind::Local, PROVIDER).await;
    let log = world.serve("").await.service.log();
    assert!(log.contains("the locks are in memory"), "{log}");
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

#[tokio::test]
async fn stock_and_accounts_refuse_who_is_late_on_sqlite() {
    stock_and_accounts_refuse_who_is_late(Kind::Local).await;
}

#[tokio::test]
async fn stock_and_accounts_refuse_who_is_late_on_postgres() {
    stock_and_accounts_refuse_who_is_late(Kind::Servers).await;
}

async fn stock_and_accounts_refuse_who_is_late(kind: Kind) {
    let world = World::new(kind, PROVIDER).await;
    let store = Store::open(&world.database()).await.unwrap();
    let (late, later) = (FencingToken::new(7), FencingToken::new(8));
    store.set_stock("socks", 10, late).await.unwrap();
    let account = store.add_account(10).await.unwrap();
    // Both have read; the later one has then raised the fence.
    assert_eq!(store.enter_stock("socks", late).await.unwrap(), 10);
    assert_eq!(store.enter_stock("socks", later).await.unwrap(), 10);
    assert_eq!(store.enter_account(&account, late).await.unwrap(), 10);
    assert_eq!(store.enter_account(&account, later).await.unwrap(), 10);

    let mut connection = sqlx::AnyConnection::connect(&world.database()).await.unwrap();
    let refused = [
        store.enter_stock("socks", late).await.map(drop),
        store.set_stock("socks", 9, late).await,
        store.write_stock("socks", 9, late).await,
        store.enter_account(&account, late).await.map(drop),
        write_balance(&mut connection, &account, 9, late).await,
    ];
    assert!(refused.iter().all(|step| matches!(step, Err(Error::Late))), "{refused:?}");
    assert_eq!((store.stock("socks").await.unwrap(), store.balance(&account).await.unwrap()), (10, 10));
    store.write_stock("socks", 8, later).await.unwrap();
    write_balance(&mut connection, &account, 8, later).await.unwrap();
    assert_eq!((store.stock("socks").await.unwrap(), store.balance(&account).await.unwrap()), (8, 8));
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
