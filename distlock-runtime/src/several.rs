//! Several locks at once: all or nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Acquired, AcquiredAll, Attempt, BackendError, Entry, Fencing, Renewed};
use crate::claim::{Refusal, RouteNote, Strays, owner};
use crate::clock::Time;
use crate::guard::LockGuard;
use crate::hold::Hold;
use crate::manager::Core;
use crate::{FencingToken, LockError, events, nest, turn};

/// The pause before locks that came one after the other are asked for together once more.
const AGAIN: Duration = Duration::from_millis(50);

/// Gets all locks of a group.
pub(crate) async fn acquire(core: Arc<Core>, first: Arc<Hold>) -> Result<LockGuard, LockError> {
    joined(all(&core, &group(&core, &first)).await?, &first)
}

/// The holds of a group. Where each attempt has a value of its own, they find together only when they are held.
fn group(core: &Core, first: &Arc<Hold>) -> Vec<Arc<Hold>> {
    let asked = std::iter::once(first).chain(first.others());
    if core.backend().reuses_values() {
        return asked.cloned().collect();
    }
    asked.map(|hold| Arc::new(hold.afresh())).collect()
}

/// Gets those locks of a group that the calling task does not hold, and passes under the others.
pub(crate) async fn pass(core: Arc<Core>, first: Arc<Hold>) -> Result<LockGuard, LockError> {
    let holds = group(&core, &first);
    let (held, free): (Vec<_>, Vec<_>) = holds.into_iter().partition(|hold| nest::outer(&core, hold).is_some());
    let mut guards = Vec::new();
    for hold in held {
        guards.push(nest::pass_one(&core, hold).await?);
    }
    if !free.is_empty() {
        guards.extend(all(&core, &free).await?);
    }
    // The first lock's guard is the one that the lease goes by.
    guards.sort_by_key(|guard| guard.hold().key != first.key);
    if first.terms.fencing_token && guards.len() > 1 {
        // One that is above the last of every key, of those that were held before and of the others.
        let holds: Vec<_> = guards.iter().map(|guard| guard.hold().clone()).collect();
        let group: Vec<&Hold> = holds.iter().map(|hold| &**hold).collect();
        let token = nest::mint(&core, &group).await?;
        // Also for what the task held before: what it writes from now on must not pass for older.
        for hold in group {
            hold.leading().outdo(token);
        }
        guards.iter_mut().for_each(LockGuard::spend_tokens);
    }
    joined(guards, &first)
}

/// The guards of a group as that of its first lock.
fn joined(guards: Vec<LockGuard>, first: &Hold) -> Result<LockGuard, LockError> {
    let mut guards = guards.into_iter();
    let Some(guard) = guards.next() else { return Err(nest::would_deadlock(first)) };
    let others: Vec<LockGuard> = guards.collect();
    guard.hold().set_others(others.iter().map(|other| other.hold().clone()).collect());
    Ok(guard.with_others(others))
}

/// By single attempts that take all or none, or, for those who wait, one after the other in the order of their keys, which
/// is the same for everybody.
async fn all(core: &Arc<Core>, holds: &[Arc<Hold>]) -> Result<Vec<LockGuard>, LockError> {
    match holds.first().and_then(|first| first.terms.wait) {
        Some(wait) => in_line(core, holds, wait).await,
        None => at_once(core, holds).await,
    }
}

async fn in_line(core: &Arc<Core>, holds: &[Arc<Hold>], wait: Duration) -> Result<Vec<LockGuard>, LockError> {
    let until = Time::now().saturating_add(wait);
    let mut guards = Vec::with_capacity(holds.len());
    for hold in holds {
        // Where nothing is left of the time, a lock that is free is still taken.
        let left = until.saturating_since(Time::now()).max(Duration::from_millis(1));
        guards.push(turn::wait(core.clone(), hold.clone(), left).await?);
    }
    if holds.len() > 1 {
        let holds = guards.iter().map(|guard| guard.hold().clone()).collect();
        together(core, holds, &mut guards, until).await?;
    }
    Ok(guards)
}

/// Starts the leases of locks that came one after the other anew, all at once: that of an early one may have run out by
/// the time that the last one came. With a fencing token that is above the last of every key.
async fn together(
    core: &Arc<Core>,
    holds: Vec<Arc<Hold>>,
    guards: &mut [LockGuard],
    until: Time,
) -> Result<(), LockError> {
    let mut claims = Claims::new(core, holds);
    loop {
        let bound = until.max(Time::now().saturating_add(turn::SHORTEST_WAIT));
        let (index, refusal) = match core.by(bound, claims.start_anew()).await? {
            Some(Ok(())) => break,
            Some(Err(refused)) => refused,
            None => (0, Refusal::out_of_time()),
        };
        let passing = matches!(&refusal, Refusal::Late | Refusal::Failed(_)) && !refusal.is_lasting();
        if !passing || Time::now() >= until {
            return Err(claims.error(index, refusal));
        }
        core.pause(AGAIN).await?;
    }
    let strays = claims.left();
    for guard in guards {
        guard.spend_tokens();
        guard.add_strays(strays.clone());
    }
    Ok(())
}

