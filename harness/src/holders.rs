//! The log of holders: one file that all processes append to, and the check that nobody held a key beside others who
//! exclude it: a writer beside anyone, or one too many beside those with permits.
//!
//! Each line is one write to a file opened with `O_APPEND`, so lines are never mixed, and carries a `CLOCK_MONOTONIC`
//! stamp, which is the same clock for all processes of a machine. A body writes `start` as its first step, `step` at
//! each further one, and `end` when it is dropped. Behind that stand its token, what it is ([`Kind`]) and its key.
//!
//! What counts as holding is what a body *did*: the time from its first to its last act. For a body that ends or is
//! stopped while its process runs, `end` is an act too. Not so for a process that was itself stopped: its body can be
//! dropped only when it is continued, long after another has the lock, and that is right as long as it does nothing in
//! between ([`Until::LastStep`]). A killed process writes nothing more, so its interval ends at the last line that it
//! wrote: it can't have acted later, but for the few milliseconds to the step that it didn't come to.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What the clock of all processes says, in nanoseconds.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

/// Who else may hold a key beside this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nobody.
    Exclusive,
    /// Readers.
    Reader,
    /// So many in all.
    Permits(usize),
}

impl Kind {
    /// Whether all of these may hold a key at once.
    pub fn go_together(kinds: &[Kind]) -> bool {
        kinds.len() < 2 || kinds.iter().all(|kind| *kind == Kind::Reader) || Kind::have_permits(kinds)
    }

    fn have_permits(kinds: &[Kind]) -> bool {
        kinds.iter().all(|kind| matches!(kind, Kind::Permits(permits) if *permits >= kinds.len()))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Exclusive => f.write_str("x"),
            Kind::Reader => f.write_str("r"),
            Kind::Permits(permits) => write!(f, "p{permits}"),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        match (text, text.strip_prefix('p').and_then(|permits| permits.parse().ok())) {
            ("x", _) => Ok(Kind::Exclusive),
            ("r", _) => Ok(Kind::Reader),
            (_, Some(permits)) => Ok(Kind::Permits(permits)),
            _ => Err(format!("no kind of a holder: `{text}`")),
        }
    }
}

/// The log, for those who hold.
pub struct Log(PathBuf);

impl Log {
    pub fn open(path: impl AsRef<Path>) -> Self {
        Self(path.as_ref().to_owned())
    }

    /// Says that the caller alone holds `key` from now on, under a token that nobody else has.
    pub fn start(&self, key: &str, token: &str) -> Holder {
        self.start_as(Kind::Exclusive, key, token)
    }

    /// Says the same of one who may hold `key` beside others.
    pub fn start_as(&self, kind: Kind, key: &str, token: &str) -> Holder {
        let stamp = now();
        let file = OpenOptions::new().append(true).create(true).open(&self.0).unwrap();
        let holder = Holder { file, kind, key: key.to_owned(), token: token.to_owned() };
        holder.write(stamp, if interrupted(stamp) { "interrupted" } else { "start" });
        holder
    }
}

/// One who holds a key: as long as this value lives.
pub struct Holder {
    file: File,
    kind: Kind,
    key: String,
    token: String,
}

impl Holder {
    /// Says that the body does something now.
    pub fn step(&self) {
        // First the stamp: what delays the write doesn't delay the act.
        let stamp = now();
        self.write(stamp, if interrupted(stamp) { "interrupted" } else { "step" });
    }

