//! What the meters say, as an exporter hears it.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use distlock::{LockError, LockManager, distributed_lock};
use harness::eventually::eventually;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// Of a metric: the function, its name, and its result.
type Series = (String, String, String);

/// What a recorder for the whole process has said so far, added up. Each look at it takes out what there is, so that tests that run
/// at the same time put together what they find.
static SAID: LazyLock<(Snapshotter, Mutex<HashMap<Series, f64>>)> = LazyLock::new(|| {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().unwrap();
    (snapshotter, Mutex::default())
});

/// What the meters have said so far about a function: by name and result.
struct Said(HashMap<(String, String), f64>);

impl Said {
    /// From now on, all is counted.
    fn begin() {
        LazyLock::force(&SAID);
    }

    fn about(function: &str) -> Said {
        let (snapshotter, said) = &*SAID;
        let mut said = said.lock().unwrap();
        for (key, _, _, value) in snapshotter.snapshot().into_vec() {
            let (_, key) = key.into_parts();
            let label =
                |name: &str| key.labels().find(|label| label.key() == name).map(|label| label.value().to_owned());
            assert!(key.labels().all(|label| !label.value().contains("gauged:")), "no key in a label: {key:?}");
            let Some(function) = label("function").filter(|_| key.name().starts_with("distlock")) else { continue };
            #[allow(clippy::cast_precision_loss, reason = "small numbers")]
            let value = match value {
                DebugValue::Counter(count) => count as f64,
                DebugValue::Gauge(value) => value.into_inner(),
                DebugValue::Histogram(values) => values.len() as f64,
            };
            let series = (function, key.name().to_owned(), label("result").unwrap_or_default());
            *said.entry(series).or_default() += value;
        }
        let of_it = said.iter().filter(|((name, ..), _)| name.ends_with(function));
        Said(of_it.map(|((_, name, result), value)| ((name.clone(), result.clone()), *value)).collect())
    }

    /// How searches ended, and how many did so: as counted, and as timed.
    fn searches(&self) -> Vec<(&str, u64)> {
        let of = |name: &str| {
            let counts = self.0.iter().filter(|((found, _), _)| found == name);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small whole numbers")]
            let mut counts: Vec<_> = counts.map(|((_, result), count)| (result.as_str(), *count as u64)).collect();
            counts.sort_unstable();
            counts
        };
        let searches = of("distlock_acquires_total");
        assert_eq!(searches, of("distlock_wait_seconds"), "not all that is counted is timed");
        searches
    }

    fn value(&self, name: &str, result: &str) -> f64 {
        self.0.get(&(name.to_owned(), result.to_owned())).copied().unwrap_or_default()
    }
}

#[distributed_lock(key = "gauged:<id>", ttl = "900ms")]
async fn metered(id: u32, time: Duration) -> Result<u32, LockError> {
    // For as long as the test needs renewals, or next to nothing.
    tokio::time::sleep(time).await;
    Ok(id)
}

#[tokio::test]
async fn meters_count_by_function_and_never_by_key() {
    Said::begin();
    let locks = LockManager::in_memory();
    let about = || Said::about("observing::metered::metered");
    let long = tokio::spawn(locks.scope(metered(1, Duration::from_secs(2))));
    eventually("the lock to be held", async || about().value("distlock_held", "") > 0.5).await;
    assert!(locks.scope(metered(1, Duration::ZERO)).await.unwrap_err().is_busy());
    locks.scope(metered(2, Duration::ZERO)).await.unwrap();
    long.await.unwrap().unwrap();
    let said = about();
    let count = |name: &str, result: &str| said.value(name, result);
    assert!((count("distlock_acquires_total", "acquired") - 2.0).abs() < 0.1);
    assert!((count("distlock_acquires_total", "busy") - 1.0).abs() < 0.1);
    assert!((count("distlock_wait_seconds", "acquired") - 2.0).abs() < 0.1);
    assert!((count("distlock_held_seconds", "") - 2.0).abs() < 0.1);
    assert!(count("distlock_renewals_total", "extended") > 0.5);
    assert!(count("distlock_renewal_lateness_seconds", "") > 0.5);
    assert!(count("distlock_held", "").abs() < 0.1, "nothing is held any more");
}

#[distributed_lock(keys = ["gauged:a", "gauged:b", "gauged:c"], global, wait = time)]
async fn metered_group(time: Duration) -> Result<(), LockError> {
    // Nested: it passes under all three.
    metered_within().await
}

#[distributed_lock(key = "gauged:b")]
async fn metered_within() -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn a_call_for_several_locks_is_one_search_and_as_many_locks() {
    Said::begin();
    let locks = LockManager::in_memory();
    let guard = locks.lock("gauged:c").acquire().await.unwrap();
    for _ in 0..2 {
        let refused = locks.scope(metered_group(Duration::from_millis(1))).await;
        assert!(refused.unwrap_err().is_busy());
    }
    guard.release().await.unwrap();
    locks.scope(metered_group(Duration::from_secs(60))).await.unwrap();
    let group = Said::about("observing::metered::metered_group");
    let within = Said::about("observing::metered::metered_within");
    assert_eq!(group.searches(), [("acquired", 1), ("busy", 2)]);
    assert_eq!(within.searches(), [("passed", 1)]);
    assert!(group.value("distlock_held", "").abs() < 0.1);
    // The first two locks were there in vain, twice.
    assert!((group.value("distlock_held_seconds", "") - 7.0).abs() < 0.1);
}

#[distributed_lock(key = "gauged:ended", wait = "60s")]
async fn metered_ends() -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn every_search_has_one_end() {
    Said::begin();
    let locks = LockManager::in_memory();
    let guard = locks.lock("gauged:ended").acquire().await.unwrap();
    // So long it waits; then it is dropped.
    let dropped = tokio::time::timeout(Duration::from_millis(5), locks.scope(metered_ends())).await;
    assert!(dropped.is_err());
    let waits = tokio::spawn(locks.scope(metered_ends()));
    tokio::task::yield_now().await;
    locks.shutdown(Duration::ZERO).await;
    assert!(matches!(waits.await.unwrap(), Err(LockError::ShuttingDown)));
    drop(guard);
    let said = Said::about("observing::metered::metered_ends");
    assert_eq!(said.searches(), [("cancelled", 1), ("shutting_down", 1)]);
}
