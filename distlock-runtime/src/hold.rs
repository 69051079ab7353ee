mod asking;
mod group;
mod state;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::Notify;
use uuid::Uuid;

use self::state::{ENDED, State, is_deadline, mark, reason};
use crate::backend::Kind;
use crate::clock::Time;
use crate::events::Audience;
use crate::key::Key;
use crate::options::Terms;
use crate::traces::Traces;
use crate::{FencingToken, LockError, LostReason, events};

/// One acquisition of one lock, from its first attempt to its end: what the guard, the lease handles, the body's future
/// and the watchdog share.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) key: Key,
    /// The acquisition's own `<token>/<owner>`, with a slash behind it if it does not wait. The token is fresh for each, so
    /// nothing that is late can touch a later one.
    value: String,
    /// What stands under the key on the server in place of our own value, if another caller of this process stood in the
    /// line before us, or had the lock and passed it on without giving it up.
    inherited: OnceLock<Inherited>,
    /// Where the value may stand, if the backend keeps locks in several places.
    traces: Option<Arc<Traces>>,
    /// What was granted in the end, if later attempts of the call had holds of their own. Handles that were made before the
    /// first attempt go by that.
    granted: OnceLock<Arc<Hold>>,
    /// The lock under which this one passes, which the calling task holds already.
    outer: OnceLock<Arc<Hold>>,
    /// Who of the calls that pass under this one has its turn.
    inner: OnceLock<Arc<tokio::sync::RwLock<()>>>,
    /// The calls that pass under this one, to be woken when it ends: they may be polled elsewhere by then.
    nested: Mutex<Vec<Weak<Hold>>>,
    /// Whether a nested call has got a token above those that were minted for later callers of this process.
    outdone: AtomicBool,
    /// The other locks that were asked for together with this one.
    others: OnceLock<Box<[Arc<Hold>]>>,
    /// Whether others may be held back for this one: an attempt was refused by those who share the lock, or had no answer.
    marked: AtomicBool,
    /// The manager's name in the line of those who wait, if this may stand there.
    waiter: Option<Arc<str>>,
    /// The fencing token; 0 for none.
    fence: AtomicU64,
    pub(crate) terms: Terms,
    pub(crate) audience: Audience,
    /// When the lock was asked for, where somebody is told how long that took.
    asked: Time,
    state: State,
    /// How often the lock was tried; from the grant on, the attempt that brought it.
    attempt: AtomicU64,
    /// Whether the server has not answered for the lock since it last did: an outage is worth one warning, not one for
    /// each try.
    unanswered: AtomicBool,
    acquired: AtomicU64,
    lost_at: AtomicU64,
    /// Where the watchdog has this hold in its schedule; 0 for nowhere. Written under the schedule's lock alone.
    pub(crate) due: AtomicU64,
    body: Mutex<Option<Waker>>,
    lost: Notify,
}

/// What a caller has taken over from another one of its process.
#[derive(Debug)]
struct Inherited {
    value: Arc<str>,
    traces: Option<Arc<Traces>>,
}

impl Hold {
    pub(crate) fn new(
        key: Key,
        owner: &str,
        terms: Terms,
        audience: Audience,
        waiter: Option<Arc<str>>,
        traces: Option<Arc<Traces>>,
    ) -> Hold {
        let mut value = String::with_capacity(38 + owner.len());
        value.push_str(Uuid::new_v4().hyphenated().encode_lower(&mut Uuid::encode_buffer()));
        value.push('/');
        value.push_str(owner);
        if looks_for_waiters(&terms) {
            value.push('/');
        }
        Hold {
            key,
            value,
            inherited: OnceLock::new(),
            traces,
            granted: OnceLock::new(),
            outer: OnceLock::new(),
            inner: OnceLock::new(),
            nested: Mutex::default(),
            outdone: AtomicBool::new(false),
            others: OnceLock::new(),
            marked: AtomicBool::new(false),
            waiter,
            fence: AtomicU64::new(0),
            terms,
            asked: if audience.listens() { Time::now() } else { Time::default() },
            audience,
            state: State::new(),
            attempt: AtomicU64::new(0),
            unanswered: AtomicBool::new(false),
            acquired: AtomicU64::new(0),
            lost_at: AtomicU64::new(0),
            due: AtomicU64::new(0),
            body: Mutex::default(),
            lost: Notify::new(),
        }
    }