    fn write(&self, stamp: u64, what: &str) {
        let line = format!("{stamp} {what} {} {} {}\n", self.token, self.kind, self.key);
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

/// Whether the process was stopped between the poll of the call and now.
pub fn is_interrupted() -> bool {
    interrupted(now())
}

/// Goes around a locked call in a process that is stopped now and then: notes when each poll of the call began.
pub struct NotingPolls<F>(Pin<Box<F>>);

impl<F: Future> NotingPolls<F> {
    pub fn of(call: F) -> Self {
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
pub enum Until {
    /// Its last line of any kind: for processes that are never stopped.
    Dropped,
    /// The last thing it did: for processes that are.
    LastStep,
}

/// The time for which one token held its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    pub key: String,
    pub kind: Kind,
    pub token: String,
    pub from: u64,
    pub to: u64,
    pub steps: usize,
    pub interrupted: usize,
}

/// Reads a log into holds, in order of their beginnings.
pub fn holds(log: &str, until: Until) -> Vec<Hold> {
    let mut holds: BTreeMap<&str, Hold> = BTreeMap::new();
    for line in log.lines() {
        let [stamp, what, token, kind, key] = line.splitn(5, ' ').collect::<Vec<_>>()[..] else {
            panic!("not a line of a log of holders: `{line}`");
        };
        let stamp = stamp.parse().unwrap();
        let hold = holds.entry(token).or_insert_with(|| Hold {
            key: key.to_owned(),
            kind: kind.parse().unwrap(),
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

/// The first holds of one key that were held at once and must not be, if there are any: the last one is the one too many.
pub fn overlap(holds: &[Hold]) -> Option<Vec<&Hold>> {
    let mut at_once: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
    for hold in holds {
        let together = at_once.entry(&hold.key).or_default();
        together.retain(|before| hold.from <= before.to);
        together.push(hold);
        let kinds: Vec<Kind> = together.iter().map(|hold| hold.kind).collect();
        if !Kind::go_together(&kinds) {
            return at_once.remove(hold.key.as_str());
        }
    }
    None
}

/// The most that held a key at once.
pub fn most_at_once(holds: &[Hold], key: &str) -> usize {
    let of_key = || holds.iter().filter(|hold| hold.key == key);
    let at = |time: u64| of_key().filter(|hold| (hold.from..=hold.to).contains(&time)).count();
    of_key().map(|hold| at(hold.from)).max().unwrap_or_default()
}

/// Fails when holds of a key overlap that must not, and returns all holds.
pub fn assert_no_overlap(log: &Path, until: Until) -> Vec<Hold> {
    let text = std::fs::read_to_string(log).unwrap();
    let holds = holds(&text, until);
    if let Some(together) = overlap(&holds) {
        let (first, last) = (together.iter().map(|hold| hold.to).min().unwrap(), together[together.len() - 1]);
        panic!(
            "{} held `{}` at once for {:?}: {together:#?}",
            together.len(),
            last.key,
            Duration::from_nanos(first.min(last.to) - last.from)
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
        assert!(!found("1 start a x k\n5 end a x k\n6 start b x k\n9 end b x k\n", Until::Dropped));
    }

    #[test]
    fn a_start_before_the_end_of_another_is_an_overlap() {
        assert!(found("1 start a x k\n6 start b x k\n7 end a x k\n9 end b x k\n", Until::Dropped));
    }

    #[test]
    fn an_overlap_is_found_whatever_the_order_of_the_lines() {
        assert!(found("6 start b x k\n9 end b x k\n1 start a x k\n7 end a x k\n", Until::Dropped));
    }

    #[test]
    fn an_overlap_is_found_past_a_short_hold_in_between() {
        assert!(found("1 start a x k\n2 start b x j\n3 end b x j\n4 start c x k\n9 end a x k\n", Until::Dropped));
    }

    #[test]
    fn different_keys_may_be_held_at_once() {
        assert!(!found("1 start a x k\n2 start b x j\n3 end a x k\n4 end b x j\n", Until::Dropped));
    }

    #[test]
    fn readers_go_together_and_not_with_anybody_else() {
        let two = |one: &str, other: &str| {
            found(
                &format!("1 start a {one} k\n2 start b {other} k\n3 end a {one} k\n4 end b {other} k\n"),
                Until::Dropped,
            )
        };
        assert!(!two("r", "r"));
        for (one, other) in [("r", "x"), ("x", "r"), ("r", "p9"), ("p9", "r"), ("p9", "x"), ("x", "p9")] {
            assert!(two(one, other), "{one} and {other}");
        }
    }

    #[test]
    fn a_writer_between_readers_is_an_overlap_with_each_that_goes_on() {
        assert!(found(
            "1 start a r k\n2 start b r k\n3 end b r k\n4 start c x k\n5 end c x k\n6 end a r k\n",
            Until::Dropped
        ));
        assert!(!found("1 start a r k\n2 start b r k\n3 end b r k\n4 end a r k\n5 start c x k\n", Until::Dropped));
    }

    #[test]
    fn of_those_with_permits_the_smallest_number_may_hold() {
        let three = |second: &str| {
            format!(
                "1 start a p3 k\n2 start b {second} k\n3 start c p3 k\n4 end a p3 k\n5 end b {second} k\n6 end c p3 k\n"
            )
        };
        assert!(!found(&three("p3"), Until::Dropped));
        assert!(found(&three("p2"), Until::Dropped));
        assert_eq!(most_at_once(&holds(&three("p3"), Until::Dropped), "k"), 3);
        let log = "1 start a p2 k\n2 start b p2 k\n3 end a p2 k\n4 start c p2 k\n5 end b p2 k\n6 end c p2 k\n";
        assert!(!found(log, Until::Dropped));
    }

    #[test]
    fn a_step_after_anothers_start_is_an_overlap_for_stopped_processes_too() {
        assert!(found("1 start a x k\n6 start b x k\n7 step a x k\n", Until::LastStep));
    }

    #[test]
    fn a_stopped_process_may_drop_its_body_late_but_only_where_the_test_says_so() {
        let log = "1 start a x k\n2 step a x k\n6 start b x k\n7 end a x k\n";
        assert!(!found(log, Until::LastStep));
        assert!(found(log, Until::Dropped));
    }

    #[test]
    fn a_killed_process_holds_until_its_last_line() {
        assert!(!found("1 start a x k\n2 step a x k\n6 start b x k\n", Until::Dropped));
        assert!(found("1 start a x k\n7 step a x k\n6 start b x k\n", Until::Dropped));
    }

    #[test]
    fn a_step_interrupted_between_the_look_at_the_lease_and_the_act_does_not_count() {
        let log = "1 start a x k\n6 start b x k\n7 interrupted a x k\n";
        assert!(!found(log, Until::LastStep));
        assert_eq!(holds(log, Until::LastStep)[0].interrupted, 1);
        assert!(!found("1 start a x k\n2 interrupted b x k\n3 step a x k\n4 end b x k\n", Until::LastStep));
    }
}
