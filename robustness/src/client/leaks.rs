//! What a process holds of the system, before and after.

use std::time::{Duration, Instant};

/// Threads, open files, and memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    threads: usize,
    files: usize,
    kilobytes: usize,
}

/// How many tasks there are in the runtime, beside the one that asks.
pub(super) fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Whether there are more than before, when those of connections have had their time to end.
pub(super) async fn left_running(before: usize) -> Option<String> {
    let begin = Instant::now();
    while tasks() > before && begin.elapsed() < PATIENCE {
        // Between two looks.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let now = tasks();
    (now > before).then(|| format!("{now} tasks, and {before} before"))
}

/// What is more than before when threads of the library have had their time to end.
pub(super) fn left_over(before: &Held) -> Vec<String> {
    let begin = Instant::now();
    loop {
        let more = Held::now().more_than(before);
        if more.is_empty() || begin.elapsed() > PATIENCE {
            return more;
        }
        // Between two looks.
        std::thread::sleep(Duration::from_millis(20));
    }
}

const PATIENCE: Duration = Duration::from_secs(10);

/// More than what an allocator keeps for later.
const NOTABLE_KILOBYTES: usize = 64 * 1024;

impl Held {
    pub(super) fn now() -> Held {
        let count = |folder| std::fs::read_dir(folder).map_or(0, Iterator::count);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let memory =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
        Held { threads: count("/proc/self/task"), files: count("/proc/self/fd"), kilobytes: memory.unwrap_or(0) }
    }

    fn more_than(&self, before: &Held) -> Vec<String> {
        let mut more = Vec::new();
        // The one that waited for the end of the input may still be ending.
        if self.threads > before.threads + 1 {
            more.push(format!("{} threads, and {} before", self.threads, before.threads));
        }
        if self.files > before.files + 1 {
            more.push(format!("{} open files, and {} before", self.files, before.files));
        }
        if self.kilobytes > before.kilobytes + NOTABLE_KILOBYTES {
            more.push(format!("{} kB of memory, and {} before", self.kilobytes, before.kilobytes));
        }
        more
    }
}
