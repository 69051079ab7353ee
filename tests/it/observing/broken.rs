//! A recorder of metrics that panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock::LockManager;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use harness::process::Child;
use harness::server::Server;

/// Of all that it is told.
#[derive(Clone, Default)]
struct Broken(Arc<AtomicU64>);

impl Broken {
    fn panic(&self) -> ! {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("as it should");
    }
}

impl Recorder for Broken {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        self.panic()
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        self.panic()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        self.panic()
    }
}

/// In a process of its own, since there is one recorder for the whole process, the watchdog's thread included.
pub(crate) fn lock_with_a_broken_recorder(arguments: &[&str]) {
    let recorder = Broken::default();
    metrics::set_global_recorder(recorder.clone()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = LockManager::connect(arguments[0]).await.unwrap();
        let guard = locks.lock("k").ttl(Duration::from_millis(1_500)).acquire().await.unwrap();
        let told = recorder.0.load(Ordering::Relaxed);
        assert!(told > 0, "it was not told of the acquisition");
        assert!(locks.lock("k").acquire().await.unwrap_err().is_busy());
        // For three ttls, in which the watchdog renews, and has something to tell.
        tokio::time::sleep(Duration::from_millis(4_500)).await;
        assert!(recorder.0.load(Ordering::Relaxed) > told + 3, "it was not told of renewals");
        guard.lease().ensure_held().unwrap();
        guard.release().await.unwrap();
        // What is dropped is freed by the watchdog.
        drop(locks.lock("k").acquire().await.unwrap());
        locks.lock("k").wait(Duration::from_secs(60)).acquire().await.unwrap().release().await.unwrap();
        locks.shutdown(Duration::from_secs(60)).await;
    });
    println!("@done");
}

#[tokio::test]
async fn a_recorder_that_panics_costs_no_lock_and_no_call() {
    let server = Server::start().await;
    let child = Child::spawn("observing: lock with a broken recorder", &[&server.url()]).await;
    child.event("done").await;
    assert!(child.wait().await.status.success());
    assert_eq!(server.keys().await, [""; 0]);
}
