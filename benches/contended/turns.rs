//! The tasks of one process, which take turns on one key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_timer::Delay;
use tokio::runtime::Builder;

use crate::contenders::{Contender, Lock};

/// How long the lock is kept, and how long a task pauses before it asks again.
const SECTION: Duration = Duration::from_millis(1);

/// The tasks of one process, and what they are to do.
#[derive(Clone)]
pub(crate) struct Party {
    pub(crate) contender: Contender,
    pub(crate) url: String,
    pub(crate) key: String,
    pub(crate) tasks: usize,
    pub(crate) length: Duration,
}

/// What one task went through.
#[derive(Default)]
pub(crate) struct Turns {
    /// From asking to having, for each acquisition.
    pub(crate) waits: Vec<Duration>,
    /// How long it had waited in vain when time was up.
    pub(crate) cut: Option<Duration>,
}

impl Party {
    /// Connects, calls `ready`, and lets the tasks run.
    pub(crate) fn run(&self, ready: impl FnOnce()) -> Vec<Turns> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let lock = self.contender.connect(&self.url).await;
            let taken = Arc::new(AtomicBool::new(false));
            ready();
            let end = Instant::now() + self.length;
            let task = |_| tokio::spawn(turns(lock.clone(), self.key.clone(), taken.clone(), end));
            let tasks: Vec<_> = (0..self.tasks).map(task).collect();
            let mut all = Vec::new();
            for task in tasks {
                all.push(task.await.unwrap());
            }
            all
        })
    }
}

async fn turns(lock: Lock, key: String, taken: Arc<AtomicBool>, end: Instant) -> Turns {
    let mut turns = Turns::default();
    while Instant::now() < end {
        let asked = Instant::now();
        let Ok(held) = tokio::time::timeout_at(end.into(), lock.acquire(&key)).await else {
            turns.cut = Some(asked.elapsed());
            break;
        };
        turns.waits.push(asked.elapsed());
        // A lock that lets in two at a time would be the fastest of all.
        assert!(!taken.swap(true, Ordering::SeqCst), "two have the lock");
        Delay::new(SECTION).await;
        taken.store(false, Ordering::SeqCst);
        held.release().await;
        Delay::new(SECTION).await;
    }
    turns
}
