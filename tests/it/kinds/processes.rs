//! Processes that hold locks of all kinds, are killed and stand still.

use std::time::Duration;

use distlock::{LockManager, Mode};

use super::{Kind, LONG};
use crate::calls::{Failure, connect};
use harness::holders::{self, Log, NotingPolls, most_at_once};
use harness::process::emit;
use harness::storm::{self, Storm};

const TTL: Duration = Duration::from_millis(600);

/// A role: holds a lock so many times at once, and tells when it has it and how each of them ended. Arguments: the URL, the
/// key, `read` or a number of permits, the ttl in milliseconds, how many.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn hold_and_tell(arguments: &[&str]) {
    let [url, key, kind, ttl, count] = arguments[..] else { panic!("{arguments:?}") };
    let kind = kind.parse().map_or(Kind::Read, Kind::Permits);
    let (manager, ttl) = (connect(url).await, Duration::from_millis(ttl.parse().unwrap()));
    let tasks: Vec<_> = (0..count.parse::<usize>().unwrap())
        .map(|_| {
            let request = kind.lock(&manager, key).ttl(ttl);
            tokio::spawn(request.run(async {
                emit("holds", "");
                std::future::pending::<Result<(), Failure>>().await
            }))
        })
        .collect();
    for task in tasks {
        let failure = task.await.unwrap().unwrap_err();
        emit("lost", format_args!("{:?}", failure.lost()));
    }
    emit("done", "");
}

/// A role: asks for a lock to write, by `wait` or by `retry`, and says when it has it.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn wait_to_write(arguments: &[&str]) {
    let [url, key, how] = arguments[..] else { panic!("{arguments:?}") };
    let manager = connect(url).await;
    let request = manager.lock(key).mode(Mode::Write).ttl(Duration::from_secs(3));
    let request = if how == "wait" { request.wait(LONG) } else { request.retry(u32::MAX) };
    emit("asks", "");
    let _guard = request.acquire().await.unwrap();
    emit("holds", "");
    // As long as this process lives.
    std::future::pending::<()>().await;
}

/// What somebody who works does next: a key, and how it is asked for.
fn next(random: &mut fastrand::Rng) -> (&'static str, Kind) {
    match random.u32(0..12) {
        0..=3 => ("rw", Kind::Read),
        4 => ("rw", Kind::Write),
        5 => ("rw", Kind::Plain),
        6..=8 => ("three", Kind::Permits(3)),
        9 | 10 => ("some", Kind::Permits(random.u32(2..=5))),
        // All kinds contend for these.
        _ => (*random.choice(&["some", "three"]).unwrap(), *random.choice(&Kind::ALL).unwrap()),
    }
}

/// A role: holds one of a few locks again and again, of all kinds, and works under it for a random time, as long as it
/// lives. It does three such things at once.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn work(arguments: &[&str]) {
    let [url, log, seed] = arguments[..] else { panic!("{arguments:?}") };
    let (manager, seed) = (connect(url).await, seed.parse::<u64>().unwrap());
    emit("works", "");
    let one = |number: u64| work_on(manager.clone(), Log::open(log), fastrand::Rng::with_seed(seed ^ (number << 32)));
    tokio::join!(one(1), one(2), one(3));
}

async fn work_on(manager: LockManager, log: Log, mut random: fastrand::Rng) {
    loop {
        let ((key, kind), steps) = (next(&mut random), random.u32(1..60));
        let body = async {
            let holder = log.start_as(kind.in_the_log(), key, &uuid::Uuid::new_v4().to_string());
            for _ in 0..steps {
                // The pace of the body's steps.
                tokio::time::sleep(Duration::from_millis(5)).await;
                holder.step();
            }
            Ok::<_, Failure>(())
        };
        let request = kind.lock(&manager, key).ttl(TTL);
        let request = if random.bool() { request.retry(20) } else { request.wait(Duration::from_secs(5)) };
        // Refused and lost are what this process has to live with.
        let _ = NotingPolls::of(request.run(body)).await;
    }
}

/// B21 has it for a minute.
#[tokio::test]
async fn eight_processes_that_are_killed_and_paused_never_hold_what_excludes_each_other() {
    let Storm { holds, killed, paused } = storm::rage("kinds: work", Duration::from_secs(60), 50..600).await;
    // Else the test proves nothing.
    let count = |key: &str, is: &dyn Fn(holders::Kind) -> bool| {
        holds.iter().filter(|hold| hold.key == key && is(hold.kind)).count()
    };
    let (readers, writers) =
        (count("rw", &|kind| kind == holders::Kind::Reader), count("rw", &|kind| kind == holders::Kind::Exclusive));
    let permits = count("three", &|kind| matches!(kind, holders::Kind::Permits(_)));
    println!("{readers} readers, {writers} writers, {permits} with one of three permits");
    assert!(readers > 50 && writers > 20 && permits > 50 && killed > 5 && paused > 15, "too little happened");
    let (most_readers, most_permits) = (most_at_once(&holds, "rw"), most_at_once(&holds, "three"));
    assert!(most_readers > 2 && most_permits == 3, "{most_readers} readers and {most_permits} permits at once at most");
}
