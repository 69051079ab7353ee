//! Passing states of the server (frozen, BUSY, LOADING, MISCONF, READONLY), each in each phase of a call.

use std::time::Duration;

use distlock::{LockError, LostReason};

use crate::calls::{Body, Call, FOR_EVER, Failure, brisk, connect, is_freed, redis_key, sees_renewals};
use harness::eventually::soon;
use harness::server::Server;

/// A state in which a server doesn't do what it is asked, and that ends by itself in real life.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Frozen,
    Busy,
    Loading,
    Misconf,
    Readonly,
}

impl Fault {
    async fn begin(self, server: &Server) {
        match self {
            Self::Frozen => server.freeze(),
            Self::Busy => server.busy().await,
            Self::Loading => server.loading().await,
            Self::Misconf => server.misconf().await,
            Self::Readonly => server.readonly().await,
        }
    }

    async fn end(self, server: &Server) {
        match self {
            Self::Frozen => server.thaw(),
            Self::Busy => server.end_busy().await,
            Self::Loading => server.end_loading().await,
            Self::Misconf => server.end_misconf().await,
            Self::Readonly => server.writable().await,
        }
    }
}

async fn a_hold_survives_a_fault_shorter_than_its_lease(fault: Fault) {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let call = Call::holding(&manager, "k", Duration::from_secs(6)).await;
    // From just behind one renewal, past the next one two seconds later and its command timeout of one, so that it fails.
    sees_renewals(&server, "k", 1).await;
    fault.begin(&server).await;
    // The time for which the server is in that state; well over two seconds are left of the lease.
    tokio::time::sleep(Duration::from_millis(3_200)).await;
    fault.end(&server).await;
    sees_renewals(&server, "k", 2).await;
    let outcome = call.finished().await;
    assert!(outcome.is_ok(), "{fault:?} for half of the ttl ended the call: {outcome:?}");
    is_freed(&server, "k").await;
}

async fn a_hold_ends_in_a_fault_longer_than_its_lease(fault: Fault) {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let call = Call::holding(&manager, "k", Duration::from_secs(1)).await;
    fault.begin(&server).await;
    let failure = call.ended().await.expect_err("the server refused every renewal and the call ended well");
    assert_eq!(failure.lost(), LostReason::Expired, "{failure:?}");
    fault.end(&server).await;
    let request = manager.lock("k").retry(1_000).backoff(brisk());
    let guard = soon("the lock to be had again", request.acquire()).await;
    guard.unwrap_or_else(|why| panic!("no recovery from {fault:?}: {why}")).release().await.unwrap();
}

async fn an_acquire_fails_at_once_or_waits_the_fault_out(fault: Fault) {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    fault.begin(&server).await;
    let body = Body::default();
    let at_once: Result<(), Failure> = manager.lock("k").ttl(FOR_EVER).run(body.clone().future(Ok(()))).await;
    let Err(Failure::Lock(error)) = at_once else { panic!("{fault:?}: {at_once:?}") };
    assert!(matches!(error, LockError::Backend { attempts: 1, .. }), "{error:?}");
    assert!(error.is_transient(), "{error:?}");
    assert!(error.to_string().contains("`k`"), "which lock? {error}");
    assert_eq!(body.starts(), 0, "the body ran without its lock");

    let request = manager.lock("k").ttl(FOR_EVER).retry(10_000).backoff(brisk());
    let call = tokio::spawn(request.run(body.clone().future(Ok::<_, Failure>(7))));
    // Long enough for the first tries of the call to fail; none can succeed, however long it takes.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(body.starts(), 0, "the body ran without its lock");
    fault.end(&server).await;
    body.runs().await;
    assert!(server.exists(&redis_key("k")).await);
    body.finish();
    assert_eq!(soon("the call to end", call).await.unwrap().unwrap(), 7);
    is_freed(&server, "k").await;
}

async fn a_failing_release_does_not_hide_the_result_and_is_made_up_for(fault: Fault) {
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let good = Call::holding_to_return(&manager, "good", FOR_EVER, Ok(7)).await;
    let bad = Call::holding_to_return(&manager, "bad", FOR_EVER, Err::<(), _>(Failure::Body("mine"))).await;
    fault.begin(&server).await;
    let outcome = good.finished().await;
    assert_eq!(outcome.ok(), Some(7), "{fault:?} during the release");
    let outcome = bad.finished().await;
    assert!(matches!(outcome, Err(Failure::Body("mine"))), "{fault:?} during the release: {outcome:?}");
    fault.end(&server).await;
    is_freed(&server, "good").await;
    is_freed(&server, "bad").await;
}

macro_rules! in_each_phase {
    ($($name:ident => $fault:expr,)+) => {$(
        mod $name {
            use super::Fault;

            #[tokio::test]
            async fn a_hold_survives_a_fault_shorter_than_its_lease() {
                super::a_hold_survives_a_fault_shorter_than_its_lease($fault).await;
            }

            #[tokio::test]
            async fn a_hold_ends_in_a_fault_longer_than_its_lease() {
                super::a_hold_ends_in_a_fault_longer_than_its_lease($fault).await;
            }

            #[tokio::test]
            async fn an_acquire_fails_at_once_or_waits_the_fault_out() {
                super::an_acquire_fails_at_once_or_waits_the_fault_out($fault).await;
            }

            #[tokio::test]
            async fn a_failing_release_does_not_hide_the_result_and_is_made_up_for() {
                super::a_failing_release_does_not_hide_the_result_and_is_made_up_for($fault).await;
            }
        }
    )+};
}

in_each_phase! {
    frozen => Fault::Frozen,
    busy => Fault::Busy,
    loading => Fault::Loading,
    misconf => Fault::Misconf,
    readonly => Fault::Readonly,
}
