//! The runtime behind the scenes.
//!
//! Tests block, end and starve their own runtimes. What must go on meanwhile (proxies, monitors, the ends of faults)
//! runs on this one, which lives as long as the test process.

use std::future::Future;
use std::sync::LazyLock;

use tokio::runtime::{Builder, Runtime};

static BACKSTAGE: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(2).thread_name("backstage").enable_all().build().unwrap()
});

/// The runtime, for what has to be spawned on it or made in its context.
pub fn backstage() -> &'static Runtime {
    &BACKSTAGE
}

/// Runs a future behind the scenes and waits for it; its panic goes on here.
pub async fn on_backstage<F>(future: F) -> F::Output
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    match BACKSTAGE.spawn(future).await {
        Ok(output) => output,
        Err(why) => std::panic::resume_unwind(why.into_panic()),
    }
}
