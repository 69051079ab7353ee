//! A run: one topology after the other, from the start of its processes to what is left in the end.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use distlock::LockManager;

use crate::check::check;
use crate::client::TTL;
use crate::client::calls::KEYS;
use crate::clients::Clients;
use crate::plan::Plan;
use crate::report::Report;
use crate::settings::{Settings, Topology};
use crate::world::World;
use crate::{inject, rights, timeline, watch};

/// What two slow cores may take for a few commands.
const SLACK: Duration = Duration::from_secs(5);
/// By how much the wall clock of a server is set at most.
const LARGEST_STEP: Duration = Duration::from_secs(5);
/// For how long a server remembers who waited, and what a writer that tries again has left.
const FORGET: Duration = Duration::from_secs(20);

pub(crate) async fn run(settings: &Settings) -> ExitCode {
    let seed = settings.seed.unwrap_or_else(|| fastrand::u64(..100_000));
    let topologies = settings.topologies();
    println!("seed {seed}; {} topologies, {:.0} s each", topologies.len(), topologies[0].1.as_secs_f64());
    let (mut good, mut found) = (true, false);
    for (topology, time) in topologies {
        let begin = Instant::now();
        let report = one(settings, topology, seed, time).await;
        println!("{report}");
        for violation in report.checked.violations.iter().take(3) {
            println!("{}", timeline::told(violation, &report.checked));
        }
        if let Some(violation) = report.checked.violations.first() {
            match timeline::draw(violation, &report.checked, &settings.picture) {
                Ok(()) => println!(
                    "{} violations; the first is drawn in {}",
                    report.checked.violations.len(),
                    settings.picture.display()
                ),
                Err(why) => println!("the picture could not be drawn: {why}"),
            }
        }
        found |= !report.checked.violations.is_empty() || !report.leftovers.is_empty();
        good &= report.is_good();
        println!("  {:.0} s in all", begin.elapsed().as_secs_f64());
    }
    match settings.plant {
        Some(plant) if found => println!("the planted fault `{}` was found", plant.name()),
        Some(plant) => println!("NOT FOUND: the planted fault `{}`", plant.name()),
        None if good => println!("all promises were kept"),
        None => println!("NOT ALL PROMISES WERE KEPT; again with --seed {seed}"),
    }
    let ended_well = if settings.plant.is_some() { found } else { good };
    if ended_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn one(settings: &Settings, topology: Topology, seed: u64, time: Duration) -> Report {
    let folder = tempfile::Builder::new().prefix("distlock-robustness-").tempdir().expect("a folder");
    let world = World::start(topology, folder.path(), seed).await;
    let plan = Plan::of(seed, topology, settings.clients, time);
    let mut clients = Clients::start(&world, settings.clients, seed, folder.path().to_owned(), settings.plant).await;
    let until = Instant::now() + time;
    let broken = async {
        tokio::join!(
            inject::break_clients(&world, &mut clients, &plan.of_clients, until),
            inject::break_servers(&world, &plan.of_servers, until),
        )
    };
    let (of_clients, of_servers) = tokio::select! {
        made = broken => made,
        () = watch::watch(&world) => unreachable!("nobody tells it to end"),
    };
    world.note("fault no more");
    let mut leftovers = stopped(clients).await;
    // With a fault planted, what is left says nothing new.
    leftovers.extend(not_free(&world).await);
    let left = world.leftovers(FORGET + TTL + SLACK).await;
    leftovers.extend((!left.is_empty()).then(|| format!("left on the servers: {}", left.join(", "))));
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let checked = check(&read("journal"), &read("holders"));
    if let Some(keep) = &settings.keep {
        copy(folder.path(), keep, &world);
    }
    Report { topology, seed, acks: world.acks, faults: of_clients + of_servers, checked, leftovers }
}

/// Has all clients end, and says what they have not given back.
async fn stopped(clients: Clients) -> Vec<String> {
    for client in &clients.all {
        client.child.end_input();
    }
    let mut leaks = Vec::new();
    for client in &clients.all {
        let leak = client.child.event("leaks").await;
        let ended = client.child.wait().await;
        if !leak.trim().is_empty() {
            leaks.push(format!("a client has {leak}"));
        }
        if !ended.status.success() {
            leaks.push(format!("a client ended badly: {}", ended.output));
        }
    }
    leaks
}

/// The locks that a newcomer can't have within one ttl after the end of all faults.
async fn not_free(world: &World) -> Vec<String> {
    let locks = LockManager::builder().url(rights::logged_in(&world.url(&[]))).build().await;
    let locks = match locks {
        Ok(locks) => locks,
        Err(why) => return vec![format!("nobody can connect any more: {why}")],
    };
    let patience = TTL + SLACK + LARGEST_STEP;
    let mut held = Vec::new();
    for kind in ["x", "rw", "p"] {
        for key in 0..KEYS {
            let key = format!("{kind}:{key}");
            match locks.lock(&key).wait(patience).acquire().await {
                Ok(guard) => drop(guard.release().await),
                Err(why) => held.push(format!("`{key}` is not free: {why}")),
            }
        }
    }
    locks.shutdown(SLACK).await;
    held
}

fn copy(from: &Path, to: &Path, world: &World) {
    let _ = std::fs::create_dir_all(to);
    let to = |name: &str| to.join(format!("{}-{name}", world.topology.name()));
    for name in ["journal", "holders"] {
        let _ = std::fs::copy(from.join(name), to(name));
    }
    for server in world.servers() {
        let _ = std::fs::write(to(&format!("server-{}", server.announced())), server.log());
    }
    for sentinel in world.sentinels() {
        let _ = std::fs::write(to(&format!("sentinel-{}", sentinel.address())), sentinel.log());
    }
}
