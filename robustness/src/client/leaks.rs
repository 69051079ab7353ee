//! What a process holds of the system, before and after.

use std::fmt;
use std::time::{Duration, Instant};

/// Threads, open files, and memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    threads: usize,
    files: usize,
    kilobytes: usize,
}

/// Where nothing is left over, this says nothing.
pub(super) struct More(Vec<String>);

/// What is more than before when threads of the library have had their time to end.
pub(super) fn left_over(before: &Held) -> More {
    let begin = Instant::now();
    loop {
        let more = Held::now().more_than(before);
        if more.0.is_empty() || begin.elapsed() > PATIENCE {
            return more;
        }
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

    fn more_than(&self, before: &Held) -> More {
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
        More(more)
    }
}

impl fmt::Display for More {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}
