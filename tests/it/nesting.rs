//! Calls inside of a body that holds the same lock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, OnLost, distributed_lock};
use redis::cmd;

use crate::calls::{Failure, asked, connect, is_freed, redis_key, warm_up};
use harness::eventually::{eventually, soon};
use harness::server::Server;

const LONG: Duration = Duration::from_secs(60);

#[distributed_lock(key = "account:<id>")]
async fn outer(id: u64, yields: usize) -> Result<u64, Failure> {
    for _ in 0..yields {
        tokio::task::yield_now().await;
    }
    middle(id).await.map(|sum| sum + 1)
}

#[distributed_lock(key = "account:<id>")]
async fn middle(id: u64) -> Result<u64, Failure> {
    inner(id).await.map(|sum| sum + 1)
}

#[distributed_lock(key = "account:<id>", lease = lease)]
async fn inner(id: u64) -> Result<u64, Failure> {
    lease.ensure_held()?;
    assert!(lease.remaining() > Duration::from_secs(10), "the lease is the outer one's");
    Ok(id)
}

#[tokio::test]
async fn nested_calls_pass_under_the_outer_lease_without_a_word_to_the_server() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    warm_up(&manager).await;
    let monitor = server.monitor().await;
    assert_eq!(soon("the calls", manager.scope(outer(5, 0))).await.unwrap(), 7);
    let sent = asked(&monitor, "account:5").await;
    assert_eq!(sent.len(), 2, "one acquire and one release: {sent:#?}");
    is_freed(&server, "account:5").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_is_the_holder_does_not_depend_on_the_thread() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let calls: Vec<_> = (0..8).map(|id| tokio::spawn(manager.scope(outer(id, 1_000)))).collect();
    for (id, call) in (0..).zip(calls) {
        assert_eq!(soon("a call", call).await.unwrap().unwrap(), id + 2);
    }
}

/// Two calls of one body, that both want what it holds.
async fn siblings(manager: LockManager, most: &AtomicUsize) -> Result<(), Failure> {
    let inside = AtomicUsize::new(0);
    let one = || {
        let body = async {
            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            inside.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Failure>(())
        };
        manager.lock("k").wait(LONG).run(body)
    };
    let (first, second, third) = tokio::join!(one(), one(), one());
    first.and(second).and(third)
}

#[tokio::test]
async fn siblings_in_one_body_exclude_each_other() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let most = AtomicUsize::new(0);
    let body = siblings(manager.clone(), &most);
    soon("the siblings", manager.lock("k").run(body)).await.unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 1, "so many at once");
}

#[tokio::test]
async fn a_sibling_that_does_not_wait_is_refused() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let theirs = manager.clone();
    let body = async move {
        let slow = theirs.lock("k").run(async {
            tokio::task::yield_now().await;
            Ok::<_, Failure>(())
        });
        let refused = theirs.lock("k").run(async { Ok::<_, Failure>(()) });
        let (slow, refused) = tokio::join!(slow, refused);
        slow?;
        let Err(Failure::Lock(error)) = refused else { panic!("two bodies at once") };
        assert!(error.is_busy(), "{error}");
        Ok::<_, Failure>(())
    };
    soon("the call", manager.lock("k").run(body)).await.unwrap();
}

#[tokio::test]
async fn tasks_that_a_body_spawns_do_not_inherit_its_lock() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let theirs = manager.clone();
    let body = async move {
        let spawned = theirs.lock("k").run(async { Ok::<_, Failure>(()) });
        let Err(Failure::Lock(error)) = tokio::spawn(spawned).await.unwrap() else { panic!("inherited") };
        assert!(error.is_busy(), "{error}");
        Ok::<_, Failure>(())
    };
    soon("the call", manager.lock("k").run(body)).await.unwrap();
}

#[tokio::test]
async fn tasks_of_a_local_set_inside_of_the_body_do_not_inherit_its_lock() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let theirs = manager.clone();
    let body = async move {
        let local = tokio::task::LocalSet::new();
        let outcome = local
            .run_until(async {
                let spawned = theirs.lock("k").run(async { Ok::<_, Failure>(()) });
                tokio::task::spawn_local(spawned).await.unwrap()
            })
            .await;
        let Err(Failure::Lock(error)) = outcome else { panic!("inherited") };
        assert!(error.is_busy(), "{error}");
        Ok::<_, Failure>(())
    };
    soon("the call", manager.lock("k").run(body)).await.unwrap();
}

#[distributed_lock(key = "account:<id>", reentrant = false)]
async fn not_again(id: u64) -> Result<u64, Failure> {
    Ok(id)
}

#[tokio::test]
async fn without_reentrance_a_nested_call_fails_at_once() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let body = async {
        let Err(Failure::Lock(error)) = not_again(1).await else { panic!("it passed") };
        assert!(matches!(error, LockError::WouldDeadlock { .. }), "{error:?}");
        assert!(error.to_string().contains("account:1"), "{error}");
        Ok::<_, Failure>(())
    };
    soon("the call", manager.scope(manager.lock("account:1").run(body))).await.unwrap();
    assert_eq!(soon("an outer call", manager.scope(not_again(2))).await.unwrap(), 2);
}

