//! Callers who hold a lock whenever they can, and write down when.

use std::path::PathBuf;
use std::time::Duration;

use distlock::LockManager;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::calls::{Body, Call, Failure, brisk};
use harness::eventually::eventually;
use harness::holders::{Log, Until, assert_no_overlap};

/// A log of those who held one lock, and those who do so until this is dropped.
pub(crate) struct Contenders {
    key: String,
    ttl: Duration,
    tasks: Vec<JoinHandle<()>>,
    log: PathBuf,
    _folder: tempfile::TempDir,
}

impl Contenders {
    pub(crate) fn for_key(key: &str, ttl: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("holders");
        std::fs::write(&log, "").unwrap();
        Self { key: key.to_owned(), ttl, tasks: Vec::new(), log, _folder: folder }
    }

    /// A call that holds the lock until it is told to end.
    pub(crate) async fn hold(&self, manager: &LockManager) -> Call {
        let body = Body::default();
        let (inner, log, key) = (body.clone(), self.log.clone(), self.key.clone());
        let call = manager.lock(&self.key).ttl(self.ttl).run(async move {
            let holder = Log::open(log).start(&key, &Uuid::new_v4().to_string());
            let outcome = inner.future(Ok::<(), Failure>(())).await;
            drop(holder);
            outcome
        });
        Call::of(body, tokio::spawn(call)).await
    }

    /// Adds one who waits in line, or one who polls.
    pub(crate) fn add(&mut self, manager: LockManager, waits: bool) {
        let (log, key, ttl) = (self.log.clone(), self.key.clone(), self.ttl);
        self.tasks.push(tokio::spawn(async move {
            loop {
                let request = manager.lock(&key).ttl(ttl);
                let request =
                    if waits { request.wait(Duration::from_secs(30)) } else { request.retry(1000).backoff(brisk()) };
                let (log, key) = (log.clone(), key.clone());
                let _outcome: Result<(), Failure> = request
                    .run(async move {
                        let holder = Log::open(log).start(&key, &Uuid::new_v4().to_string());
                        for _ in 0..5 {
                            // The length of a body's step.
                            tokio::time::sleep(Duration::from_millis(10)).await;
                            holder.step();
                        }
                        Ok(())
                    })
                    .await;
            }
        }));
    }

    /// How often somebody held the lock so far.
    pub(crate) fn times(&self) -> usize {
        std::fs::read_to_string(&self.log).unwrap().matches(" start ").count()
    }

    /// Waits until somebody has held the lock so many times more.
    pub(crate) async fn go_on(&self, times: usize) {
        let before = self.times();
        eventually("others to hold the lock", || async { self.times() >= before + times }).await;
    }

    pub(crate) fn no_two_held_at_once(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        assert_no_overlap(&self.log, Until::Dropped);
    }
}

impl Drop for Contenders {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
