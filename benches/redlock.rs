//! What a lock over five servers costs: acquire and release by distlock, by hand and by the crate `rslock`, with all servers
//! up, with one frozen and with one dead.
//!
//! `cargo bench --bench redlock` starts five `redis-server`s. By hand it is written in two ways: one returns when three have
//! granted or freed, and so leaves the others alone; one waits for all. The contenders take turns in one run, and so do the
//! states of the servers; each round gives a ratio, of which the median is shown. Above 1.00 distlock is the faster one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a bench may end by a panic"
)]
#![allow(clippy::cast_precision_loss, reason = "counts of a few thousand are shown as decimals")]

#[path = "shared/server.rs"]
#[allow(dead_code, reason = "other benches use the rest")]
mod server;
#[path = "shared/by_hand.rs"]
#[allow(dead_code, reason = "other benches use the rest")]
mod by_hand;

use std::time::{Duration, Instant};

use distlock::LockManager;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rustix::process::{Pid, Signal, kill_process};

use self::by_hand::ByHand;
use self::server::Server;

const TTL: Duration = Duration::from_secs(30);
/// How often the servers go through all states, with how many rounds each.
const BLOCKS: usize = 5;
const ROUNDS: usize = 7;
const CYCLES: usize = 100;
/// For those whose every command waits for a server that does not answer.
const FEW_CYCLES: usize = 1;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    AllUp,
    OneFrozen,
    OneDead,
}

