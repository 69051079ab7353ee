use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::hold::Hold;
use crate::watchdog::Sweeper;

/// Where a value may stand, of a lock that is kept in several places: a bit for each place.
///
/// Since a value is never used again after an attempt that failed, at most one request in each place ever sets it. So once
/// it was deleted there, nothing can come any more.
pub(crate) struct Traces {
    /// Where it stands, or may come to stand.
    stands: AtomicU64,
    /// Where the request to set it has had no answer.
    awaited: AtomicU64,
    /// Whether the watchdog has been told to free what is left.
    told: AtomicBool,
    sweeper: Sweeper,
}

impl Traces {
    pub(crate) fn new(sweeper: Sweeper) -> Traces {
        Traces { stands: AtomicU64::new(0), awaited: AtomicU64::new(0), told: AtomicBool::new(false), sweeper }
    }

    /// Those of another value in the same places.
    pub(crate) fn afresh(&self) -> Traces {
        Traces::new(self.sweeper.clone())
    }

    /// A request to set the value is about to be sent.
    pub(crate) fn asked(&self, place: usize) {
        self.awaited.fetch_or(bit(place), Ordering::AcqRel);
        self.stands.fetch_or(bit(place), Ordering::AcqRel);
    }

    pub(crate) fn granted(&self, place: usize) {
        self.awaited.fetch_and(!bit(place), Ordering::AcqRel);
    }

    /// It is certain that the value does not stand there, and that nothing will set it.
    pub(crate) fn free(&self, place: usize) {
        self.awaited.fetch_and(!bit(place), Ordering::AcqRel);
        self.stands.fetch_and(!bit(place), Ordering::AcqRel);
    }

    /// The value does not stand there now.
    pub(crate) fn absent(&self, place: usize) {
        if self.awaited.load(Ordering::Acquire) & bit(place) == 0 {
            self.free(place);
        }
    }

    pub(crate) fn may_stand(&self, place: usize) -> bool {
        self.stands.load(Ordering::Acquire) & bit(place) != 0
    }

    pub(crate) fn is_free(&self) -> bool {
        self.stands.load(Ordering::Acquire) == 0
    }

    /// Has the watchdog free what is left, once.
    pub(crate) fn sweep(&self, hold: &Arc<Hold>) {
        if !self.is_free() && !self.told.swap(true, Ordering::AcqRel) {
            self.sweeper.sweep(hold);
        }
    }
}

fn bit(place: usize) -> u64 {
    u32::try_from(place).ok().and_then(|place| 1_u64.checked_shl(place)).unwrap_or(0)
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stands, awaited) = (self.stands.load(Ordering::Relaxed), self.awaited.load(Ordering::Relaxed));
        write!(f, "Traces {{ stands: {stands:b}, awaited: {awaited:b} }}")
    }
}