#[tokio::test]
async fn a_guard_for_what_the_task_holds_already_is_refused_at_once() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let theirs = manager.clone();
    let body = async move {
        let begin = Instant::now();
        let outcome = theirs.lock("k").wait(LONG).acquire().await;
        assert!(matches!(outcome, Err(LockError::WouldDeadlock { .. })), "{outcome:?}");
        assert!(begin.elapsed() < LONG / 2);
        Ok::<_, Failure>(())
    };
    soon("the call", manager.lock("k").run(body)).await.unwrap();
}

#[tokio::test]
async fn other_keys_and_other_managers_are_locks_of_their_own() {
    let server = Server::start().await;
    let (manager, another) = (connect(&server.url()).await, connect(&server.url()).await);
    let theirs = manager.clone();
    let body = async move {
        theirs.lock("other").run(async { Ok::<_, Failure>(()) }).await?;
        let same_key = another.lock("k").run(async { Ok::<_, Failure>(()) }).await;
        let Err(Failure::Lock(error)) = same_key else { panic!("held twice") };
        assert!(error.is_busy(), "{error}");
        Ok::<_, Failure>(())
    };
    soon("the call", manager.lock("k").run(body)).await.unwrap();
}

#[tokio::test]
async fn a_nested_body_is_stopped_when_the_outer_lock_is_lost() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let theirs = manager.clone();
    let nested = theirs.lock("k").run(std::future::pending::<Result<(), Failure>>());
    let request = manager.lock("k").ttl(Duration::from_millis(600)).on_lost(OnLost::Finish);
    let call = tokio::spawn(request.run(async move {
        let outcome = nested.await;
        assert!(matches!(outcome, Err(Failure::Lock(LockError::Lost { .. }))), "{outcome:?}");
        Ok::<_, Failure>(7)
    }));
    eventually("the lock to be held", || async { server.exists(&redis_key("k")).await }).await;
    assert!(server.del(&redis_key("k")).await);
    assert_eq!(soon("the call", call).await.unwrap().unwrap(), 7, "the outer body runs to its end");
}

#[tokio::test]
async fn a_nested_call_passes_while_the_manager_is_shutting_down() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let (theirs, (began, begins)) = (manager.clone(), tokio::sync::oneshot::channel());
    let body = async move {
        began.send(()).unwrap();
        while theirs.lock("elsewhere").acquire().await.is_ok() {}
        theirs.lock("k").run(async { Ok::<_, Failure>(7) }).await
    };
    let call = tokio::spawn(manager.lock("k").run(body));
    begins.await.unwrap();
    soon("the shutdown", manager.shutdown(LONG)).await;
    assert_eq!(soon("the call", call).await.unwrap().unwrap(), 7);
    assert_eq!(server.query::<u64>(&cmd("DBSIZE")).await.unwrap(), 0);
}

#[tokio::test]
async fn a_nested_call_takes_no_step_after_the_body_that_it_passed_under_has_ended() {
    let server = Server::start().await;
    let (manager, another) = (connect(&server.url()).await, connect(&server.url()).await);
    let (steps, (go_on, may_go_on)) = (AtomicUsize::new(0), tokio::sync::oneshot::channel::<()>());
    let mut nested = Box::pin(manager.lock("k").run(async {
        steps.fetch_add(1, Ordering::SeqCst);
        may_go_on.await.unwrap();
        steps.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Failure>(())
    }));
    let outer = manager.lock("k").run(async {
        while steps.load(Ordering::SeqCst) == 0 {
            tokio::select! { biased; _ = &mut nested => unreachable!(), () = tokio::task::yield_now() => {} }
        }
        Ok::<_, Failure>(())
    });
    soon("the outer call", outer).await.unwrap();
    let guard = another.lock("k").acquire().await.unwrap();
    go_on.send(()).unwrap();
    let outcome = soon("the nested call", nested).await;
    assert!(matches!(outcome, Err(Failure::Lock(LockError::Lost { .. }))), "{outcome:?}");
    assert_eq!(steps.load(Ordering::SeqCst), 1, "two bodies at once");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_sibling_whose_turn_comes_after_the_outer_body_does_not_begin() {
    let server = Server::start().await;
    let (manager, another) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut second = Box::pin(manager.lock("k").wait(LONG).run(async { Ok::<_, Failure>("began") }));
    let theirs = manager.clone();
    let outer = manager.lock("k").run(async {
        let first = theirs.lock("k").run(async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            Ok::<_, Failure>("first")
        });
        // The second waits behind the first, and is not polled again in here.
        tokio::select! { biased; first = first => first, _ = &mut second => unreachable!() }
    });
    assert_eq!(soon("the outer call", outer).await.unwrap(), "first");
    let guard = another.lock("k").acquire().await.unwrap();
    let outcome = soon("the second", second).await;
    assert!(matches!(outcome, Err(Failure::Lock(LockError::Lost { .. }))), "{outcome:?}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn no_body_begins_under_a_lock_that_is_known_to_be_lost() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let (theirs, server) = (manager.clone(), &server);
    let request = manager.lock("k").ttl(Duration::from_millis(600)).on_lost(OnLost::Finish);
    let body = async move {
        assert!(server.del(&redis_key("k")).await);
        // Long enough for a renewal to notice.
        tokio::time::sleep(Duration::from_millis(600)).await;
        let nested = theirs.lock("k").on_lost(OnLost::Finish).run(async { Ok::<_, Failure>("began") }).await;
        assert!(matches!(nested, Err(Failure::Lock(LockError::Lost { .. }))), "{nested:?}");
        Ok::<_, Failure>(())
    };
    soon("the call", request.run(body)).await.unwrap();
}

#[distributed_lock(key = "k", global, lease = lease)]
async fn lends_its_lease() -> Result<distlock::Lease, Failure> {
    assert!(lease.is_held());
    Ok(lease)
}

#[tokio::test]
async fn the_lease_of_a_nested_call_ends_with_it() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let body = async {
        let lease = lends_its_lease().await?;
        let error = lease.ensure_held().unwrap_err();
        assert!(!lease.is_held() && error.to_string().contains("released"), "{error}");
        Ok::<_, Failure>(())
    };
    soon("the call", manager.scope(manager.lock("k").run(body))).await.unwrap();
}

