//! Who waits for replicas over one connection. They do so together: of the `WAIT`s of a connection a server answers one after
//! another, each in a round trip to the replicas, so that many callers would use up their time behind one another.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::Cmd;

use crate::backend::BackendError;
use crate::backend::redis::scripts::Lua;

/// The callers whose grants are to be confirmed over one connection.
#[derive(Default)]
pub(in crate::backend::redis) struct Round {
    /// Who has it asks for all who wait by then. The others wait for it, and find their answer when they get it. So nobody
    /// depends on who asks: if that call is dropped, the next one asks for all anew.
    turn: tokio::sync::Mutex<()>,
    waiting: Mutex<Vec<Arc<Asker>>>,
}

/// What renews a lock, and by which script.
pub(super) type Renewal = (&'static Lua, Cmd);

/// One caller.
pub(super) struct Asker {
    pub(super) renewals: Vec<Renewal>,
    answer: Mutex<Option<Answer>>,
}

pub(super) type Answer = Result<(), BackendError>;

/// A caller's place in a round, until it is dropped.
pub(super) struct Place<'a> {
    round: &'a Round,
    asker: Arc<Asker>,
}

impl Round {
    pub(super) fn join(&self, renewals: Vec<Renewal>) -> Place<'_> {
        let asker = Arc::new(Asker { renewals, answer: Mutex::default() });
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(asker.clone());
        Place { round: self, asker }
    }

    /// All who wait, the caller included.
    pub(super) fn askers(&self) -> Vec<Arc<Asker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Asker {
    pub(super) fn settle(&self, answer: Answer) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }
}

impl Place<'_> {
    /// The right to ask, for as long as it is kept. Nothing if it does not come in time.
    pub(super) async fn turn(&self, time: Duration) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        tokio::time::timeout(time, self.round.turn.lock()).await.ok()
    }

    /// The answer, if somebody has asked.
    pub(super) fn answer(&self) -> Option<Answer> {
        self.asker.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.round.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|other| !Arc::ptr_eq(other, &self.asker));
    }
}
