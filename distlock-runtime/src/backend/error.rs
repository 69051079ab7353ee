use std::error::Error;
use std::fmt;

/// Why a backend gave no answer about a lock.
///
/// The kind decides what follows. After [`unanswered`](Self::unanswered) the request may have been carried out, so it is
/// undone; after all but [`lasting`](Self::lasting) and [`foreign`](Self::foreign) it may be tried again.
#[derive(Debug)]
pub struct BackendError {
    kind: Kind,
    text: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Interrupted,
    Unanswered,
    Passing,
    Lasting,
    Foreign,
}

impl BackendError {
    /// The request was or may have been sent, and there is no answer: a timeout, a broken connection.
    pub fn unanswered(text: impl Into<String>) -> BackendError {
        BackendError::new(Kind::Unanswered, text)
    }

    /// The connection was at its end, perhaps before the request was sent: an idle one, say, that the server had closed.
    /// Otherwise as [`unanswered`](Self::unanswered). An acquire is repeated at once, once in a call, without counting
    /// as another attempt.
    pub fn interrupted(text: impl Into<String>) -> BackendError {
        BackendError::new(Kind::Interrupted, text)
    }

    /// The request was certainly not carried out, for a reason that passes: refused connection, server busy or loading.
    pub fn passing(text: impl Into<String>) -> BackendError {
        BackendError::new(Kind::Passing, text)
    }

    /// The request was not carried out, for a reason that stays until somebody mends it: wrong password, missing right.
    pub fn lasting(text: impl Into<String>) -> BackendError {
        BackendError::new(Kind::Lasting, text)
    }

    /// The key is in use for something that is no lock, as `found` describes.
    pub fn foreign(found: impl Into<String>) -> BackendError {
        BackendError::new(Kind::Foreign, found)
    }

    /// Adds the error of another library that this one comes from.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> BackendError {
        self.source = Some(source.into());
        self
    }

    fn new(kind: Kind, text: impl Into<String>) -> BackendError {
        BackendError { kind, text: text.into(), source: None }
    }

    /// The same error once more, for another lock that was asked for together with the first.
    pub(crate) fn copy(&self) -> BackendError {
        BackendError::new(self.kind, self.text.clone())
    }

    /// Whether the request may have been carried out all the same.
    pub fn is_unanswered(&self) -> bool {
        matches!(self.kind, Kind::Unanswered | Kind::Interrupted)
    }

    /// Whether the connection was at its end.
    pub fn is_interrupted(&self) -> bool {
        self.kind == Kind::Interrupted
    }

    /// Whether the same request may succeed later, with nothing mended in between.
    pub fn is_passing(&self) -> bool {
        matches!(self.kind, Kind::Interrupted | Kind::Unanswered | Kind::Passing)
    }

    /// Whether the key is in use for something that is no lock.
    pub fn is_foreign(&self) -> bool {
        self.kind == Kind::Foreign
    }

    /// The same, where it is known that the request was not carried out.
    pub(crate) fn nothing_done(mut self) -> BackendError {
        if self.is_unanswered() {
            self.kind = Kind::Passing;
        }
        self
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
