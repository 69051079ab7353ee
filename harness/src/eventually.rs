//! Waiting for events instead of for time.

use std::future::Future;
use std::time::{Duration, Instant};

/// How long anything may take that ought to happen soon. On an idle machine all of it takes milliseconds; this bound
/// only turns a hang into a failure, so it leaves room for two cores that run a dozen tests.
pub const SOON: Duration = Duration::from_secs(20);

/// Polls until `check` says yes, and returns how long that took. Fails with `what` after [`SOON`].
pub async fn eventually<F>(what: &str, check: impl FnMut() -> F) -> Duration
where
    F: Future<Output = bool>,
{
    within(SOON, what, check).await
}

/// Polls until `check` says yes, and returns how long that took. Fails with `what` after `bound`.
pub async fn within<F>(bound: Duration, what: &str, mut check: impl FnMut() -> F) -> Duration
where
    F: Future<Output = bool>,
{
    let begin = Instant::now();
    while !check().await {
        assert!(begin.elapsed() < bound, "after {bound:?}, still waiting for: {what}");
        // The pause between two looks at the event; nothing depends on its length.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    begin.elapsed()
}

/// Awaits a future that should end soon. Fails with `what` after [`SOON`].
pub async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    let outcome = tokio::time::timeout(SOON, future).await;
    outcome.unwrap_or_else(|_| panic!("after {SOON:?}, still waiting for: {what}"))
}
