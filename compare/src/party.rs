//! A contender in a process of its own, which nothing disturbs that the others do in the background.
//!
//! It says `ready`, and then answers each line with one line. Scripts in other languages speak the same:
//!
//! | line | answer |
//! |---|---|
//! | `cycles <tasks> <cycles>` | the nanoseconds in which each task took and freed its lock so many times |
//! | `latencies <tasks> <cycles>` | the same, but the microseconds of each cycle |
//! | `turns <tasks> <milliseconds> <key>` | the waits of each task for one key, apart by `;`: see [`Turns`] |
//! | `allocations <cycles>` | how many for a cycle, and how many bytes |
//! | `hold <count>` | how many are held now |
//! | `cpu` | the seconds of processor time so far |
//! | `drop` | how many were lost, as far as the contender knows |
//!
//! `can't: <reason>` is an answer to all of them.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use stats_alloc::Region;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};

use crate::ALLOCATOR;
use crate::contender::Contender;
use crate::peers::{Peer, Site, Stay};
use crate::turns::{self, Turns};

const ROLE: &str = "--party";

/// How a contender is set up.
pub(crate) struct Party {
    pub(crate) contender: Contender,
    pub(crate) threads: usize,
    pub(crate) site: Site,
}

impl Party {
    pub(crate) fn to_arguments(&self) -> Vec<String> {
        let (threads, ttl) = (self.threads.to_string(), self.site.ttl.as_millis().to_string());
        let mut arguments = vec![ROLE.to_owned(), self.contender.name().to_owned(), threads, ttl];
        arguments.extend(self.site.urls.iter().cloned());
        arguments
    }

    /// `None` in the process that measures.
    pub(crate) fn from_arguments(arguments: &[String]) -> Option<Party> {
        let [role, contender, threads, ttl, urls @ ..] = arguments else { return None };
        if role != ROLE {
            return None;
        }
        let ttl = Duration::from_millis(ttl.parse().ok()?);
        let site = Site { urls: urls.to_vec(), ttl };
        Some(Party { contender: Contender::by_name(contender)?, threads: threads.parse().ok()?, site })
    }

    /// One task runs on one thread: on two, whether its connection happens to be driven by the other would decide.
    fn runtime(&self) -> Runtime {
        let mut builder = if self.threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
        builder.worker_threads(self.threads).enable_all().build().unwrap()
    }
}

/// Connects and answers, until standard input ends.
pub(crate) fn serve<P: Peer>(party: &Party) {
    let runtime = party.runtime();
    let mut server = Served { peer: runtime.block_on(P::connect(&party.site)), runtime, holding: None };
    answer("ready");
    // What a contender fails with is told in the answer.
    std::panic::set_hook(Box::new(|_| {}));
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        answer(&server.answer_to(&words).unwrap_or_else(|why| format!("can't: fails: {why}")));
    }
    // Nobody waits for what goes on in the background.
    std::process::exit(0);
}

fn answer(line: &str) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).unwrap();
}

struct Served<P> {
    peer: P,
    runtime: Runtime,
    holding: Option<Holding>,
}

struct Holding {
    end: watch::Sender<bool>,
    holders: Vec<JoinHandle<bool>>,
}

impl<P: Peer> Served<P> {
    fn answer_to(&mut self, words: &[&str]) -> Result<String, String> {
        Ok(match words {
            ["cycles", tasks, cycles] => {
                let cycles = cycles_of(self.peer.clone(), number(tasks), number(cycles));
                self.runtime.block_on(cycles)?.as_nanos().to_string()
            }
            ["latencies", tasks, cycles] => {
                let latencies = latencies_of(self.peer.clone(), number(tasks), number(cycles));
                let latencies = self.runtime.block_on(latencies)?;
                join(latencies.iter().map(|latency| format!("{:.1}", latency.as_secs_f64() * 1e6)), " ")
            }
            ["turns", tasks, millis, key] => {
                let length = Duration::from_millis(number(millis) as u64);
                let all = self.runtime.block_on(turns::all_turns(self.peer.clone(), key, number(tasks), length));
                join(all.iter().map(Turns::to_line), ";")
            }
            ["allocations", cycles] => self.allocations(number(cycles)),
            ["hold", count] => self.hold(number(count)),
            ["cpu"] => {
                // All threads of the process, its own time and the kernel's on its behalf.
                let time = clock_gettime(ClockId::ProcessCPUTime);
                format!("{}.{:09}", time.tv_sec, time.tv_nsec)
            }
            ["drop"] => self.drop_all(),
            _ => return Err(format!("unknown: {words:?}")),
        })
    }

