//! The log of holders: one file that all processes append to, and the check that no two held a key at once.
//!
//! Each line is one write to a file opened with `O_APPEND`, so lines are never mixed, and carries a `CLOCK_MONOTONIC`
//! stamp, which is the same clock for all processes of a machine. A body writes `start` as its first step, `step` at
//! each further one, and `end` when it is dropped.
//!
//! What counts as holding is what a body *did*: the time from its first to its last act. For a body that ends or is
//! stopped while its process runs, `end` is an act too. Not so for a process that was itself stopped: its body can be
//! dropped only when it is continued, long after another has the lock, and that is right as long as it does nothing in
//! between ([`Until::LastStep`]). A killed process writes nothing more, so its interval ends at the last line that it
//! wrote: it can't have acted later, but for the few milliseconds to the step that it didn't come to.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What the clock of all processes says, in nanoseconds.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

/// The log, for those who hold.
pub(crate) struct Log(PathBuf);

impl Log {
    pub(crate) fn open(path: impl AsRef<Path>) -> Self {
        Self(path.as_ref().to_owned())
    }

    /// Says that the caller holds `key` from now on, under a token that nobody else has.
    pub(crate) fn start(&self, key: &str, token: &str) -> Holder {
        let stamp = now();
        let file = OpenOptions::new().append(true).create(true).open(&self.0).unwrap();
        let holder = Holder { file, key: key.to_owned(), token: token.to_owned() };
        holder.write(stamp, if interrupted(stamp) { "interrupted" } else { "start" });
        holder
    }
}

/// One who holds a key: as long as this value lives.
pub(crate) struct Holder {
    file: File,
    key: String,
    token: String,
}

impl Holder {
    /// Says that the body does something now.
    pub(crate) fn step(&self) {
        // First the stamp: what delays the write doesn't delay the act.
        let stamp = now();
        self.write(stamp, if interrupted(stamp) { "interrupted" } else { "step" });
    }

    fn write(&self, stamp: u64, what: &str) {
        let line = format!("{stamp} {what} {} {}\n", self.token, self.key);
        (&self.file).write_all(line.as_bytes()).unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.write(now(), "end");
    }
}

thread_local! {
    static POLL_BEGAN: std::cell::Cell<Option<u64>> = const { std::cell::Cell::new(None) };
}

/// Longer than any step takes from the poll of a call to the stamp, shorter than any pause that a test makes, and less
/// than the drift that a lease of half a second allows for.
const INTERRUPTION: Duration = Duration::from_millis(5);

/// Whether the process was stopped in the middle of this very poll, between the look at the lease and the act. No lease
/// can guard against that (it is what fencing tokens are for), so such a step doesn't count.
fn interrupted(stamp: u64) -> bool {
    POLL_BEGAN.get().is_some_and(|began| Duration::from_nanos(stamp - began) > INTERRUPTION)
}

/// Goes around a locked call in a process that is stopped now and then: notes when each poll of the call began.
pub(crate) struct NotingPolls<F>(Pin<Box<F>>);

impl<F: Future> NotingPolls<F> {
    pub(crate) fn of(call: F) -> Self {
        Self(Box::pin(call))
    }
}

impl<F: Future> Future for NotingPolls<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        POLL_BEGAN.set(Some(now()));
        let outcome = self.0.as_mut().poll(context);
        POLL_BEGAN.set(None);
        outcome
    }
}

/// What ends the time for which a body held its key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Its last line of any kind: for processes that are never stopped.
    Dropped,
    /// The last thing it did: for processes that are.
    LastStep,
}

/// The time for which one token held its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) key: String,
    pub(crate) token: String,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) steps: usize,
    pub(crate) interrupted: usize,
}

