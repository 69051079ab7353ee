//! Who is told what happens to locks.

use std::fmt;

use super::LockManagerBuilder;
use crate::LockError;
use crate::backend::BackendError;
use crate::events::{Hear, Listener, LockEvent};

/// What an application wants to be told, and how.
#[derive(Default)]
pub(super) struct Observing {
    listener: Option<Hear>,
    pub(super) keys_in_spans: bool,
}

impl LockManagerBuilder {
    /// Has `listener` called with all that happens to locks, for an application that wants neither logs nor metrics for it, or more
    /// than these.
    ///
    /// It is called on a thread of its own, one event after the other. So no lock waits for it, whatever it does: while it is
    /// slow, up to 4,096 events wait, and what comes then is left out and counted ([`LockEvent::missed`]). If it panics, that is
    /// one warning, and it hears of the next event.
    ///
    /// # Examples
    ///
    /// ```
    /// use distlock::{LockEventKind, LockManager};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
    /// let builder = LockManager::builder().url("memory://").listener(|event| {
    ///     if let LockEventKind::Lost { reason, .. } = &event.kind {
    ///         eprintln!("{} lost `{}`: {reason}", event.function.unwrap_or("somebody"), event.key);
    ///     }
    /// });
    /// # builder.build().await?; Ok(()) }
    /// ```
    pub fn listener(mut self, listener: impl Fn(&LockEvent) + Send + 'static) -> Self {
        self.observing.listener = Some(Box::new(listener));
        self
    }

    /// Sets whether the span of a call carries the key: `false` unless set. Keys are made of arguments, which may be nobody's
    /// business where traces go. Events carry the key in any case.
    pub fn keys_in_spans(mut self, keys_in_spans: bool) -> Self {
        self.observing.keys_in_spans = keys_in_spans;
        self
    }
}

impl Observing {
    pub(super) fn start(&mut self) -> Result<Option<Listener>, LockError> {
        let started = self.listener.take().map(Listener::start).transpose();
        started.map_err(|error| LockError::Backend {
            operation: "start the listener's thread".to_owned(),
            attempts: 1,
            source: BackendError::lasting(error.to_string()),
        })
    }
}

impl fmt::Debug for Observing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listener = self.listener.is_some();
        f.debug_struct("Observing").field("listener", &listener).field("keys_in_spans", &self.keys_in_spans).finish()
    }
}
