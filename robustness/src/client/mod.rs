//! A client process: a few tasks that call annotated functions of all kinds, one after the other, until they are told to stop.

pub(crate) mod calls;
mod exclusive;
mod shared;
mod bodies;
mod leaks;

use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::LockManager;
use fastrand::Rng;
use harness::process::emit;

use self::bodies::Worker;
use crate::journal::Journal;

/// Of all locks. Shorter than what stops and silences, so that leases do end.
pub(crate) const TTL: Duration = Duration::from_millis(800);

/// How many tasks a client has.
const TASKS: usize = 5;

/// What a client is told when it is started.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) locks: String,
    /// A server that nothing happens to, with the registers.
    pub(crate) store: String,
    pub(crate) folder: PathBuf,
    pub(crate) number: u64,
    pub(crate) seed: u64,
    /// How many replicas have to confirm a lock.
    pub(crate) acks: u32,
    /// Whether there are no locks but exclusive ones.
    pub(crate) only_exclusive: bool,
}

impl Orders {
    pub(crate) fn to_arguments(&self) -> Vec<String> {
        let folder = self.folder.to_string_lossy().into_owned();
        let numbers = [self.number, self.seed, u64::from(self.acks), u64::from(self.only_exclusive)];
        let texts = [self.locks.clone(), self.store.clone(), folder];
        texts.into_iter().chain(numbers.map(|number| number.to_string())).collect()
    }

    fn parse(arguments: &[String]) -> Orders {
        let [locks, store, folder, number, seed, acks, only_exclusive] = arguments else { panic!("{arguments:?}") };
        let number_of = |text: &String| text.parse::<u64>().expect("a number");
        Orders {
            locks: locks.clone(),
            store: store.clone(),
            folder: folder.into(),
            number: number_of(number),
            seed: number_of(seed),
            acks: acks.parse().expect("a number"),
            only_exclusive: number_of(only_exclusive) == 1,
        }
    }
}

/// Plays the role of a client.
pub(crate) fn play(arguments: &[String]) {
    let orders = Orders::parse(arguments);
    let before = leaks::Held::now();
    // On one thread, so that what stops it stops all of it, as it does a whole machine.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut wrong = runtime.block_on(work(orders));
    drop(runtime);
    wrong.extend(leaks::left_over(&before));
    emit("leaks", wrong.join("; "));
}

/// Returns what was wrong with calls, and with what they left in the runtime.
async fn work(orders: Orders) -> Vec<String> {
    let before = leaks::tasks();
    let mut wrong = call_all(orders).await;
    wrong.extend(leaks::left_running(before).await);
    wrong
}

async fn call_all(orders: Orders) -> Vec<String> {
    let stopping = Arc::new(AtomicBool::new(false));
    let locks = connect(&orders).await;
    let store = redis::Client::open(orders.store.as_str()).expect("a URL");
    let store = store.get_multiplexed_async_connection().await.expect("the store is there");
    emit("works", "");
    on_the_end_of_input({
        let stopping = stopping.clone();
        move || stopping.store(true, Ordering::Relaxed)
    });
    let journal = Arc::new(Journal::open(&orders.folder.join("journal")));
    let complaints = Arc::default();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let worker = Worker {
                name: format!("{}.{task}", orders.number),
                likes: u32::from(orders.number % 2 == 1),
                locks: locks.clone(),
                store: store.clone(),
                journal: journal.clone(),
                holders: orders.folder.join("holders"),
                complaints: Arc::clone(&complaints),
            };
            let random = Rng::with_seed(orders.seed.wrapping_mul(31).wrapping_add(task as u64));
            tokio::spawn(calls::call_on(worker, random, task, orders.only_exclusive, stopping.clone()))
        })
        .collect();
    for task in tasks {
        task.await.expect("no task panics");
    }
    locks.shutdown(Duration::from_secs(10)).await;
    Mutex::into_inner(Arc::into_inner(complaints).expect("all tasks are over")).expect("nobody panicked")
}

/// What stands on the servers with a client's locks, so that it is known whose they are.
pub(crate) fn owner(number: u64) -> String {
    format!("client-{number}")
}

/// The servers may be failing already.
async fn connect(orders: &Orders) -> LockManager {
    loop {
        let builder =
            LockManager::builder().url(&orders.locks).ttl(TTL).command_timeout(TTL / 2).owner(owner(orders.number));
        match builder.replica_acks(orders.acks).build().await {
            Ok(locks) => return locks,
            Err(why) => eprintln!("can't connect yet: {why}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn on_the_end_of_input(then: impl FnOnce() + Send + 'static) {
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        then();
    });
}