    /// The hold of a call that will not be made.
    pub(crate) fn never() -> Hold {
        let hold = Hold::new(Key::nothing(), "", Terms::nothing(), Audience::nobody(), None, None);
        hold.state.0.store(ENDED, Ordering::Release);
        hold
    }

    /// The next attempt of the same call, with a value of its own.
    pub(crate) fn afresh(&self) -> Hold {
        let owner = self.value.split_once('/').map_or("", |(_, owner)| owner);
        let owner = if looks_for_waiters(&self.terms) { owner.trim_end_matches('/') } else { owner };
        let traces = self.traces.as_ref().map(|traces| Arc::new(traces.afresh()));
        let (audience, waiter) = (self.audience.clone(), self.waiter.clone());
        let hold = Hold::new(self.key.clone(), owner, self.terms, audience, waiter, traces);
        hold.attempt.store(self.attempt(), Ordering::Relaxed);
        Hold { asked: self.asked, ..hold }
    }

    pub(crate) fn traces(&self) -> Option<&Arc<Traces>> {
        self.inherited.get().map_or(&self.traces, |inherited| &inherited.traces).as_ref()
    }

    /// Whether it is known that nothing is left of this anywhere.
    pub(crate) fn is_swept(&self) -> bool {
        self.traces().is_some_and(|traces| traces.is_free())
    }

    /// The acquisition's token, for people.
    pub(crate) fn token(&self) -> &str {
        token(&self.current().value)
    }

    /// What stands under the key on the server.
    pub(crate) fn value(&self) -> &str {
        self.inherited.get().map_or(&self.value, |inherited| &inherited.value)
    }

    /// The token by which the server calls this in the line.
    pub(crate) fn token_in_line(&self) -> &str {
        token(self.value())
    }

    /// Takes over what another caller of this process has on the server.
    pub(crate) fn inherit(&self, from: &Hold) {
        let (value, traces) = (from.value().into(), from.traces().cloned());
        let _ = self.inherited.set(Inherited { value, traces });
        self.marked.store(from.is_marked(), Ordering::Relaxed);
    }

    /// Takes the token of a nested call that has taken further keys.
    pub(crate) fn outdo(&self, token: FencingToken) {
        self.set_fence(token);
        self.outdone.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_outdone(&self) -> bool {
        self.outdone.load(Ordering::Relaxed)
    }

    /// For how long the lock has been known to be lost.
    pub(crate) fn lost_for(&self) -> Duration {
        match self.lost_at.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            lost_at => Time::now().saturating_since(Time::from_nanos(lost_at)),
        }
    }

    pub(crate) fn inner(&self) -> &Arc<tokio::sync::RwLock<()>> {
        self.inner.get_or_init(Arc::default)
    }

    pub(crate) fn fence(&self) -> Option<FencingToken> {
        match self.fence.load(Ordering::Relaxed) {
            0 => None,
            number => FencingToken::new(number),
        }
    }

    pub(crate) fn set_fence(&self, token: FencingToken) {
        self.fence.store(token.get(), Ordering::Relaxed);
    }

    pub(crate) fn answered(&self) {
        self.unanswered.store(false, Ordering::Relaxed);
    }

    /// Notes that the server has not answered, and says whether it had before.
    pub(crate) fn first_unanswered(&self) -> bool {
        !self.unanswered.swap(true, Ordering::Relaxed)
    }

    /// The lock was granted by a request that was sent at `sent`.
    pub(crate) fn start(&self, sent: Time, deadline: Time) {
        self.acquired.store(sent.as_nanos(), Ordering::Relaxed);
        self.state.0.store(deadline.as_nanos(), Ordering::Release);
    }

