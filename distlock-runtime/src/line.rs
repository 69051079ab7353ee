use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::OwnedMutexGuard;

use crate::backend::{BackendError, PATIENCE};
use crate::claim::Refusal;
use crate::clock::Time;
use crate::hold::Hold;
use crate::lease::Progress;
use crate::passage::Passage;
use crate::watchdog::{Left, Parked};

/// The lines of this process, one for each key that callers wait for: only the first of each stands in the server's line,
/// for all of them.
///
/// Each Tokio runtime has lines of its own: one that is blocked must not keep the callers of others waiting.
#[derive(Default)]
pub(crate) struct Lines {
    by_name: Mutex<HashMap<Name, Weak<Line>>>,
}

type Name = (Option<runtime::Id>, String);

/// The callers of this process that wait for one key, and the one that they wait for.
pub(crate) struct Line {
    lines: Arc<Lines>,
    name: Name,
    /// Who shares the lock passes this together with others who do, and alone who does not, in the order in which they came.
    gate: Arc<tokio::sync::RwLock<()>>,
    seat: Arc<tokio::sync::Mutex<Option<Competitor>>>,
    /// Whether those who share the lock may try for it before they take the seat: nothing is known to be in their way.
    open: AtomicBool,
    /// How many have come so far.
    arrivals: AtomicU64,
    /// The last reader that got a share by the line, and how many had come by then: those may join it.
    companion: Mutex<Option<(Arc<str>, u64)>>,
    waiting: AtomicUsize,
    /// By when the one who has the seat has to do something, on the monotonic clock in nanoseconds. Whoever lets that pass
    /// is not being polled, and is not waited for.
    due: AtomicU64,
    seen: Mutex<Seen>,
}

/// What a caller leaves to the next one of its process.
pub(crate) enum Competitor {
    /// A place in the server's line.
    Waiting(Left),
    /// The lock.
    Holding(Tenure),
}

/// A lock that goes from caller to caller within a process, without a word to the server.
pub(crate) struct Tenure {
    pub(crate) parked: Parked,
    pub(crate) progress: Progress,
    pub(crate) turns: Turns,
}

/// What is left of a tenure for later callers.
#[derive(Clone, Copy)]
pub(crate) struct Turns {
    /// By when the lock goes back to the server, where others may wait.
    pub(crate) until: Time,
    pub(crate) left: u32,
    /// The last fencing token that was minted for this tenure; 0 if there are none.
    pub(crate) last_fence: u64,
}

/// Who has the lock, for those who ask in vain.
#[derive(Default)]
enum Seen {
    #[default]
    Nobody,
    Ours(Weak<Hold>),
    Other {
        holder: String,
        until: Time,
    },
    /// The server could not be asked.
    Failed(String),
}

impl Lines {
    /// Takes a place behind those who are there.
    pub(crate) fn join(self: &Arc<Self>, key: &str) -> Ticket {
        let name = (Handle::try_current().ok().map(|runtime| runtime.id()), key.to_owned());
        let mut lines = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lines.get(&name).and_then(Weak::upgrade);
        let line = known.unwrap_or_else(|| {
            let line = Arc::new(Line::new(self.clone(), name.clone()));
            lines.insert(name, Arc::downgrade(&line));
            line
        });
        drop(lines);
        line.waiting.fetch_add(1, Ordering::Relaxed);
        let number = line.arrivals.fetch_add(1, Ordering::Relaxed) + 1;
        Ticket { line, number }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut lines = self.lines.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have begun a new one.
        if lines.get(&self.name).is_some_and(|line| line.strong_count() == 0) {
            lines.remove(&self.name);
        }
    }
}

impl Line {
    fn new(lines: Arc<Lines>, name: Name) -> Line {
        Line {
            lines,
            name,
            gate: Arc::default(),
            seat: Arc::default(),
            open: AtomicBool::new(true),
            arrivals: AtomicU64::new(0),
            companion: Mutex::default(),
            waiting: AtomicUsize::new(0),
            due: AtomicU64::new(u64::MAX),
            seen: Mutex::default(),
        }
    }

    /// How many wait behind the one who stands in the server's line or has the lock.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// A reader has got its share by the line, and with it all readers of this process that have come by now.
    pub(crate) fn opened_by(&self, reader: &str) {
        let companion = Some((reader.into(), self.arrivals.load(Ordering::Relaxed)));
        *self.companion.lock().unwrap_or_else(PoisonError::into_inner) = companion;
        self.set_open(true);
    }

