//! What a contended lock costs: tasks that take turns on one key, through distlock, through the crate `rslock` and by
//! polling by hand, against the same tasks on a `tokio::sync::Mutex`.
//!
//! `cargo bench --bench contended` takes about three minutes, `cargo bench --bench contended -- --quick` 20 seconds. It
//! starts a `redis-server` of its own, or uses the one that `REDIS_URL` names, which should have nobody else then: all
//! commands that it runs are counted.
//!
//! Each task asks for the lock, keeps it for 1 ms, releases it, pauses for 1 ms, and asks again. Both milliseconds are
//! slept by `futures_timer`, for every contender, the mutex included: tokio's own timer rounds up to whole milliseconds,
//! which would make the section twice as long and hide what the locks differ in. How a contender sleeps between two
//! tries is its own affair.
//!
//! The contenders take turns in one run, round by round, each in new processes, and what is shown are the medians of the
//! rounds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a bench may end by a panic"
)]
#![allow(clippy::cast_precision_loss, reason = "counts of a few thousand are shown as decimals")]

mod turns;
mod contenders;
mod processes;
mod commands;
mod figures;
#[path = "../shared/server.rs"]
mod server;
#[path = "../shared/by_hand.rs"]
mod by_hand;

use std::time::Duration;

use self::commands::{Counts, Meter, Sent};
use self::contenders::Contender;
use self::figures::Round;
use self::processes::Party;
use self::server::Server;
use self::turns::Turns;

/// How many processes, and how many tasks in each.
type Crowd = (usize, usize);

const CROWDS: [Crowd; 3] = [(1, 16), (1, 64), (4, 4)];

/// How often and how long.
struct Plan {
    rounds: usize,
    round: Duration,
    sample: Duration,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(party) = Party::from_arguments(&arguments) {
        return processes::child(&party);
    }
    let plan = if arguments.iter().any(|argument| argument == "--quick") {
        Plan { rounds: 1, round: Duration::from_millis(600), sample: Duration::from_millis(200) }
    } else {
        Plan { rounds: 5, round: Duration::from_millis(1_600), sample: Duration::from_millis(400) }
    };
    let server = Server::start();
    let mut bench = Bench { meter: Meter::connect(&server.url), url: server.url.clone(), keys: 0 };
    // First, so that the rounds find everything warm.
    let sent = CROWDS.map(|crowd| Contender::ALL.map(|contender| bench.sample(crowd, contender, plan.sample)));
    let rounds: Vec<_> = (0..plan.rounds)
        .map(|_| CROWDS.map(|crowd| Contender::ALL.map(|contender| bench.round(crowd, contender, plan.round))))
        .collect();
    println!("{} rounds of {:?}, medians\n\n{}", plan.rounds, plan.round, figures::LEGEND);
    for (at, (processes, tasks)) in CROWDS.into_iter().enumerate() {
        println!("\n{processes} x {tasks} tasks (processes x tasks of each)\n{}", figures::HEAD);
        for (which, contender) in Contender::ALL.into_iter().enumerate() {
            let rounds: Vec<_> = rounds.iter().map(|crowds| (&crowds[at][which], &crowds[at][0])).collect();
            println!("{}", figures::row(contender.name(), &rounds, &sent[at][which]));
        }
    }
}

/// The server, seen from both sides.
struct Bench {
    meter: Meter,
    url: String,
    keys: usize,
}

impl Bench {
    /// One contender's turns, watched by `MONITOR`.
    fn sample(&mut self, crowd: Crowd, contender: Contender, length: Duration) -> Sent {
        let mut sample = None;
        self.run(crowd, contender, length, |meter| sample = Some(meter.watch()));
        self.meter.finish(sample.unwrap())
    }

    /// One contender's turns, counted by `INFO commandstats`.
    fn round(&mut self, crowd: Crowd, contender: Contender, length: Duration) -> Round {
        let mut before = Counts::new();
        let turns = self.run(crowd, contender, length, |meter| before = meter.counts());
        let mut run = self.meter.counts();
        for (name, count) in &mut run {
            *count -= before.get(name).copied().unwrap_or_default();
        }
        Round { turns, length, run }
    }

    /// Lets the tasks take turns, and calls `ready` when they are about to. The ideal needs no more than one process: the
    /// tasks of all are in it.
    fn run(
        &mut self,
        crowd: Crowd,
        contender: Contender,
        length: Duration,
        ready: impl FnOnce(&mut Meter),
    ) -> Vec<Turns> {
        // Each has a key of its own, since a try that time cuts short may still take it. And each has processes of its
        // own: distlock goes on looking for what such a try may have left, and the next would be charged with that.
        self.keys += 1;
        let (processes, tasks) = if contender == Contender::Ideal { (1, crowd.0 * crowd.1) } else { crowd };
        let party = Party { contender, url: self.url.clone(), key: format!("contended:{}", self.keys), tasks, length };
        processes::run(processes, &party, || ready(&mut self.meter))
    }
}