async fn at_once(core: &Arc<Core>, holds: &[Arc<Hold>]) -> Result<Vec<LockGuard>, LockError> {
    let Some(first) = holds.first() else { return Ok(Vec::new()) };
    let call = core.clone().enter()?;
    let mut pauses = first.terms.backoff.pauses();
    let mut claims = Claims::new(core, holds.to_vec());
    loop {
        for hold in &claims.holds {
            hold.count_attempt();
        }
        let attempt = claims.attempt().await;
        let before = std::mem::take(&mut claims.marked);
        claims.unmark(&before);
        let (index, refusal) = match attempt {
            Ok(()) => return claims.granted(),
            Err(refused) => refused,
        };
        let hold = claims.holds.get(index).unwrap_or(first);
        let last = hold.attempt() > u64::from(hold.terms.retry) || refusal.is_lasting();
        refusal.report(hold, last);
        if last {
            return Err(claims.error(index, refusal));
        }
        let spread = claims.go_on();
        call.core.pause(pauses.next(refusal.remaining()) + spread).await?;
    }
}

/// A call's claim to several locks. If it is dropped before a grant, what it may have left is freed.
struct Claims<'a> {
    core: &'a Arc<Core>,
    holds: Vec<Arc<Hold>>,
    started: Time,
    /// When the last attempt was sent.
    sent: Time,
    strays: Strays,
    /// Earlier holds of this call that may still hold others back, until the next attempt does.
    marked: Vec<Arc<Hold>>,
}

