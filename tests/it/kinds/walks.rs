//! The memory backend and a server give the same answers to whatever they are asked, in whatever order.

use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock::backend::{
    Acquired, AcquiredAll, Attempt, Backend, Entry, Kind, MemoryBackend, PATIENCE, Released, Renewed, Turn,
};

use harness::server::Server;

/// What does not end within a walk.
const LONG: Duration = Duration::from_secs(600);
const STEPS: usize = 50;
/// Within which the two see each waiter alive. A walk that a crowded machine makes longer says nothing.
const QUICK: Duration = PATIENCE.checked_div(2).unwrap();

#[derive(Clone, Copy, Debug)]
enum Ask {
    Acquire(Attempt),
    AcquireAll,
    Wait,
    Renew,
    Release,
}

/// One step: what is asked, by whom, and for what.
#[derive(Clone, Copy, Debug)]
struct Step {
    ask: Ask,
    who: usize,
    kind: Kind,
    returns: bool,
}

/// Each asks for the lock in one way, as calls do.
fn kind_of(who: usize) -> Kind {
    match who {
        0 | 1 => Kind::Exclusive,
        2..=4 => Kind::Read,
        5 | 6 => Kind::Permits(3),
        _ => Kind::Permits(2),
    }
}

fn random(random: &mut fastrand::Rng) -> Step {
    let ask = match random.u32(0..16) {
        0..=2 => Ask::Acquire(Attempt::First),
        3..=5 => Ask::Acquire(Attempt::Repeated),
        6 => Ask::AcquireAll,
        7..=10 => Ask::Wait,
        11 | 12 => Ask::Renew,
        _ => Ask::Release,
    };
    let who = random.usize(0..9);
    Step { ask, who, kind: kind_of(who), returns: random.bool() }
}

/// How many hold a lock. Who of them lasts longest, or is named for those who wait, is a matter of times.
fn how_many(value: &str) -> &str {
    value.find(" and ").map_or("", |at| &value[at..])
}

/// What is told, but for times.
async fn answer(backend: &dyn Backend, step: Step, key: &str) -> String {
    let value = format!("{0}{0}{0}{0}{0}{0}{0}{0}-0000-4000-8000-000000000000/{0}", step.who);
    let waiter = format!("{:032}", step.who);
    let entry = Entry::new(key, &value, LONG, Duration::from_secs(5)).with_kind(step.kind).with_waiter(&waiter);
    // Whoever gives up says so in the same way, by which what it has left is known.
    let returns = step.returns || matches!(step.ask, Ask::Release);
    let entry = if returns { entry.returning_within(LONG) } else { entry };
    match step.ask {
        Ask::Acquire(attempt) => match backend.acquire(entry, attempt, &mut None).await.unwrap() {
            Acquired::Granted(_) => "granted".to_owned(),
            Acquired::Held { value, .. } => format!("held{}", how_many(&value)),
        },
        Ask::AcquireAll => match backend.acquire_all(&[entry], &mut None).await.unwrap() {
            AcquiredAll::Granted(_) => "granted".to_owned(),
            AcquiredAll::Held { value, .. } => format!("held{}", how_many(&value)),
            AcquiredAll::Foreign { found, .. } => panic!("foreign: {found}"),
        },
        Ask::Wait => match backend.wait(entry, &mut None).await.unwrap() {
            Turn::Come { others, .. } => format!("its turn, others: {others}"),
            Turn::Waits { value, first, .. } => format!("waits{}, first: {first}", how_many(&value)),
        },
        Ask::Renew => format!("{:?}", backend.renew(&[entry]).await.pop().unwrap().unwrap() == Renewed::Extended),
        Ask::Release => format!("{:?}", backend.release(entry).await.unwrap() == Released::Freed),
    }
}

/// A share or a lock that is held must not be asked for as a first attempt: it can't be there yet.
fn is_sensible(step: Step, done: &[(Step, String)]) -> bool {
    let before = done.iter().rev().find(|(before, _)| before.who == step.who && !matches!(before.ask, Ask::Renew));
    match (step.ask, before.map(|(before, _)| before.ask)) {
        (Ask::Acquire(Attempt::First), before) => matches!(before, None | Some(Ask::Release)),
        _ => true,
    }
}

/// The walk, and how long it took.
async fn walk(server: &dyn Backend, memory: &dyn Backend, seed: u64) -> (Option<String>, Duration) {
    let (mut rng, key, begin) = (fastrand::Rng::with_seed(seed), format!("walk:{seed}"), Instant::now());
    let mut done: Vec<(Step, String)> = Vec::new();
    while done.len() < STEPS {
        let step = random(&mut rng);
        if !is_sensible(step, &done) {
            continue;
        }
        let (theirs, ours) = (answer(server, step, &key).await, answer(memory, step, &key).await);
        if theirs != ours {
            let before: Vec<String> = done.iter().map(|(step, answer)| format!("  {step:?}: {answer}")).collect();
            let before = before.join("\n");
            let told = format!("seed {seed}, after\n{before}\n{step:?}\n  server: {theirs}\n  memory: {ours}");
            return (Some(told), begin.elapsed());
        }
        done.push((step, theirs));
        // A server counts in milliseconds: so it can tell what was earlier.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for who in 0..9 {
        let step = Step { ask: Ask::Release, who, kind: kind_of(who), returns: true };
        answer(server, step, &key).await;
        answer(memory, step, &key).await;
    }
    (None, begin.elapsed())
}

#[tokio::test]
async fn a_server_and_the_memory_backend_answer_alike() {
    let server = Server::start().await;
    let redis = LockManager::connect(&harness::topology::url(&server.url())).await.unwrap().backend();
    let memory = MemoryBackend::new();
    let first = fastrand::u64(..1_000_000);
    let mut quick = 0;
    for seed in first..first + 150 {
        let (difference, took) = walk(&*redis, &memory, seed).await;
        if took < QUICK {
            quick += 1;
            assert!(difference.is_none(), "{}", difference.unwrap_or_default());
        }
    }
    println!("{quick} walks say something");
    assert!(quick > 40, "the machine is too slow for this test to say anything");
}
