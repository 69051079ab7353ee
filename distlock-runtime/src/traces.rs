use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::hold::Hold;
use crate::watchdog::Sweeper;

/// Where a value may stand, of a lock that is kept in several places: a bit for each place.
///
/// At most one request at a time sets it in each place, apart from one that is repeated since its connection was at its end,
/// and none does once it is being taken back. So once it was deleted there, nothing can come any more.
pub(crate) struct Traces {
    /// Where it stands, or may come to stand.
    stands: AtomicU64,
    /// Where the request to set it has had no answer.
    awaited: AtomicU64,
    /// Where two requests were sent, since the first one's connection was at its end: of one of them nothing is known yet.
    doubtful: AtomicU64,
    /// Where the watchdog has been told to free what is left.
    told: AtomicU64,
    /// Whether the value is being taken back, so that nobody sets it anywhere any more.
    closed: AtomicBool,
    sweeper: Sweeper,
}

impl Traces {
    pub(crate) fn new(sweeper: Sweeper) -> Traces {
        let none = || AtomicU64::new(0);
        let (stands, awaited, doubtful, told) = (none(), none(), none(), none());
        Traces { stands, awaited, doubtful, told, closed: AtomicBool::new(false), sweeper }
    }

    /// Those of another value in the same places.
    pub(crate) fn afresh(&self) -> Traces {
        Traces::new(self.sweeper.clone())
    }

    /// A request to set the value is about to be sent. Not if it is being taken back: whoever does that has noted so before
    /// they looked where it may stand, and so either they see this place or the request is not sent.
    #[must_use = "nothing may be sent if this says no"]
    pub(crate) fn asks(&self, place: usize) -> bool {
        self.told.fetch_and(!bit(place), Ordering::SeqCst);
        self.awaited.fetch_or(bit(place), Ordering::SeqCst);
        self.stands.fetch_or(bit(place), Ordering::SeqCst);
        let open = !self.closed.load(Ordering::SeqCst);
        if !open {
            self.free(place);
        }
        open
    }

    /// The request is about to be sent once more. Not if the value is being taken back.
    #[must_use = "nothing may be sent if this says no"]
    pub(crate) fn asks_again(&self, place: usize) -> bool {
        self.doubtful.fetch_or(bit(place), Ordering::SeqCst);
        let open = !self.closed.load(Ordering::SeqCst);
        if !open {
            self.doubtful.fetch_and(!bit(place), Ordering::SeqCst);
        }
        open
    }

    /// From now on nobody begins to set the value anywhere.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn granted(&self, place: usize) {
        if self.doubtful.load(Ordering::SeqCst) & bit(place) == 0 {
            self.awaited.fetch_and(!bit(place), Ordering::SeqCst);
        }
    }

    /// It is certain that the value does not stand there, and that nothing will set it; or, where two requests were sent,
    /// that one of them will not.
    pub(crate) fn free(&self, place: usize) {
        if self.doubtful.fetch_and(!bit(place), Ordering::SeqCst) & bit(place) == 0 {
            self.awaited.fetch_and(!bit(place), Ordering::SeqCst);
            self.stands.fetch_and(!bit(place), Ordering::SeqCst);
        }
    }

    /// The value does not stand there now.
    pub(crate) fn absent(&self, place: usize) {
        if self.awaited.load(Ordering::SeqCst) & bit(place) == 0 {
            self.free(place);
        }
    }

    pub(crate) fn may_stand(&self, place: usize) -> bool {
        self.stands.load(Ordering::SeqCst) & bit(place) != 0
    }

    pub(crate) fn is_free(&self) -> bool {
        self.stands.load(Ordering::SeqCst) == 0
    }

    /// Has the watchdog free what is left, once for each place.
    pub(crate) fn sweep(&self, hold: &Arc<Hold>) {
        let left = self.stands.load(Ordering::SeqCst);
        if left & !self.told.fetch_or(left, Ordering::SeqCst) != 0 {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Traces;
    use crate::backend::MemoryBackend;
    use crate::watchdog::Watchdog;

    fn traces() -> Traces {
        Traces::new(Watchdog::start(Arc::new(MemoryBackend::new())).sweeper())
    }

    #[test]
    fn nothing_is_set_once_it_is_taken_back() {
        let traces = traces();
        assert!(traces.asks(0));
        traces.close();
        assert!(!traces.asks(1) && !traces.asks_again(0));
        assert!(traces.may_stand(0) && !traces.may_stand(1));
        traces.absent(0);
        assert!(traces.may_stand(0), "its request may still come");
        traces.granted(0);
        traces.absent(0);
        assert!(traces.is_free());
    }

    #[test]
    fn of_two_requests_one_may_come_after_the_other() {
        let traces = traces();
        assert!(traces.asks(3) && traces.asks_again(3));
        traces.granted(3);
        traces.free(3);
        traces.absent(3);
        assert!(traces.may_stand(3), "one of them was freed, and the other may come");
        traces.free(3);
        assert!(traces.is_free());
    }
}