impl<'a> Claims<'a> {
    fn new(core: &'a Arc<Core>, holds: Vec<Arc<Hold>>) -> Claims<'a> {
        let started = Time::now();
        Claims { core, holds, started, sent: started, strays: Strays::default(), marked: Vec::new() }
    }

    /// Gets ready for the next attempt, as [`Claim::go_on`](crate::claim::Claim::go_on) does.
    fn go_on(&mut self) -> Duration {
        if self.reuses_values() {
            return Duration::ZERO;
        }
        self.free_strays();
        let next: Vec<_> = self.holds.iter().map(|hold| Arc::new(hold.afresh())).collect();
        let last = std::mem::replace(&mut self.holds, next);
        if last.iter().any(|hold| hold.is_marked()) {
            self.holds.iter().for_each(|hold| hold.may_have_mark());
            self.marked.extend(last);
        }
        Time::now().saturating_since(self.sent).mul_f64(fastrand::f64())
    }

    /// Starts the leases of locks that are held anew.
    async fn start_anew(&mut self) -> Result<(), (usize, Refusal)> {
        // An attempt that failed could be taken back where a value is not asked for twice, and with it what is held.
        if self.reuses_values() { self.attempt().await } else { self.extend().await }
    }

    fn reuses_values(&self) -> bool {
        self.core.backend().reuses_values() && self.core.backend().acquires_all_at_once()
    }

    async fn extend(&mut self) -> Result<(), (usize, Refusal)> {
        let fencing = Fencing::new(1, self.core.highest_fence());
        let holds = self.holds.clone();
        let entries: Vec<Entry<'_>> = holds.iter().map(|hold| hold.entry().with_fencing(fencing)).collect();
        let gone = || Refusal::Failed(BackendError::lasting("one of the locks was lost while others were waited for"));
        let sent = Time::now();
        for (index, answer) in self.core.backend().renew(&entries).await.into_iter().enumerate() {
            match answer {
                Ok(Renewed::Extended) => {}
                Ok(Renewed::NotHeld) if self.core.backend().reuses_values() => {
                    self.take_again(&entries, index).await.map_err(|refusal| (index, refusal))?;
                }
                Ok(Renewed::NotHeld) => return Err((index, gone())),
                Err(error) => return Err((index, Refusal::Failed(error))),
            }
        }
        let mut token = None;
        if self.holds.iter().any(|hold| hold.terms.fencing_token) {
            token = self.core.backend().mint(&entries).await.map_err(|error| (0, Refusal::Failed(error)))?;
            token.ok_or_else(|| (0, gone()))?;
        }
        self.accept(sent, token).map_err(|refusal| (0, refusal))
    }

    /// Takes a lock that has run out while others were waited for, if nobody else has it by now.
    async fn take_again(&mut self, entries: &[Entry<'_>], index: usize) -> Result<(), Refusal> {
        let Some(entry) = entries.get(index).map(|entry| Entry { fencing: None, ..*entry }) else { return Ok(()) };
        // Counted until the answer says otherwise, as with all of them.
        self.strays.requests = self.strays.requests.saturating_add(1);
        let mut route = RouteNote::of(&mut self.strays);
        let answer = self.core.backend().acquire(entry, Attempt::Repeated, &mut route.route).await;
        if answer.as_ref().is_err_and(BackendError::is_unanswered) {
            drop(route);
        } else {
            route.forget();
            self.strays.requests -= 1;
        }
        match answer.map_err(Refusal::Failed)? {
            Acquired::Granted(_) => Ok(()),
            Acquired::Held { value, remaining } => {
                Err(Refusal::Held { holder: owner(&value), remaining, first: false })
            }
        }
    }

    /// Tries for all. Says which lock was refused and why.
    async fn attempt(&mut self) -> Result<(), (usize, Refusal)> {
        let fenced = self.holds.iter().any(|hold| hold.terms.fencing_token);
        let fencing = fenced.then(|| Fencing::new(1, self.core.highest_fence()));
        let entries = self.holds.iter().map(|hold| {
            let entry = hold.entry();
            Entry { fencing, returning: hold.next_try_within(), ..entry }
        });
        let entries: Vec<Entry<'_>> = entries.collect();
        // Counted until the answer says otherwise, so that nothing is forgotten if this is dropped.
        self.strays.requests = self.strays.requests.saturating_add(1);
        self.sent = Time::now();
        let (sent, mut route) = (self.sent, RouteNote::of(&mut self.strays));
        let answer = self.core.backend().acquire_all(&entries, &mut route.route).await;
        let refused = match answer {
            Ok(AcquiredAll::Granted(token)) => {
                route.forget();
                return self.accept(sent, token).map_err(|refusal| (0, refusal));
            }
            Ok(AcquiredAll::Foreign { index, found }) => (index, Refusal::Failed(BackendError::foreign(found))),
            Ok(AcquiredAll::Held { index, value, remaining }) => {
                (index, Refusal::Held { holder: owner(&value), remaining, first: false })
            }
            Err(error) if error.is_unanswered() => return Err((0, Refusal::Failed(error))),
            Err(error) => (0, Refusal::Failed(error)),
        };
        // Nothing was set.
        route.forget();
        self.strays.requests -= 1;
        Err(refused)
    }

    fn accept(&self, sent: Time, token: Option<FencingToken>) -> Result<(), Refusal> {
        for hold in &self.holds {
            if token.is_none() && hold.terms.fencing_token {
                return Err(Refusal::Failed(BackendError::lasting("the backend has no fencing tokens")));
            }
            // One that waited has its own under watch already.
            self.core.watchdog().unwatch(hold);
            self.core.accept(hold, sent, token)?;
        }
        Ok(())
    }

    /// The guards of the locks that an attempt has brought.
    fn granted(&mut self) -> Result<Vec<LockGuard>, LockError> {
        let strays = self.left();
        let mut guards = Vec::with_capacity(self.holds.len());
        for hold in &self.holds {
            guards.push(LockGuard::new(self.core.enter_again(), hold.clone(), strays.clone()));
            events::acquired(hold);
        }
        self.core.ensure_open().map(|()| guards)
    }

    /// What earlier attempts have left, after one that was granted.
    fn left(&mut self) -> Strays {
        let left = std::mem::take(&mut self.strays);
        match left.requests {
            0 | 1 => Strays::default(),
            requests => Strays { requests: requests - 1, ..left },
        }
    }

    fn error(&self, index: usize, refusal: Refusal) -> LockError {
        let waited = Time::now().saturating_since(self.started);
        let hold = self.holds.get(index).or(self.holds.first());
        hold.map_or(LockError::ShuttingDown, |hold| refusal.into_error(hold, waited))
    }

    /// Nobody is held back any more on behalf of these.
    fn unmark(&self, holds: &[Arc<Hold>]) {
        let marked = holds.iter().filter(|hold| hold.is_marked() && !hold.was_granted());
        marked.for_each(|hold| drop(self.core.watchdog().leave(hold)));
    }

    /// Has freed what requests without an answer may have set.
    fn free_strays(&mut self) {
        let strays = std::mem::take(&mut self.strays);
        if strays.requests == 0 {
            return;
        }
        for hold in &self.holds {
            hold.may_have_mark();
            self.core.watchdog().unwatch(hold);
            self.core.watchdog().free_strays(hold, strays.clone());
        }
    }
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        if self.strays.requests == 0 {
            self.unmark(&self.holds);
        }
        self.unmark(&self.marked);
        self.free_strays();
    }
}