    /// One that came with it has joined it, and lasts longer perhaps.
    pub(crate) fn joined_by(&self, reader: &str) {
        if let Some((companion, _)) = &mut *self.companion.lock().unwrap_or_else(PoisonError::into_inner) {
            *companion = reader.into();
        }
    }

    /// The reader that got its share for the caller of this number, too.
    pub(crate) fn companion(&self, number: u64) -> Option<Arc<str>> {
        let companion = self.companion.lock().unwrap_or_else(PoisonError::into_inner);
        companion.as_ref().filter(|(_, arrived)| number <= *arrived).map(|(reader, _)| reader.clone())
    }

    pub(crate) fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Relaxed);
    }

    /// Whether the one who has the seat has not done in time what it had to.
    pub(crate) fn is_stuck(&self) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        // What it holds may be gone by now, and it does not know or does not care.
        let lost = due == u64::MAX
            && matches!(&*self.seen(), Seen::Ours(hold)
                if hold.upgrade().is_some_and(|hold| hold.lost_for() > PATIENCE));
        lost || Time::now().as_nanos() > due
    }

    /// The one who has the seat will do something within this time.
    pub(crate) fn expect_within(&self, time: Duration) {
        self.due.store(Time::now().saturating_add(time).as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn held_by_us(&self, hold: &Arc<Hold>) {
        // A body may take its time.
        self.due.store(u64::MAX, Ordering::Relaxed);
        *self.seen() = Seen::Ours(Arc::downgrade(hold));
    }

    /// Whether the last who had the lock, as far as is known, was of this process.
    pub(crate) fn was_ours(&self) -> bool {
        matches!(&*self.seen(), Seen::Ours(_))
    }

    pub(crate) fn refused(&self, refusal: &Refusal) {
        *self.seen() = match refusal {
            Refusal::Held { holder, remaining, .. } => {
                Seen::Other { holder: holder.clone(), until: Time::now().saturating_add(*remaining) }
            }
            Refusal::Failed(error) => Seen::Failed(error.to_string()),
            Refusal::Late => return,
        };
    }

    /// Why one who waited here did not come to ask by itself, as far as the line has heard.
    pub(crate) fn refusal(&self, owner: &str) -> Option<Refusal> {
        let (holder, remaining) = match &*self.seen() {
            Seen::Nobody => return None,
            Seen::Ours(hold) => (owner.to_owned(), hold.upgrade().map(|hold| hold.remaining()).unwrap_or_default()),
            Seen::Other { holder, until } => (holder.clone(), until.saturating_since(Time::now())),
            Seen::Failed(text) => return Some(Refusal::Failed(BackendError::passing(text.clone()))),
        };
        Some(Refusal::Held { holder, remaining, first: false })
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in this process's line.
pub(crate) struct Ticket {
    line: Arc<Line>,
    number: u64,
}

impl Ticket {
    pub(crate) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// The place of this in the order in which callers came.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns when nobody who came before has to be waited for. Those who share the lock do not wait for each other.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, the place is given up.
    pub(crate) async fn pass(self, shares: bool) -> Gate {
        let passed = Passage::in_turn(self.line.gate.clone(), shares).await;
        Gate { line: self.line.clone(), _passed: Arc::new(passed) }
    }
}

/// The way to the seat, which is open to this caller until this is dropped.
#[derive(Clone)]
pub(crate) struct Gate {
    line: Arc<Line>,
    _passed: Arc<Passage>,
}

impl Gate {
    /// Returns when it is this caller's turn to stand in the server's line, in the order in which the callers came.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, the place is given up.
    pub(crate) async fn seat(self) -> Seat {
        let competitor = self.line.seat.clone().lock_owned().await;
        self.line.expect_within(PATIENCE);
        Seat { competitor, gate: self }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.line.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The turn to compete for the lock, which lasts until this is dropped: then it is the next caller's.
///
/// What is left there for the next caller is given up if there is none: with its last caller the line itself goes.
pub(crate) struct Seat {
    competitor: OwnedMutexGuard<Option<Competitor>>,
    gate: Gate,
}

impl Seat {
    pub(crate) fn line(&self) -> &Arc<Line> {
        &self.gate.line
    }

    /// What the caller before has left.
    pub(crate) fn take(&mut self) -> Option<Competitor> {
        self.competitor.take()
    }

    pub(crate) fn leave(mut self, competitor: Competitor) {
        *self.competitor = Some(competitor);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // The next one has to take it.
        self.line().expect_within(PATIENCE);
    }
}
