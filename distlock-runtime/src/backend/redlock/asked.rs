use std::sync::Arc;
use std::time::Duration;

use crate::backend::{BackendError, Entry, Fencing, Released, Renewed};
use crate::hold::Hold;
use crate::traces::Traces;

/// An entry that outlives the call that asks for it, since servers may answer after a majority has; and where it may stand.
pub(super) struct Asked {
    key: String,
    value: String,
    ttl: Duration,
    pub(super) timeout: Duration,
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
        Asked { key, value, ttl: entry.ttl, timeout: entry.timeout, fencing: entry.fencing, hold: entry.hold.cloned() }
    }

    pub(super) fn all(entries: &[Entry<'_>]) -> Arc<[Asked]> {
        entries.iter().map(Asked::new).collect()
    }

    pub(super) fn all_patiently(entries: &[Entry<'_>]) -> Arc<[Asked]> {
        entries.iter().map(Asked::patiently).collect()
    }

    pub(super) fn entry(&self) -> Entry<'_> {
        Entry { fencing: self.fencing, ..Entry::new(&self.key, &self.value, self.ttl, self.timeout) }
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

    /// The value is about to be set there.
    pub(super) fn goes_to(&self, place: usize) {
        if let Some(traces) = self.traces() {
            traces.asked(place);
        }
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
            (Some(traces), Ok(Released::NotHeld)) => traces.absent(place),
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