fn main() {
    let mut servers: Vec<Server> = (0..5).map(|_| Server::start_own()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(measure(&mut servers));
}

/// The times of all rounds in one state, in microseconds for a cycle.
#[derive(Default)]
struct Times {
    ours: Vec<f64>,
    quorum: Vec<f64>,
    all: Vec<f64>,
    rslock: Vec<f64>,
}

async fn measure(servers: &mut [Server]) {
    let urls: Vec<String> = servers.iter().map(|server| server.url.clone()).collect();
    let ours = LockManager::builder().redlock(urls.clone()).build().await.unwrap();
    let rslock = rslock::LockManager::from_clients(urls.iter().map(|url| by_hand::client(url)).collect());
    let states = [State::AllUp, State::OneFrozen, State::OneDead];
    let mut times = [Times::default(), Times::default(), Times::default()];
    for _ in 0..BLOCKS {
        for (state, times) in states.into_iter().zip(&mut times) {
            // Made anew, as one who writes this by hand does after an outage, at the latest.
            let hand = Hand::connect(&urls).await;
            rslock_cycles(&rslock, FEW_CYCLES).await;
            state.begin(&servers[4]);
            // Until everybody has noticed: a command may take a second.
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(1_500) {
                our_cycles(&ours, 10).await;
            }
            rounds(state, times, &ours, &hand, &rslock).await;
            state.end(&mut servers[4]);
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(500) {
                our_cycles(&ours, 10).await;
            }
        }
    }
    println!(
        "acquire and release over five servers, {} rounds each, by hand / distlock (higher is better):",
        BLOCKS * ROUNDS
    );
    let all_up = median(&times[0].ours);
    for (state, times) in states.into_iter().zip(&times) {
        report(state, times, all_up);
    }
}

async fn rounds(state: State, times: &mut Times, ours: &LockManager, hand: &Hand, rslock: &rslock::LockManager) {
    let slow = if state == State::OneFrozen { FEW_CYCLES } else { CYCLES };
    for round in 0..ROUNDS {
        // Who goes first changes.
        for turn in 0..2 {
            if (round + turn) % 2 == 0 {
                times.ours.push(our_cycles(ours, CYCLES).await);
            } else {
                times.quorum.push(hand.cycles(CYCLES, 3).await);
            }
        }
        // Seconds for each of these.
        if state != State::OneFrozen || round == 0 {
            times.all.push(hand.cycles(slow, 5).await);
            times.rslock.push(rslock_cycles(rslock, slow).await);
        }
    }
}

fn report(state: State, times: &Times, all_up: f64) {
    let ratios: Vec<f64> = times.quorum.iter().zip(&times.ours).map(|(quorum, ours)| quorum / ours).collect();
    let ours = median(&times.ours);
    let name = match state {
        State::AllUp => "all up",
        State::OneFrozen => "one frozen",
        State::OneDead => "one dead",
    };
    println!(
        "  {name:>10}: {:.3} against three of five ({:.1} us against {ours:.1} us), {:.2} against all ({:.0} us), \
         {:.2} against rslock ({:.0} us); {:.2} of our time with all up",
        median(&ratios),
        median(&times.quorum),
        median(&times.all) / ours,
        median(&times.all),
        median(&times.rslock) / ours,
        median(&times.rslock),
        ours / all_up
    );
}

impl State {
    fn begin(self, server: &Server) {
        match self {
            State::AllUp => {}
            State::OneFrozen => signal(server, Signal::STOP),
            State::OneDead => signal(server, Signal::KILL),
        }
    }

    fn end(self, server: &mut Server) {
        match self {
            State::AllUp => {}
            State::OneFrozen => signal(server, Signal::CONT),
            State::OneDead => restart(server),
        }
    }
}

fn restart(server: &mut Server) {
    server.process.take().unwrap().wait().unwrap();
    server.process = Some(Server::launch(server.url.rsplit_once(':').unwrap().1));
}

fn signal(server: &Server, signal: Signal) {
    let id = i32::try_from(server.process.as_ref().unwrap().id()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(id, signal).unwrap();
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn per_cycle(begin: Instant, cycles: usize) -> f64 {
    begin.elapsed().as_secs_f64() * 1e6 / cycles as f64
}

async fn our_cycles(locks: &LockManager, cycles: usize) -> f64 {
    let begin = Instant::now();
    for _ in 0..cycles {
        locks.lock("order:1").ttl(TTL).retry(10).acquire().await.unwrap().release().await.unwrap();
    }
    per_cycle(begin, cycles)
}

async fn rslock_cycles(locks: &rslock::LockManager, cycles: usize) -> f64 {
    let begin = Instant::now();
    for _ in 0..cycles {
        locks.acquire("rslock:order:1", TTL).await.unwrap().release().await;
    }
    per_cycle(begin, cycles)
}

/// A lock over several servers without a library.
struct Hand(Vec<ByHand>);

impl Hand {
    async fn connect(urls: &[String]) -> Hand {
        let mut hands = Vec::new();
        for url in urls {
            hands.push(ByHand::connect(url).await);
        }
        Hand(hands)
    }

    /// Takes and frees locks, and goes on each time when `enough` servers have answered, or all that do.
    async fn cycles(&self, cycles: usize, enough: usize) -> f64 {
        let begin = Instant::now();
        for _ in 0..cycles {
            let token = uuid::Uuid::new_v4().to_string();
            let key = "hand:{order:1}";
            let acquired = |hand: &ByHand| {
                let (mut hand, token) = (hand.clone(), &token);
                async move { hand.ask_to_acquire(key, token).await.unwrap_or(false) }
            };
            assert!(count(self.0.iter().map(acquired).collect(), enough).await >= 3, "nobody else wants it");
            let released = |hand: &ByHand| {
                let (mut hand, token) = (hand.clone(), &token);
                async move { hand.ask_to_release(key, token).await == Ok(1) }
            };
            assert!(count(self.0.iter().map(released).collect(), enough).await >= 3, "it was held");
        }
        per_cycle(begin, cycles)
    }
}

/// How many said yes, of those that answered until enough did.
async fn count(mut answers: FuturesUnordered<impl Future<Output = bool>>, enough: usize) -> usize {
    let mut yes = 0;
    while let Some(answer) = answers.next().await {
        yes += usize::from(answer);
        if yes == enough {
            break;
        }
    }
    yes
}
