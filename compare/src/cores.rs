//! Which processor a process runs on.
//!
//! One task and its server do nothing at the same time. Whether the kernel lets them share a processor, where a message wakes
//! nobody who sleeps, halves their times or doubles them, and it changes its mind between two rounds. So each has its own.

use std::process::Child;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Which of the two that talk to each other.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Client,
    Server,
}

/// Keeps a process on the processor of its side, if there are two. Threads that it starts later stay there, too.
pub(crate) fn keep(process: &Child, side: Side) {
    let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
    let Some((cpu, pid)) = cpu_of(side).zip(pid) else { return };
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    // Where it is not allowed, the figures are less steady.
    if let Err(why) = sched_setaffinity(Some(pid), &cpus) {
        eprintln!("a process can't be kept on one processor: {why}");
    }
}

fn cpu_of(side: Side) -> Option<usize> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let (first, last) = (cpus.next()?, cpus.next_back()?);
    Some(match side {
        Side::Server => first,
        Side::Client => last,
    })
}
