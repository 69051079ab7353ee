use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use std::{fmt, io, thread};

use tracing::warn;

use super::contained;
use crate::{FencingToken, LockError, LostReason, Mode};

/// Something that happened to a lock, for the [`listener`](crate::LockManagerBuilder::listener) of a manager.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockEvent {
    /// The key as it was rendered.
    pub key: String,
    /// The annotated function, with its module; nothing for a call by hand.
    pub function: Option<&'static str>,
    /// Who else may hold the lock. A lock for writing is [`Mode::Exclusive`], and one with permits has no mode.
    pub mode: Option<Mode>,
    /// How many may hold the lock, if that is limited by permits.
    pub permits: Option<u32>,
    /// The token of the acquisition, as in the log.
    pub token: String,
    /// Which attempt this is, or how many there have been.
    pub attempt: u64,
    /// What happened.
    pub kind: LockEventKind,
    /// How many events before this one were left out, since the listener was too slow for them.
    pub missed: u64,
}

/// What happened to a lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LockEventKind {
    /// The lock was acquired.
    #[non_exhaustive]
    Acquired {
        /// How long that took, from when it was asked for.
        waited: Duration,
        /// The fencing token, if one was asked for.
        fencing_token: Option<FencingToken>,
    },
    /// An attempt was refused, since somebody else holds the lock.
    #[non_exhaustive]
    Refused {
        /// Who holds it.
        holder: String,
        /// After how long that lease ends if it is not renewed.
        remaining: Duration,
    },
    /// An attempt failed, or was granted too late to be of use.
    #[non_exhaustive]
    Failed {
        /// What went wrong.
        error: String,
    },
    /// The call gave up: its body does not run.
    #[non_exhaustive]
    GaveUp {
        /// What the call fails with.
        error: String,
        /// The same in a word: `busy`, `backend`, `shutting_down`.
        reason: &'static str,
        /// For how long it had tried.
        waited: Duration,
    },
    /// The call was dropped before it had its lock.
    #[non_exhaustive]
    Cancelled {
        /// For how long it had tried.
        waited: Duration,
    },
    /// The call passes under a lock that its task holds already.
    Passed,
    /// The lease was extended.
    #[non_exhaustive]
    Renewed {
        /// How much later than it was due.
        late: Duration,
    },
    /// A renewal had no answer that could be relied on. It is tried again until the lease ends.
    #[non_exhaustive]
    RenewalFailed {
        /// What went wrong.
        error: String,
        /// What is left of the lease.
        remaining: Duration,
    },
    /// The lock was lost.
    #[non_exhaustive]
    Lost {
        /// How that was noticed.
        reason: LostReason,
        /// For how long it had been held.
        held_for: Duration,
    },
    /// The call is over, or the guard is gone: the lock was released, passed on within the process, lost, or is being freed.
    #[non_exhaustive]
    Ended {
        /// For how long it was held.
        held_for: Duration,
    },
    /// A release had no answer. The watchdog goes on with it.
    #[non_exhaustive]
    ReleaseFailed {
        /// What went wrong.
        error: String,
    },
    /// The watchdog has freed what a call had left behind, or may have.
    #[non_exhaustive]
    Reclaimed {
        /// Whether there was something to free.
        freed: bool,
    },
    /// Something could not be freed, and is left to expire.
    LeftToExpire,
}

/// How many events wait for a listener at most.
const MOST_WAITING: usize = 4_096;

/// What an application does with an event.
pub(crate) type Hear = Box<dyn Fn(&LockEvent) + Send>;

/// The way to an application's listener. It has a thread of its own, which ends with the last of these.
pub(crate) struct Listener {
    events: SyncSender<LockEvent>,
    missed: AtomicU64,
}

impl Listener {
    pub(crate) fn start(hear: Hear) -> io::Result<Listener> {
        let (events, heard) = sync_channel(MOST_WAITING);
        thread::Builder::new().name("distlock-listener".to_owned()).spawn(move || listen(&hear, &heard))?;
        Ok(Listener { events, missed: AtomicU64::new(0) })
    }

    /// Passes an event on, unless too many wait already: no lock waits for a listener.
    pub(super) fn tell(&self, event: LockEvent) {
        let missed = self.missed.swap(0, Ordering::Relaxed);
        if let Err(TrySendError::Full(_)) = self.events.try_send(LockEvent { missed, ..event })
            && self.missed.fetch_add(missed + 1, Ordering::Relaxed) == 0
            && missed == 0
        {
            warn!(target: "distlock", "the listener is too slow, and misses events");
        }
    }
}

/// Between two looks at what has come in. Where events come one after the other, the calls that they come from need not wake this
/// thread each time, which would cost them up to a sixth of what a lock costs.
const BREATH: Duration = Duration::from_millis(2);

/// Until nobody is left who could tell of something.
fn listen(hear: &Hear, heard: &Receiver<LockEvent>) {
    let mut panicked = false;
    while let Ok(first) = heard.recv() {
        let mut next = Some(first);
        while let Some(event) = next {
            if let Err(panic) = contained(|| hear(&event))
                && !std::mem::replace(&mut panicked, true)
            {
                warn!(target: "distlock", panic, "the listener panicked; it hears of the next event all the same");
            }
            next = heard.try_recv().ok().or_else(|| {
                thread::sleep(BREATH);
                heard.try_recv().ok()
            });
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

impl LockError {
    /// The kind of error in a word, for a label.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            LockError::Busy { .. } => "busy",
            LockError::Lost { .. } => "lost",
            LockError::WouldDeadlock { .. } => "would_deadlock",
            LockError::UpgradeNotSupported { .. } => "upgrade_not_supported",
            LockError::InvalidKey { .. } => "invalid_key",
            LockError::InvalidOption { .. } => "invalid_option",
            LockError::ForeignValue { .. } => "foreign_value",
            LockError::Backend { .. } => "backend",
            LockError::NotInstalled => "not_installed",
            LockError::AlreadyInstalled => "already_installed",
            LockError::ShuttingDown => "shutting_down",
        }
    }
}