#[tokio::test]
async fn the_outer_body_is_stopped_at_once_when_its_lock_is_lost_wherever_the_nested_one_is_polled() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let theirs = manager.clone();
    let request = manager.lock("k").ttl(Duration::from_millis(600));
    let call = tokio::spawn(request.run(async move {
        let mut nested = Box::pin(theirs.lock("k").run(std::future::pending::<Result<(), Failure>>()));
        tokio::select! { biased; _ = &mut nested => unreachable!(), () = tokio::task::yield_now() => {} }
        let elsewhere = tokio::spawn(nested);
        std::future::pending::<()>().await;
        elsewhere.await.unwrap()
    }));
    eventually("the lock to be held", || async { server.exists(&redis_key("k")).await }).await;
    assert!(server.del(&redis_key("k")).await);
    let outcome = soon("the outer body to be stopped", call).await.unwrap();
    assert!(matches!(outcome, Err(Failure::Lock(LockError::Lost { .. }))), "{outcome:?}");
}

#[tokio::test]
async fn a_nested_call_that_outlives_its_outer_one_ends_and_frees_what_it_took_besides() {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let theirs = manager.clone();
    let body = async move {
        let (begins, began) = tokio::sync::oneshot::channel();
        let mut nested = Box::pin(theirs.lock_all(["a", "b"]).run(async {
            begins.send(()).unwrap();
            std::future::pending::<Result<(), Failure>>().await
        }));
        tokio::select! { ended = &mut nested => panic!("{ended:?}"), began = began => began.unwrap() }
        Ok::<_, Failure>(tokio::spawn(nested))
    };
    let nested = soon("the outer call", manager.lock("a").run(body)).await.unwrap();
    let outcome = soon("the nested call", nested).await.unwrap();
    assert!(matches!(outcome, Err(Failure::Lock(LockError::Lost { .. }))), "{outcome:?}");
    eventually("nothing to be left", || async { server.dbsize().await == 0 }).await;
}

#[tokio::test]
async fn a_nested_body_does_not_begin_when_its_outer_lock_is_gone_by_the_time_it_has_the_rest() {
    let server = Server::start().await;
    let (manager, another) = (connect(&server.url()).await, connect(&server.url()).await);
    let b = another.lock("b").acquire().await.unwrap();
    let request = manager.lock_all(["a", "b"]).wait(LONG).on_lost(OnLost::Finish);
    let mut nested = Box::pin(request.run(async { Ok::<_, Failure>("began") }));
    let outer = manager.lock("a").run(async {
        let stands = async {
            let line = format!("{}:line", redis_key("b"));
            eventually("it to stand in line", || async { server.exists(&line).await }).await;
        };
        tokio::select! { biased; _ = &mut nested => unreachable!(), () = stands => {} }
        Ok::<_, Failure>(())
    });
    soon("the outer call", outer).await.unwrap();
    let a = another.lock("a").acquire().await.unwrap();
    b.release().await.unwrap();
    let outcome = soon("the nested call", nested).await;
    assert!(matches!(outcome, Err(Failure::Lock(LockError::Lost { .. }))), "{outcome:?}");
    a.release().await.unwrap();
    eventually("nothing to be left", || async { server.dbsize().await == 0 }).await;
}
