//! Wakers and subscribers of the application that panic.

use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use distlock::LockManager;
use tokio::runtime::Builder;

use crate::calls::{Failure, subscribers_are_asked};

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker of somebody's executor");
    }
}

/// Whatever one caller's executor does, the watchdog goes on for all others.
#[tokio::test]
async fn a_waker_that_panics_does_not_end_the_watchdog() {
    let manager = LockManager::in_memory();
    let ttl = Duration::from_millis(300);
    let mut call =
        Box::pin(manager.lock("theirs").ttl(ttl).watchdog(false).run(std::future::pending::<Result<(), Failure>>()));
    let waker = Waker::from(Arc::new(Panics));
    assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    tokio::time::sleep(ttl * 2).await; // their lease ends
    let guard = manager.lock("ours").ttl(ttl).acquire().await.unwrap();
    tokio::time::sleep(ttl * 3).await; // ours is renewed
    assert!(guard.lease().is_held(), "no lock of this manager is renewed any more");
}

/// A subscriber like one that prints to a pipe that was closed.
struct PanicsOnAcquired;

impl tracing::Subscriber for PanicsOnAcquired {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Message(bool);
        impl tracing::field::Visit for Message {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 |= field.name() == "message" && format!("{value:?}") == "lock acquired";
            }
        }
        let mut message = Message(false);
        event.record(&mut message);
        assert!(!message.0, "failed printing to stdout: Broken pipe");
    }

    fn enter(&self, _: &tracing::Id) {}

    fn exit(&self, _: &tracing::Id) {}
}

/// A panic at any point leaves nothing behind that is renewed.
#[tokio::test]
async fn a_panic_of_the_log_leaves_no_lock_that_is_renewed_for_ever() {
    let manager = LockManager::in_memory();
    let ttl = Duration::from_millis(300);
    let theirs = manager.clone();
    let panicked = std::thread::spawn(move || {
        subscribers_are_asked();
        let _subscriber = tracing::subscriber::set_default(PanicsOnAcquired);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(theirs.lock("k").ttl(ttl).acquire()).map(drop)
    });
    assert!(panicked.join().is_err(), "the subscriber was not asked");
    tokio::time::sleep(ttl * 4).await; // only a renewed lock is still there
    let outcome = manager.lock("k").acquire().await;
    assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
}
