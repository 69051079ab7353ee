//! The locks that are measured, each with its defaults and at its fastest.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Backoff, LockGuard, LockManager};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::by_hand::{self, ByHand};
use crate::turns;

/// What distlock has unless it is set.
const TTL: Duration = Duration::from_secs(30);

/// Takes the lock through distlock, by tries with pauses between them, or in line: the one place where it is asked for.
async fn turn(locks: &LockManager, key: &str, way: Way) -> LockGuard {
    let request = locks.lock(key);
    let request = match way {
        Way::Retry(backoff) => request.retry(u32::MAX).backoff(backoff),
        Way::Wait => request.wait(Duration::from_secs(60)),
    };
    request.acquire().await.unwrap()
}

/// How distlock gets a lock that is held.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Retry(Backoff),
    Wait,
}

/// A lock and its setting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contender {
    /// Tasks of one process on a mutex in memory.
    Ideal,
    DistlockWait,
    Distlock,
    DistlockFastest,
    Rslock,
    RslockFastest,
    ByHand,
    ByHandFastest,
}

impl Contender {
    /// The ideal, which the others are held against, is the first.
    pub(crate) const ALL: [Contender; 8] = [
        Contender::Ideal,
        Contender::DistlockWait,
        Contender::Distlock,
        Contender::DistlockFastest,
        Contender::Rslock,
        Contender::RslockFastest,
        Contender::ByHand,
        Contender::ByHandFastest,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Contender::Ideal => "tokio Mutex, no server",
            Contender::DistlockWait => "distlock wait",
            Contender::Distlock => "distlock retry",
            Contender::DistlockFastest => "distlock retry, 1 ms",
            Contender::Rslock => "rslock",
            Contender::RslockFastest => "rslock, 1 ms",
            Contender::ByHand => "by hand, 50 ms",
            Contender::ByHandFastest => "by hand, 1 ms",
        }
    }

    pub(crate) async fn connect(self, url: &str) -> Lock {
        match self {
            Contender::Ideal => Lock::Mutex(Arc::default()),
            Contender::DistlockWait => distlock(url, Way::Wait).await,
            Contender::Distlock => distlock(url, Way::Retry(Backoff::default())).await,
            Contender::DistlockFastest => {
                let shortest = Backoff::new(Backoff::MIN, Backoff::MIN).unwrap();
                distlock(url, Way::Retry(shortest)).await
            }
            Contender::Rslock => rslock(rslock::LockManager::new(vec![url])).await,
            Contender::RslockFastest => {
                let mut locks = rslock::LockManager::from_clients(vec![by_hand::client(url)]);
                // Its pauses are picked from the whole milliseconds below this one, so there are none. That costs by far
                // the most commands, and is still faster than pauses of up to 4 or 10 ms were.
                locks.set_retry(3, Duration::from_millis(1));
                rslock(locks).await
            }
            Contender::ByHand => Lock::ByHand(ByHand::connect(url).await, Duration::from_millis(50)),
            Contender::ByHandFastest => Lock::ByHand(ByHand::connect(url).await, Duration::from_millis(1)),
        }
    }
}

async fn distlock(url: &str, way: Way) -> Lock {
    Lock::Distlock(LockManager::connect(url).await.unwrap(), way)
}

/// Takes a lock at once, since rslock connects by its first one, which would be counted.
async fn rslock(locks: rslock::LockManager) -> Lock {
    let key = format!("contended:first:{}", uuid::Uuid::new_v4());
    locks.acquire(key.as_str(), TTL).await.unwrap().release().await;
    Lock::Rslock(locks)
}

/// A contender that is connected; the clones share the connection.
#[derive(Clone)]
pub(crate) enum Lock {
    Mutex(Arc<Mutex<()>>),
    Distlock(LockManager, Way),
    Rslock(rslock::LockManager),
    /// With the pause between two tries.
    ByHand(ByHand, Duration),
}

impl turns::Lock for Lock {
    type Held = Held;

    async fn acquire(&self, key: &str) -> Held {
        match self {
            Lock::Mutex(mutex) => Held::Mutex(mutex.clone().lock_owned().await),
            Lock::Distlock(locks, way) => Held::Distlock(turn(locks, key, *way).await),
            Lock::Rslock(locks) => Held::Rslock(locks.acquire(key, TTL).await.unwrap()),
            Lock::ByHand(hand, pause) => poll(hand.clone(), key, *pause).await,
        }
    }

    async fn release(held: Held) {
        match held {
            Held::Mutex(guard) => drop(guard),
            Held::Distlock(guard) => guard.release().await.unwrap(),
            Held::Rslock(guard) => guard.release().await,
            Held::ByHand { mut hand, key, token } => hand.release(&key, &token).await,
        }
    }
}

async fn poll(mut hand: ByHand, key: &str, pause: Duration) -> Held {
    let token = uuid::Uuid::new_v4().to_string();
    while !hand.acquire(key, &token).await {
        // From half of the pause to one and a half.
        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
    }
    Held::ByHand { hand, key: key.to_owned(), token }
}

/// A lock that is held until it is released.
pub(crate) enum Held {
    Mutex(OwnedMutexGuard<()>),
    Distlock(LockGuard),
    Rslock(rslock::LockGuard),
    ByHand { hand: ByHand, key: String, token: String },
}
