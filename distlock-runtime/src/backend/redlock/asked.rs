use std::sync::Arc;
use std::time::Duration;

use crate::backend::{BackendError, Entry, Fencing, Released, Renewed};
use crate::clock::Time;
use crate::hold::Hold;
use crate::traces::Traces;

/// An entry that outlives the call that asks for it, since servers may answer after a majority has; and where it may stand.
pub(super) struct Asked {
    key: String,
    value: String,
    ttl: Duration,
    pub(super) timeout: Duration,
    /// When all of it must be over.
    until: Time,
    fencing: Option<Fencing>,
    hold: Option<Arc<Hold>>,
}

impl Asked {
    /// With the time that one server has for its answer, which is far below the ttl: one that is frozen must not take up
    /// what is left of a lease.
    pub(super) fn new(entry: &Entry<'_>) -> Asked {
        let timeout = entry.timeout.min((entry.ttl / 10).max(Duration::from_millis(50)));
        Asked { timeout, ..Asked::patiently(entry) }
    }

    /// With all the time that a command may take, for where one server keeps nobody waiting for the others.
    fn patiently(entry: &Entry<'_>) -> Asked {
        let (key, value) = (entry.key.to_owned(), entry.value.to_owned());
        let Entry { ttl, timeout, fencing, .. } = *entry;
        let until = Time::now().saturating_add(timeout);
        Asked { key, value, ttl, timeout, until, fencing, hold: entry.hold.cloned() }
    }

    pub(super) fn all(entries: &[Entry<'_>]) -> Arc<[Asked]> {
        entries.iter().map(Asked::new).collect()
    }

    pub(super) fn all_patiently(entries: &[Entry<'_>]) -> Arc<[Asked]> {
        entries.iter().map(Asked::patiently).collect()
    }

    pub(super) fn entry(&self) -> Entry<'_> {
        Entry { fencing: self.fencing, marked: false, ..Entry::new(&self.key, &self.value, self.ttl, self.timeout) }
    }

    /// The same with what is left of the time that a command may take, for a server that is asked after others.
    pub(super) fn entry_in_time(&self) -> Entry<'_> {
        let entry = self.entry();
        Entry { timeout: entry.timeout.min(self.until.saturating_since(Time::now())), ..entry }
    }

    fn traces(&self) -> Option<&Traces> {
        self.hold.as_ref().and_then(|hold| hold.traces()).map(|traces| &**traces)
    }

    /// Whether the value stands there or may come to stand there.
    pub(super) fn may_stand(&self, place: usize) -> bool {
        self.traces().is_none_or(|traces| traces.may_stand(place))
    }

    /// Whether the value stands nowhere any more, if that can be known.
    pub(super) fn is_free(&self) -> bool {
        self.traces().is_none_or(Traces::is_free)
    }

    /// The value is about to be set there. Nothing may be sent if this says no, since it is being taken back.
    #[must_use = "nothing may be sent if this says no"]
    pub(super) fn goes_to(&self, place: usize) -> bool {
        self.traces().is_none_or(|traces| traces.asks(place))
    }

    /// The same for a request that is repeated.
    #[must_use = "nothing may be sent if this says no"]
    pub(super) fn goes_again_to(&self, place: usize) -> bool {
        self.traces().is_none_or(|traces| traces.asks_again(place))
    }

    /// What was about to be sent was not.
    pub(super) fn stays_here(&self, place: usize) {
        if let Some(traces) = self.traces() {
            traces.free(place);
        }
    }

    /// The value is about to be taken back, and so nobody sets it anywhere any more.
    pub(super) fn close(&self) {
        if let Some(traces) = self.traces() {
            traces.close();
        }
    }

    /// Whether this is a lock that is held, and that certainly does not stand there.
    pub(super) fn lacks(&self, place: usize) -> bool {
        let held = self.hold.as_ref().is_some_and(|hold| hold.remaining() > Duration::ZERO);
        held && self.traces().is_some_and(|traces| !traces.may_stand(place))
    }

    /// Notes what came of an attempt to set the value.
    pub(super) fn was_tried(&self, place: usize, granted: Result<bool, &BackendError>) {
        match (self.traces(), granted) {
            (Some(traces), Ok(true)) => traces.granted(place),
            (Some(_), Err(error)) if error.is_unanswered() => {}
            (Some(traces), _) => traces.free(place),
            (None, _) => {}
        }
    }

    pub(super) fn was_released(&self, place: usize, answer: &Result<Released, BackendError>) {
        match (self.traces(), answer) {
            (Some(traces), Ok(Released::Freed)) => traces.free(place),
            (Some(traces), Ok(Released::Left | Released::NotHeld)) => traces.absent(place),
            _ => {}
        }
    }

    pub(super) fn was_renewed(&self, place: usize, answer: &Result<Renewed, BackendError>) {
        if let (Some(traces), Ok(Renewed::NotHeld)) = (self.traces(), answer) {
            traces.absent(place);
        }
    }
}

/// Sees to it that nothing is left of entries that are to be freed: what is still there when this is dropped, or may come to
/// be, is the watchdog's to free.
pub(super) struct Sweep(Option<Arc<[Asked]>>);

impl Sweep {
    pub(super) fn of(asked: &Arc<[Asked]>) -> Sweep {
        Sweep(Some(asked.clone()))
    }

    /// Leaves it to the caller.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        for hold in self.0.iter().flat_map(|asked| asked.iter()).filter_map(|asked| asked.hold.as_ref()) {
            if let Some(traces) = hold.traces() {
                traces.sweep(hold);
            }
        }
    }
}