    fn allocations(&self, cycles: usize) -> String {
        let change = self.runtime.block_on(async {
            let region = Region::new(ALLOCATOR);
            self.peer.cycles(0, cycles).await;
            region.change()
        });
        let count = (change.allocations + change.reallocations) as f64 / cycles as f64;
        format!("{count:.2} {:.0}", change.bytes_allocated as f64 / cycles as f64)
    }

    /// A hundred more every 10 ms, so that renewals are not all due at once; that would favour those who batch them.
    fn hold(&mut self, count: usize) -> String {
        let (stay, end) = Stay::begin();
        let mut holders = Vec::new();
        let held = self.runtime.block_on(async {
            for id in 0..count {
                let (peer, stay) = (self.peer.clone(), stay.clone());
                holders.push(tokio::spawn(async move { peer.hold(id, stay).await }));
                if id % 100 == 99 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            let begin = Instant::now();
            while stay.held() < count && begin.elapsed() < Duration::from_secs(20) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            stay.held()
        });
        self.holding = Some(Holding { end, holders });
        held.to_string()
    }

    fn drop_all(&mut self) -> String {
        let Some(Holding { end, holders }) = self.holding.take() else { return "0".to_owned() };
        end.send_replace(true);
        let lost = self.runtime.block_on(async {
            let mut lost = 0;
            for holder in holders {
                // One that panicked has lost its lock, too.
                lost += usize::from(holder.await.unwrap_or(true));
            }
            lost
        });
        lost.to_string()
    }
}

fn number(word: &str) -> usize {
    word.parse().unwrap()
}

fn join(words: impl Iterator<Item = String>, separator: &str) -> String {
    words.collect::<Vec<_>>().join(separator)
}

async fn cycles_of<P: Peer>(peer: P, tasks: usize, cycles: usize) -> Result<Duration, String> {
    let begin = Instant::now();
    let task = |task| {
        let peer = peer.clone();
        tokio::spawn(async move { peer.cycles(task, cycles).await })
    };
    let tasks: Vec<_> = (0..tasks).map(task).collect();
    for task in tasks {
        task.await.map_err(reason)?;
    }
    Ok(begin.elapsed())
}

async fn latencies_of<P: Peer>(peer: P, tasks: usize, cycles: usize) -> Result<Vec<Duration>, String> {
    let task = |task| {
        let peer = peer.clone();
        tokio::spawn(async move {
            let mut latencies = Vec::new();
            for _ in 0..cycles {
                let begin = Instant::now();
                peer.cycles(task, 1).await;
                latencies.push(begin.elapsed());
            }
            latencies
        })
    };
    let tasks: Vec<_> = (0..tasks).map(task).collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.map_err(reason)?);
    }
    Ok(all)
}

/// What a task panicked with.
fn reason(why: JoinError) -> String {
    let panic = why.into_panic();
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without a reason").to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Party;
    use crate::contender::Contender;
    use crate::peers::Site;

    #[test]
    fn a_party_is_the_same_on_the_other_side() {
        let site = Site { urls: vec!["redis://a".to_owned(), "redis://b".to_owned()], ttl: Duration::from_secs(3) };
        let arguments = Party { contender: Contender::Distkit, threads: 2, site }.to_arguments();
        let party = Party::from_arguments(&arguments).unwrap();
        assert_eq!((party.contender, party.threads), (Contender::Distkit, 2));
        assert_eq!((party.site.urls.len(), party.site.ttl), (2, Duration::from_secs(3)));
    }

    #[test]
    fn arguments_of_a_user_are_no_party() {
        assert!(Party::from_arguments(&["--quick".to_owned()]).is_none());
        assert!(Party::from_arguments(&[]).is_none());
    }
}
