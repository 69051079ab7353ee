//! Processes that take locks, and are killed and stopped at random.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::holders::{Hold, Until, assert_no_overlap};
use crate::process::Child;
use crate::server::Server;

const PROCESSES: u64 = 8;

/// What came of it.
pub struct Storm {
    pub holds: Vec<Hold>,
    pub killed: u64,
    pub paused: u64,
}

/// Has eight processes in a role for so long, kills and stops them, with so many milliseconds in between in which all goes
/// well, and asserts that no two have held what excludes each other. The role's arguments are the URL of a server, the log
/// of holders and a seed.
pub async fn rage(role: &str, time: Duration, calm: Range<u64>) -> Storm {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("holders");
    let spawn = async |number: u64| {
        let seed = seed.wrapping_add(number).to_string();
        let child = Child::spawn(role, &[&server.url(), log.to_str().unwrap(), &seed]).await;
        child.event("works").await;
        child
    };
    let mut random = fastrand::Rng::with_seed(seed);
    let mut children = Vec::new();
    for number in 0..PROCESSES {
        children.push(spawn(number).await);
    }
    let (begin, mut killed, mut paused) = (Instant::now(), 0, 0);
    while begin.elapsed() < time {
        // Both pauses are the faults: how long all goes well, and how long a process stands still.
        tokio::time::sleep(Duration::from_millis(random.u64(calm.clone()))).await;
        let victim = random.usize(0..children.len());
        if random.u8(0..3) == 0 {
            children[victim] = spawn(PROCESSES + killed).await;
            killed += 1;
        } else {
            children[victim].stop();
            // From a fifth of the ttl of these roles, 600 ms, to twice that.
            tokio::time::sleep(Duration::from_millis(random.u64(120..1_200))).await;
            children[victim].cont();
            paused += 1;
        }
    }
    drop(children);
    let holds = assert_no_overlap(&log, Until::LastStep);
    let interrupted: usize = holds.iter().map(|hold| hold.interrupted).sum();
    let steps: usize = holds.iter().map(|hold| hold.steps).sum();
    println!("{} holds, {steps} steps ({interrupted} interrupted), {killed} killed, {paused} paused", holds.len());
    assert!(interrupted * 20 < steps, "too many steps don't count");
    Storm { holds, killed, paused }
}
