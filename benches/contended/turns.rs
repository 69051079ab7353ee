//! The tasks of one process, which take turns on one key. `cargo xtask compare` lets more contenders do the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_timer::Delay;

/// How long the lock is kept, and how long a task pauses before it asks again.
const SECTION: Duration = Duration::from_millis(1);

/// A lock that is connected; the clones share the connection.
pub(crate) trait Lock: Clone + Send + 'static {
    /// What is held until it is released.
    type Held: Send;

    /// Waits until the lock is ours.
    fn acquire(&self, key: &str) -> impl Future<Output = Self::Held> + Send;

    /// Returns when the server has answered.
    fn release(held: Self::Held) -> impl Future<Output = ()> + Send;
}

/// What one task went through.
#[derive(Default)]
pub(crate) struct Turns {
    /// From asking to having, for each acquisition.
    pub(crate) waits: Vec<Duration>,
    /// How long it had waited in vain when time was up.
    pub(crate) cut: Option<Duration>,
}

/// As a line: the wait that was cut, if there is one, or `-`, then the others, in microseconds.
impl Turns {
    pub(crate) fn to_line(&self) -> String {
        let cut = self.cut.map_or("-".to_owned(), |cut| cut.as_micros().to_string());
        self.waits.iter().fold(cut, |line, wait| format!("{line} {}", wait.as_micros()))
    }

    pub(crate) fn from_line(line: &str) -> Turns {
        let mut words = line.split(' ').map(|word| word.parse().ok().map(Duration::from_micros));
        let cut = words.next().unwrap();
        Turns { cut, waits: words.map(Option::unwrap).collect() }
    }
}

/// Lets so many tasks run for so long, on a runtime of several threads.
pub(crate) async fn all_turns<L: Lock>(lock: L, key: &str, tasks: usize, length: Duration) -> Vec<Turns> {
    let taken = Arc::new(AtomicBool::new(false));
    let end = Instant::now() + length;
    let task = |_| tokio::spawn(turns(lock.clone(), key.to_owned(), taken.clone(), end));
    let tasks: Vec<_> = (0..tasks).map(task).collect();
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.unwrap());
    }
    all
}

async fn turns<L: Lock>(lock: L, key: String, taken: Arc<AtomicBool>, end: Instant) -> Turns {
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
        L::release(held).await;
        Delay::new(SECTION).await;
    }
    turns
}
