//! As in `walks`, over time: leases, claims and marks end for a server when they end for the memory backend.

use std::time::{Duration, Instant};

use distlock::backend::{
    Acquired, AcquiredAll, Attempt, Backend, CLAIM, Entry, Kind, MemoryBackend, PATIENCE, Released, Renewed, Turn,
};

use crate::calls::connect;
use harness::server::Server;

/// Whatever ends does so in the middle between two steps: patience and claims last for five and a half of them.
const STEP: Duration = Duration::from_millis(182);
/// Who comes later than this after the time of its step says nothing any more.
const LATE: Duration = Duration::from_millis(70);
const STEPS: u32 = 35;
const WALKS: u64 = 40;
/// What on an idle machine takes one round of walks.
const ENOUGH: u32 = 500;
const ROUNDS: u64 = 8;

#[derive(Clone, Copy, Debug)]
enum Ask {
    Acquire(Attempt),
    AcquireAll,
    Wait,
    Renew,
    Release,
}

/// One that asks until it gives up: for one lock, by tries and in line; or for two at once.
#[derive(Clone, Debug)]
struct Caller {
    value: String,
    waiter: String,
    kind: Kind,
    of_two: bool,
    /// In steps and a half, for two locks: always the same, as calls have it. For one lock it changes all the time.
    ttl: u32,
    fresh: bool,
}

impl Caller {
    fn new(random: &mut fastrand::Rng, number: usize) -> Self {
        let kind = match random.u32(0..10) {
            0..=2 => Kind::Exclusive,
            3..=5 => Kind::Read,
            _ => Kind::Permits(*random.choice(&[1, 2, 3, 5]).unwrap()),
        };
        let value = format!("{:08x}-0000-4000-8000-{:012x}/{number}", random.u32(..), random.u32(..));
        let (of_two, ttl) = (random.u32(0..4) == 0, random.u32(1..12));
        Self { value, waiter: format!("{number:032x}"), kind, of_two, ttl, fresh: true }
    }

    fn asks(&mut self, random: &mut fastrand::Rng) -> Ask {
        match random.u32(0..10) {
            7 => Ask::Renew,
            8 | 9 => Ask::Release,
            number => {
                let first = std::mem::take(&mut self.fresh);
                match number {
                    _ if self.of_two => Ask::AcquireAll,
                    0..=2 if first => Ask::Acquire(Attempt::First),
                    0..=2 => Ask::Acquire(Attempt::Repeated),
                    _ => Ask::Wait,
                }
            }
        }
    }
}

/// So many steps and a half.
fn steps(count: u32) -> Duration {
    STEP * count + STEP / 2
}

/// The rest of it, in steps.
fn rest(remaining: Duration) -> u128 {
    remaining.as_millis() / STEP.as_millis()
}

/// What is told, but for who is named of several: that is a matter of milliseconds.
fn told(holder: &str) -> &str {
    holder.find(' ').map_or("", |at| &holder[at..])
}

