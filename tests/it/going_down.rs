//! Runtimes and processes that go down with locks held, and guards that are dropped in odd places: no panic, no hang, no
//! key that stays. Each case is a process of its own, since what it ends can't be had back.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use distlock::{LockGuard, LockManager};
use tokio::runtime::{Builder, Runtime};

use crate::calls::{Failure, connect};
use harness::eventually::eventually;
use harness::process::{Child, emit};
use harness::server::Server;

const TTL: Duration = Duration::from_secs(2);

type Case = fn(Runtime, LockManager, Vec<LockGuard>);

const CASES: &[(&str, Case)] = &[
    ("shutdown_timeout", |runtime, _manager, _guards| runtime.shutdown_timeout(Duration::from_millis(200))),
    ("shutdown_background", |runtime, _manager, _guards| runtime.shutdown_background()),
    ("runtime dropped", |runtime, _manager, _guards| drop(runtime)),
    ("runtime dropped before the guards", |runtime, manager, guards| {
        drop(runtime);
        drop(guards);
        drop(manager);
    }),
    ("manager dropped before the guards", |_runtime, manager, guards| {
        drop(manager);
        drop(guards);
    }),
    ("exit", |_runtime, _manager, _guards| std::process::exit(0)),
    ("plain thread", |_runtime, _manager, guards| std::thread::spawn(move || drop(guards)).join().unwrap()),
    ("block_in_place", |runtime, _manager, guards| {
        runtime.block_on(async { tokio::spawn(async { tokio::task::block_in_place(|| drop(guards)) }).await.unwrap() });
    }),
    ("inside another runtime", |runtime, _manager, guards| {
        let other = Builder::new_current_thread().enable_all().build().unwrap();
        other.block_on(async move { drop(guards) });
        drop(other);
        drop(runtime);
    }),
    ("thread-local", |_runtime, _manager, guards| {
        thread_local!(static KEPT: RefCell<Vec<LockGuard>> = const { RefCell::new(Vec::new()) });
        std::thread::spawn(|| KEPT.set(guards)).join().unwrap();
    }),
    ("static", |_runtime, _manager, guards| {
        static KEPT: OnceLock<Vec<LockGuard>> = OnceLock::new();
        assert!(KEPT.set(guards).is_ok());
    }),
];

/// A role: has a hundred bodies running and a few guards, and then goes down as the case says.
pub(crate) fn go_down(arguments: &[&str]) {
    let [url, case] = arguments[..] else { panic!("{arguments:?}") };
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (manager, guards) = runtime.block_on(async {
        let manager = connect(url).await;
        for number in 0..100 {
            tokio::spawn(run_for_ever(manager.clone(), format!("body/{number}")));
        }
        let mut guards = Vec::new();
        for number in 0..5 {
            guards.push(manager.lock(format!("guard/{number}")).ttl(TTL).acquire().await.unwrap());
        }
        (manager, guards)
    });
    emit("holds", "");
    // The test has seen all bodies hold their locks when it answers.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let (_, go_down) = CASES.iter().find(|(name, _)| *name == case).unwrap();
    go_down(runtime, manager, guards);
}

async fn run_for_ever(manager: LockManager, key: String) {
    let body = std::future::pending::<Result<(), Failure>>();
    // It ends with the runtime or the process, or by the loss of its lock; either way there is nobody to tell.
    let _ = manager.lock(key).ttl(TTL).run(body).await;
}

#[tokio::test]
async fn a_process_goes_down_with_locks_held_without_panic_or_hang_and_leaves_no_key() {
    let server = Server::start().await;
    for (case, _) in CASES {
        let child = Child::spawn("going down", &[&server.url(), case]).await;
        child.event("holds").await;
        eventually("all bodies to hold their locks", async || server.dbsize().await == 105).await;
        let begin = Instant::now();
        child.say("go");
        let ended = child.wait().await;
        assert!(ended.status.success(), "{case}: {}\n{}", ended.status, ended.output);
        assert!(!ended.output.contains("panicked"), "{case}: {}", ended.output);
        // A hang would be one for ever; this only has to tell it from a crowded machine.
        assert!(begin.elapsed() < Duration::from_secs(10), "{case}: took {:?} to go down", begin.elapsed());
        // Freed on the way down, or by the ttl, since nobody renews them.
        let what = format!("the keys of case `{case}` to go");
        eventually(&what, async || server.keys().await.is_empty()).await;
    }
}
