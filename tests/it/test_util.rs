//! What applications test with: faults on demand, and the assertion that code runs under a lock.

use std::future::pending;
use std::time::Duration;

use distlock::test_util::{TestBackend, exclusively_held_keys, held_keys};
use distlock::{LockError, LockManager, LostReason, Mode, OnLost, assert_locked, distributed_lock};

async fn manager() -> (LockManager, TestBackend) {
    let backend = TestBackend::new();
    (LockManager::builder().backend(backend.clone()).build().await.unwrap(), backend)
}

#[distributed_lock(key = "order:<id>")]
async fn pay(id: u32, paid: &mut bool) -> Result<(), LockError> {
    *paid = true;
    Ok(())
}

#[tokio::test]
async fn a_refusal_on_demand_is_an_ordinary_refusal() {
    let (locks, backend) = manager().await;
    let mut paid = false;
    backend.refuse(1);
    let error = locks.scope(pay(1, &mut paid)).await.unwrap_err();
    assert!(matches!(&error, LockError::Busy { holder, .. } if holder == "somebody-else"), "{error}");
    assert!(!paid);
    locks.scope(pay(1, &mut paid)).await.unwrap();
    assert!(paid);
}

#[tokio::test]
async fn a_failure_on_demand_is_tried_again() {
    let (locks, backend) = manager().await;
    backend.fail(2);
    assert!(locks.lock("k").acquire().await.unwrap_err().is_transient());
    locks.lock("k").retry(1).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_lock_that_is_lost_on_demand_stops_its_body_at_once() {
    let (locks, backend) = manager().await;
    for mode in [Mode::Exclusive, Mode::Read] {
        let loses = backend.clone();
        let body = async {
            assert!(loses.lose("k"));
            pending::<Result<(), LockError>>().await
        };
        let error = locks.lock("k").mode(mode).run(body).await.unwrap_err();
        assert!(matches!(error, LockError::Lost { reason: LostReason::Gone, .. }), "{error}");
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    }
    assert!(!backend.lose("k"), "nobody holds it");
}

#[tokio::test]
async fn all_who_share_a_lock_lose_it_on_demand() {
    let (locks, backend) = manager().await;
    let share = || locks.lock("k").permits(3).acquire();
    let (one, other, third) = (share().await.unwrap(), share().await.unwrap(), share().await.unwrap());
    third.release().await.unwrap();
    assert!(backend.lose("k"));
    for guard in [&one, &other] {
        assert!(guard.lease().ensure_held().unwrap_err().is_lost());
    }
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    assert!(!backend.lose("k"), "nobody holds it");
}

#[tokio::test]
async fn a_lock_that_was_passed_on_is_lost_on_demand_by_who_has_it_now() {
    let (locks, backend) = manager().await;
    let first = locks.lock("k").wait(Duration::from_secs(60)).acquire().await.unwrap();
    let second = tokio::spawn(locks.lock("k").wait(Duration::from_secs(60)).acquire());
    // It stands in line behind the first one now.
    tokio::task::yield_now().await;
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(backend.lose("k"));
    assert!(second.lease().ensure_held().unwrap_err().is_lost());
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_delay_beyond_the_command_timeout_is_no_answer() {
    let backend = TestBackend::new();
    let timeout = Duration::from_millis(50);
    let locks = LockManager::builder().backend(backend.clone()).command_timeout(timeout).build().await.unwrap();
    let guard = locks.lock("k").acquire().await.unwrap();
    backend.delay(Duration::from_secs(600));
    assert!(matches!(locks.lock("another").acquire().await, Err(LockError::Backend { .. })));
    assert!(matches!(guard.release().await, Err(LockError::Backend { .. })));
    backend.delay(Duration::ZERO);
    locks.lock("k").wait(Duration::from_secs(60)).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_reply_that_is_dropped_leaves_nothing_locked() {
    let (locks, backend) = manager().await;
    backend.drop_replies(1);
    let error = locks.lock("k").ttl(Duration::from_millis(300)).acquire().await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    // What the request has set is freed in the background.
    locks.lock("k").wait(Duration::from_secs(60)).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_delay_is_waited_for() {
    let (locks, backend) = manager().await;
    backend.delay(Duration::from_millis(50));
    let begin = std::time::Instant::now();
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(100));
}

#[tokio::test]
async fn code_knows_under_which_locks_it_runs() {
    let (locks, _) = manager().await;
    assert_eq!(held_keys(), [""; 0]);
    let inner = async {
        assert_locked!();
        assert_locked!("order:{}", 1);
        assert_eq!(held_keys(), ["order:1", "a", "b"]);
        let elsewhere = tokio::spawn(async { held_keys() });
        assert_eq!(elsewhere.await.unwrap(), [""; 0], "what is spawned runs under none");
        Ok::<_, LockError>(())
    };
    let outer = async { locks.lock_all(["a", "b"]).run(inner).await };
    locks.lock("order:1").run(outer).await.unwrap();
    let guard = locks.lock("k").acquire().await.unwrap();
    assert_eq!(held_keys(), [""; 0], "a guard is held by nobody in particular");
    drop(guard);
}

#[tokio::test]
async fn code_knows_which_locks_it_has_alone_and_which_are_left() {
    let (locks, backend) = manager().await;
    let nested = async { locks.lock("a").run(async { Ok::<_, LockError>(held_keys()) }).await };
    let body = async {
        assert_locked!(exclusive: "{}", "a");
        assert_eq!(nested.await?, ["r", "a", "b"], "the nested call passes under a lock that is there already");
        assert_eq!(exclusively_held_keys(), ["a", "b"]);
        backend.lose("a");
        assert_eq!(held_keys(), ["r", "b"], "one of a group is lost, and its body goes on");
        Ok::<_, LockError>(())
    };
    let group = async { locks.lock_all(["a", "b"]).on_lost(OnLost::Finish).run(body).await };
    locks.lock("r").mode(Mode::Read).run(group).await.unwrap();
}

#[test]
#[should_panic(expected = "must run under the lock on `order:1`")]
fn code_that_runs_under_no_lock_is_told() {
    assert_locked!("order:{}", 1);
}