async fn answer(backend: &dyn Backend, ask: Ask, entries: &[Entry<'_>]) -> String {
    match ask {
        Ask::Acquire(attempt) => match backend.acquire(entries[0], attempt, &mut None).await.unwrap() {
            Acquired::Granted(_) => "granted".to_owned(),
            Acquired::Held { value, remaining } => format!("held{} for {}", told(&value), rest(remaining)),
        },
        Ask::AcquireAll => match backend.acquire_all(entries, &mut None).await.unwrap() {
            AcquiredAll::Granted(_) => "granted".to_owned(),
            AcquiredAll::Held { index, value, remaining } => {
                format!("{index} is held{} for {}", told(&value), rest(remaining))
            }
            AcquiredAll::Foreign { found, .. } => panic!("foreign: {found}"),
        },
        Ask::Wait => match backend.wait(entries[0], &mut None).await.unwrap() {
            Turn::Come { others, .. } => format!("its turn, others: {others}"),
            Turn::Waits { first, .. } => format!("waits, first: {first}"),
        },
        Ask::Renew => {
            let renewed = backend.renew(entries).await.into_iter().map(|one| one.unwrap() == Renewed::Extended);
            format!("renewed: {:?}", renewed.collect::<Vec<_>>())
        }
        Ask::Release => {
            let mut released: Vec<Released> = Vec::new();
            for entry in entries {
                released.push(backend.release(*entry).await.unwrap());
            }
            format!("{released:?}")
        }
    }
}

/// How many steps were in time, up to the first difference.
async fn walk(server: &dyn Backend, memory: &dyn Backend, seed: u64) -> Result<u32, String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let keys = [format!("alike:{seed}:1"), format!("alike:{seed}:2")];
    let mut callers: Vec<Caller> = (0..6).map(|number| Caller::new(&mut random, number)).collect();
    let (begin, mut done) = (Instant::now(), Vec::new());
    for step in 0..STEPS {
        // The pace of the walk: time is what is walked through.
        tokio::time::sleep_until((begin + STEP * step).into()).await;
        for _ in 0..random.u32(1..4) {
            let number = random.usize(0..callers.len());
            let ask = callers[number].asks(&mut random);
            let caller = callers[number].clone();
            let (ttl, returning) = (steps(random.u32(1..12)), steps(random.u32(1..8)));
            let ttl = if caller.of_two { steps(caller.ttl) } else { ttl };
            // Whoever gives up says so in the same way, by which what it has left is known.
            let returns = random.bool() || matches!(ask, Ask::Release);
            let entries = keys.each_ref().map(|key| {
                let entry = Entry::new(key, &caller.value, ttl, Duration::from_secs(5)).with_kind(caller.kind);
                let entry = if caller.of_two { entry } else { entry.with_waiter(&caller.waiter) };
                if returns { entry.returning_within(returning) } else { entry }
            });
            let entries = if caller.of_two { &entries[..] } else { &entries[..1] };
            let (theirs, ours) = (answer(server, ask, entries).await, answer(memory, ask, entries).await);
            if begin.elapsed() > STEP * step + LATE {
                return Ok(step);
            }
            let what = format!("{step}: {ask:?}, ttl {}, {returns} {returning:?}, {caller:?}", rest(ttl));
            if theirs != ours {
                let before = done.join("\n  ");
                return Err(format!("seed {seed}, after\n  {before}\n{what}\n  server: {theirs}\n  memory: {ours}"));
            }
            done.push(format!("{what}: {ours}"));
            if matches!(ask, Ask::Release) {
                callers[number] = Caller::new(&mut random, number);
            }
        }
    }
    Ok(STEPS)
}

#[tokio::test]
async fn a_server_and_the_memory_backend_let_things_end_alike() {
    assert_eq!([rest(PATIENCE), rest(CLAIM)], [5, 5]);
    let server = Server::start().await;
    let (redis, memory) = (connect(&server.url()).await.backend(), std::sync::Arc::new(MemoryBackend::new()));
    redis.prepare().await.unwrap();
    let (first, mut done) = (fastrand::u64(..1_000_000), 0);
    for round in 0..ROUNDS {
        let mut walks = tokio::task::JoinSet::new();
        for number in 0..WALKS {
            let (redis, memory, seed) = (redis.clone(), memory.clone(), first + round * WALKS + number);
            walks.spawn(async move { walk(&*redis, &*memory, seed).await });
            // So that their steps are not all at the same time.
            tokio::time::sleep(STEP / u32::try_from(WALKS).unwrap()).await;
        }
        for outcome in walks.join_all().await {
            done += outcome.unwrap_or_else(|difference| panic!("{difference}"));
        }
        println!("{done} steps say something");
        if done >= ENOUGH {
            break;
        }
    }
    assert!(done >= ENOUGH, "the machine is too slow for this test to say anything");
    for name in server.keys().await {
        assert_ne!(server.pttl(&name).await, -1, "`{name}` never expires");
    }
}