    /// Moves the deadline, unless the lease is over by now: it is never taken up again behind the body's back.
    pub(crate) fn extend(&self, deadline: Time) -> bool {
        let extended = self.state.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            (is_deadline(state) && Time::now().as_nanos() < state).then_some(deadline.as_nanos())
        });
        extended.is_ok()
    }

    /// Ends the lease, if it has not ended. The body and all who wait for the loss are woken.
    pub(crate) fn lose(&self, reason: LostReason) -> bool {
        let lost = self
            .state
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| is_deadline(state).then_some(mark(reason)));
        if lost.is_ok() {
            self.announce(reason);
        }
        lost.is_ok()
    }

    /// Judges the lease by the clock, and says whether and how it was lost.
    pub(crate) fn check(&self) -> Result<(), LostReason> {
        self.check_at(Time::now())
    }

    fn check_at(&self, now: Time) -> Result<(), LostReason> {
        loop {
            let state = self.state.0.load(Ordering::Acquire);
            if !is_deadline(state) {
                return reason(state).map_or(Ok(()), Err);
            }
            if now.as_nanos() < state {
                return Ok(());
            }
            // Unless the watchdog has extended it in this very moment, it is over.
            let reason = self.reason_at(now);
            if self.state.0.compare_exchange(state, mark(reason), Ordering::AcqRel, Ordering::Acquire).is_ok() {
                self.announce(reason);
            }
        }
    }

    /// Ends the lease because the call ends, and says how much of it was left, or how it was lost before.
    pub(crate) fn end(&self) -> Result<Duration, LostReason> {
        let now = Time::now();
        self.check_at(now)?;
        let end = |state| is_deadline(state).then_some(ENDED);
        match self.state.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, end) {
            Ok(deadline) => {
                self.wake_nested();
                Ok(Time::from_nanos(deadline).saturating_since(now))
            }
            Err(state) => reason(state).map_or(Ok(Duration::ZERO), Err),
        }
    }

    /// The server turned out not to have our token any more while the lock was being released.
    pub(crate) fn was_gone(&self) {
        if self.state.0.swap(mark(LostReason::Gone), Ordering::AcqRel) == ENDED {
            self.announce(LostReason::Gone);
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.0.load(Ordering::Acquire) == ENDED
    }

    /// What is left of the lease.
    pub(crate) fn remaining(&self) -> Duration {
        let state = self.state.0.load(Ordering::Acquire);
        if is_deadline(state) { Time::from_nanos(state).saturating_since(Time::now()) } else { Duration::ZERO }
    }

    /// For how long the lock has been held, or was held until it was lost.
    pub(crate) fn held_for(&self) -> Duration {
        let lost_at = match self.lost_at.load(Ordering::Relaxed) {
            0 => Time::now(),
            lost_at => Time::from_nanos(lost_at),
        };
        lost_at.saturating_since(self.acquired())
    }

    /// Whether it passes under another, which is the one that is acquired and ends.
    pub(crate) fn passes(&self) -> bool {
        self.outer.get().is_some()
    }

    /// Whether it was granted at some time.
    pub(crate) fn was_granted(&self) -> bool {
        self.acquired.load(Ordering::Relaxed) != 0
    }

    fn acquired(&self) -> Time {
        Time::from_nanos(self.acquired.load(Ordering::Relaxed))
    }

    /// Why a lease is over whose deadline has passed at `now`.
    fn reason_at(&self, now: Time) -> LostReason {
        match self.terms.max_hold {
            Some(max_hold) if self.acquired().saturating_add(max_hold) <= now => LostReason::HeldTooLong,
            _ => LostReason::Expired,
        }
    }

    pub(crate) fn lost_error(&self, reason: LostReason) -> LockError {
        LockError::Lost { key: self.key.to_string(), reason, held_for: self.leading().held_for() }
    }

    /// Whom to wake when the lease is lost while the body waits for something.
    pub(crate) fn watch_body(&self, waker: &Waker) {
        let mut body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        match body.as_mut() {
            Some(known) => known.clone_from(waker),
            None => *body = Some(waker.clone()),
        }
    }

    /// Returns once the lease is lost; never if it is released.
    pub(crate) async fn lost(&self) -> LostReason {
        loop {
            let mut notified = std::pin::pin!(self.lost.notified());
            notified.as_mut().enable();
            if let Err(reason) = self.check() {
                return reason;
            }
            notified.await;
        }
    }

    fn wake_body(&self) {
        let body = self.body.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(body) = body {
            body.wake();
        }
    }

    /// Wakes those that passed under this one, which has ended for them too.
    fn wake_nested(&self) {
        let nested = std::mem::take(&mut *self.nested.lock().unwrap_or_else(PoisonError::into_inner));
        nested.iter().filter_map(Weak::upgrade).for_each(|nested| nested.wake_body());
    }

    fn announce(&self, reason: LostReason) {
        self.lost_at.store(Time::now().as_nanos(), Ordering::Relaxed);
        self.wake_body();
        self.wake_nested();
        self.lost.notify_waiters();
        events::lost(self, reason);
    }
}

/// Whether a lock is given back by a look at its value alone, unless that says that others wait: the whole lock, of a call without
/// `wait`.
fn looks_for_waiters(terms: &Terms) -> bool {
    terms.kind == Kind::Exclusive && terms.wait.is_none()
}

fn token(value: &str) -> &str {
    value.split_once('/').map_or(value, |(token, _)| token)
}