/// Reads a log into holds, in order of their beginnings.
pub(crate) fn holds(log: &str, until: Until) -> Vec<Hold> {
    let mut holds: BTreeMap<&str, Hold> = BTreeMap::new();
    for line in log.lines() {
        let [stamp, what, token, key] = line.splitn(4, ' ').collect::<Vec<_>>()[..] else {
            panic!("not a line of a log of holders: `{line}`");
        };
        let stamp = stamp.parse().unwrap();
        let hold = holds.entry(token).or_insert_with(|| Hold {
            key: key.to_owned(),
            token: token.to_owned(),
            from: u64::MAX,
            to: 0,
            steps: 0,
            interrupted: 0,
        });
        let counts = match what {
            "start" | "step" => true,
            "end" => until == Until::Dropped,
            "interrupted" => false,
            _ => panic!("not an act: `{line}`"),
        };
        hold.steps += usize::from(what == "step");
        hold.interrupted += usize::from(what == "interrupted");
        if counts {
            hold.from = hold.from.min(stamp);
            hold.to = hold.to.max(stamp);
        }
    }
    // One that never did anything that counts held nothing.
    let mut holds: Vec<Hold> = holds.into_values().filter(|hold| hold.from <= hold.to).collect();
    holds.sort_by_key(|hold| hold.from);
    holds
}

/// The first two holds of one key that overlap, if any do.
pub(crate) fn overlap(holds: &[Hold]) -> Option<(&Hold, &Hold)> {
    let mut latest: BTreeMap<&str, &Hold> = BTreeMap::new();
    for hold in holds {
        if let Some(before) = latest.get(hold.key.as_str())
            && hold.from <= before.to
        {
            return Some((before, hold));
        }
        let last = latest.entry(&hold.key).or_insert(hold);
        if hold.to > last.to {
            *last = hold;
        }
    }
    None
}

/// Fails when two holds of a key overlap, and returns all holds.
pub(crate) fn assert_no_overlap(log: &Path, until: Until) -> Vec<Hold> {
    let text = std::fs::read_to_string(log).unwrap();
    let holds = holds(&text, until);
    if let Some((first, second)) = overlap(&holds) {
        panic!(
            "two held `{}` at once for {:?}: {first:?} and {second:?}",
            first.key,
            Duration::from_nanos(first.to.min(second.to) - second.from)
        );
    }
    holds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(log: &str, until: Until) -> bool {
        overlap(&holds(log, until)).is_some()
    }

    #[test]
    fn one_after_the_other_is_no_overlap() {
        assert!(!found("1 start a k\n5 end a k\n6 start b k\n9 end b k\n", Until::Dropped));
    }

    #[test]
    fn a_start_before_the_end_of_another_is_an_overlap() {
        assert!(found("1 start a k\n6 start b k\n7 end a k\n9 end b k\n", Until::Dropped));
    }

    #[test]
    fn an_overlap_is_found_whatever_the_order_of_the_lines() {
        assert!(found("6 start b k\n9 end b k\n1 start a k\n7 end a k\n", Until::Dropped));
    }

    #[test]
    fn an_overlap_is_found_past_a_short_hold_in_between() {
        assert!(found("1 start a k\n2 start b j\n3 end b j\n4 start c k\n9 end a k\n", Until::Dropped));
    }

    #[test]
    fn different_keys_may_be_held_at_once() {
        assert!(!found("1 start a k\n2 start b j\n3 end a k\n4 end b j\n", Until::Dropped));
    }

    #[test]
    fn a_step_after_anothers_start_is_an_overlap_for_stopped_processes_too() {
        assert!(found("1 start a k\n6 start b k\n7 step a k\n", Until::LastStep));
    }

    #[test]
    fn a_stopped_process_may_drop_its_body_late_but_only_where_the_test_says_so() {
        let log = "1 start a k\n2 step a k\n6 start b k\n7 end a k\n";
        assert!(!found(log, Until::LastStep));
        assert!(found(log, Until::Dropped));
    }

    #[test]
    fn a_killed_process_holds_until_its_last_line() {
        assert!(!found("1 start a k\n2 step a k\n6 start b k\n", Until::Dropped));
        assert!(found("1 start a k\n7 step a k\n6 start b k\n", Until::Dropped));
    }

    #[test]
    fn a_step_interrupted_between_the_look_at_the_lease_and_the_act_does_not_count() {
        let log = "1 start a k\n6 start b k\n7 interrupted a k\n";
        assert!(!found(log, Until::LastStep));
        assert_eq!(holds(log, Until::LastStep)[0].interrupted, 1);
        assert!(!found("1 start a k\n2 interrupted b k\n3 step a k\n4 end b k\n", Until::LastStep));
    }
}
