//! What runs under the locks: it says that it is there, works in small steps, and writes to a register with its fencing token.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distlock::{FencingToken, Lease, LockError, LockManager};
use harness::holders::{Holder, Kind, Log, is_interrupted, now};
use redis::Script;
use redis::aio::MultiplexedConnection;

use crate::journal::Journal;

/// What a task works with.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) name: String,
    /// Tells which key the tasks of one client want most.
    pub(super) likes: u32,
    pub(super) locks: LockManager,
    pub(super) store: MultiplexedConnection,
    pub(super) journal: Arc<Journal>,
    /// The log of holders.
    pub(super) holders: PathBuf,
    /// What no call may do, and some did.
    pub(super) complaints: Arc<Mutex<Vec<String>>>,
}

/// How much a body does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) steps: u32,
    /// Whether it writes to the register of its key.
    pub(super) writes: bool,
    /// Whether it looks at its lease by itself, since nobody else stops it.
    pub(super) looks: bool,
}

/// From the poll of a call to the look at its lease and the act pass less than this, unless the process is stopped in between.
const ONE_POLL: Duration = Duration::from_millis(5);

impl Worker {
    /// Has the client say so in the end.
    pub(super) fn complain(&self, what: &str) {
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner).push(what.to_owned());
    }

    /// The body of a call under one or several locks. Each of its steps is written down.
    pub(super) async fn work(&self, kind: Kind, keys: &[&str], lease: &Lease, work: Work) -> Result<(), LockError> {
        if work.looks {
            lease.ensure_held()?;
        }
        let log = Log::open(&self.holders);
        let token = format!("{}/{}", self.name, now());
        let begin = |key: &&str| log.start_as(kind, key, &format!("{token}/{key}"));
        let holders: Vec<Holder> = keys.iter().map(begin).collect();
        let fence = lease.fencing_token();
        for key in keys {
            let fence = fence.map_or("-".to_owned(), |fence| fence.to_string());
            self.journal.note(&self.name, &format!("grant {token}/{key} {fence}"));
        }
        let mut deadline = self.look_at(lease, keys, 0);
        for step in 0..work.steps {
            // The pace of the steps.
            tokio::time::sleep(Duration::from_millis(3)).await;
            if work.looks {
                lease.ensure_held()?;
            }
            holders.iter().for_each(Holder::step);
            deadline = self.look_at(lease, keys, deadline);
            if let Some(fence) = fence.filter(|_| work.writes && step % 8 == 0) {
                self.write(keys[0], fence).await;
            }
            // Nobody stops those who look by themselves in the middle of it.
            if kind == Kind::Exclusive && work.writes && !work.looks && step % 8 == 4 {
                self.count_up(keys[0]).await;
            }
        }
        Ok(())
    }

    /// Writes down until when the body believes to have its lock, and if it goes on after that. Returns when the lease ends.
    fn look_at(&self, lease: &Lease, keys: &[&str], deadline: u64) -> u64 {
        // First the clock: a process that is interrupted here takes its lease for shorter, and not for longer.
        let (now, remaining) = (now(), lease.remaining());
        if !remaining.is_zero() {
            let until = now + nanos(remaining);
            // It has been renewed, or has just begun.
            if until > deadline + nanos(ONE_POLL) {
                self.journal.note(&self.name, &format!("believes {} {until}", lease.token()));
            }
            return until.max(deadline);
        }
        let late = Duration::from_nanos(now.saturating_sub(deadline));
        if late > ONE_POLL && !is_interrupted() {
            self.journal.note(&self.name, &format!("late {} {}", keys[0], late.as_nanos()));
        }
        deadline
    }

    /// A write that the store compares with the key's last token, to a register that is used for a second.
    async fn write(&self, key: &str, fence: FencingToken) {
        let (register, value) = (register_of(key), now());
        self.journal.note(&self.name, &format!("write {register} {fence} {value}"));
        let script = Script::new(FencingToken::REDIS_SET);
        let mut call = script.key(&register);
        call.key(format!("{key}:fence")).arg(value).arg(fence.get());
        let set: i64 = call.invoke_async(&mut self.store.clone()).await.expect("nothing happens to the store");
        self.journal.note(&self.name, &format!("wrote {set}"));
    }

    /// Reads a counter, and sets it to one more. No token is compared: nothing but the lock keeps two of these apart.
    async fn count_up(&self, key: &str) {
        let counter = format!("n:{key}");
        self.journal.note(&self.name, &format!("count {counter}"));
        let mut store = self.store.clone();
        let get = redis::cmd("GET").arg(&counter).clone();
        let value: Option<u64> = get.query_async(&mut store).await.expect("nothing happens to the store");
        // Time for others, if they can come in between.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let value = value.unwrap_or(0) + 1;
        let set = redis::cmd("SET").arg(&counter).arg(value).clone();
        set.query_async::<()>(&mut store).await.expect("nothing happens to the store");
        self.journal.note(&self.name, &format!("counted {value}"));
    }

    /// A read by anybody, under no lock.
    pub(super) async fn read(&self, key: &str) {
        let register = register_of(key);
        self.journal.note(&self.name, &format!("read {register}"));
        let get = redis::cmd("GET").arg(&register).clone();
        let value: Option<u64> = get.query_async(&mut self.store.clone()).await.expect("nothing happens to the store");
        self.journal.note(&self.name, &format!("was {}", value.unwrap_or(0)));
    }
}

/// One for each second, so that each has a short history.
fn register_of(key: &str) -> String {
    format!("{key}@{}", now() / 1_000_000_000)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
