//! The locks that are measured, each as its own documentation advises, with the settings that serve it best.

pub(crate) mod floor;
pub(crate) mod majority;
pub(crate) mod attribute;
pub(crate) mod rslock;
pub(crate) mod async_redis_lock;
pub(crate) mod distkit;
pub(crate) mod distributed_lock;
pub(crate) mod ideal;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::turns::Lock;

/// Where the locks are kept, and for how long at most.
pub(crate) struct Site {
    pub(crate) urls: Vec<String>,
    pub(crate) ttl: Duration,
}

impl Site {
    /// The only server of a contender that knows no other, or the first.
    pub(crate) fn url(&self) -> &str {
        &self.urls[0]
    }
}

/// A lock that is connected.
pub(crate) trait Peer: Lock + Sync {
    fn connect(site: &Site) -> impl Future<Output = Self>;

    /// Takes and frees the lock of this task so many times.
    fn cycles(&self, task: usize, cycles: usize) -> impl Future<Output = ()> + Send {
        async move {
            for _ in 0..cycles {
                let held = self.acquire(&format!("order:{task}")).await;
                Self::release(held).await;
            }
        }
    }

    /// Holds a lock to the end of the stay, and says whether it was lost before.
    fn hold(&self, id: usize, stay: Stay) -> impl Future<Output = bool> + Send {
        async move {
            let held = self.acquire(&held_key(id)).await;
            stay.until_the_end().await;
            let lost = Self::is_lost(&held);
            Self::release(held).await;
            lost
        }
    }

    /// Whether the contender knows that the lock was lost.
    fn is_lost(_: &Self::Held) -> bool {
        false
    }
}

pub(crate) fn held_key(id: usize) -> String {
    format!("held:{id}")
}

/// What all who hold a lock wait for.
#[derive(Clone)]
pub(crate) struct Stay {
    held: Arc<AtomicUsize>,
    end: watch::Receiver<bool>,
}

impl Stay {
    pub(crate) fn begin() -> (Stay, watch::Sender<bool>) {
        let (sender, end) = watch::channel(false);
        (Stay { held: Arc::default(), end }, sender)
    }

    /// Counts one more that is held, and waits. When the one who tells is gone, the stay is over, too.
    pub(crate) async fn until_the_end(mut self) {
        self.held.fetch_add(1, Ordering::SeqCst);
        let _ = self.end.wait_for(|over| *over).await;
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }
}
