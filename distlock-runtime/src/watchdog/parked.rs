use std::sync::Arc;

use super::reclaim::Reclaim;
use super::schedule::Due;
use super::thread::Shared;
use crate::backend::{CLAIM, Kind};
use crate::clock::Time;
use crate::hold::Hold;

/// A lock that is held for the next caller of this process. If nobody takes it in time, or this is dropped, its key is
/// freed: a caller whose runtime is blocked must not keep the lock from everybody else.
pub(crate) struct Parked {
    shared: Arc<Shared>,
    hold: Arc<Hold>,
    due: Due,
}

impl Parked {
    pub(super) fn new(shared: &Arc<Shared>, hold: &Arc<Hold>) -> Option<Parked> {
        let at = Time::now().saturating_add(CLAIM);
        let mut state = shared.lock();
        let due = state.schedule.reclaim(Reclaim::held(hold.clone()), at).ok()?;
        let early = state.wakes_by(at);
        drop(state);
        if early {
            shared.wake.notify_one();
        }
        Some(Parked { shared: shared.clone(), hold: hold.clone(), due })
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// Takes the lock over, unless it was freed meanwhile.
    pub(crate) fn take(self) -> bool {
        self.shared.lock().schedule.take_back(self.due).is_some()
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let parked = self.shared.lock().schedule.take_back(self.due);
        if let Some(reclaim) = parked {
            self.shared.reclaim(reclaim);
        }
    }
}

/// A place in the line for the next caller of this process. If this is dropped, the place is given up.
pub(crate) struct Left {
    shared: Arc<Shared>,
    hold: Option<Arc<Hold>>,
}

impl Left {
    pub(super) fn new(shared: &Arc<Shared>, hold: &Arc<Hold>) -> Left {
        Left { shared: shared.clone(), hold: Some(hold.clone()) }
    }

    pub(crate) fn kind(&self) -> Option<Kind> {
        self.hold.as_ref().map(|hold| hold.terms.kind)
    }

    /// Takes the place over from the one who had it.
    pub(crate) fn take(mut self) -> Option<Arc<Hold>> {
        self.hold.take()
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            self.shared.reclaim(Reclaim::held(hold));
        }
    }
}
