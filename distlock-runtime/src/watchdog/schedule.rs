use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::reclaim::Reclaim;
use crate::LostReason;
use crate::clock::Time;
use crate::hold::Hold;
use crate::lease::{Answer, Duty, Progress, head_start};

/// How many keys may wait to be freed. The server has to be away for long, and calls to go on failing, to get there.
const MAX_RECLAIMS: usize = 65_536;

/// What the watchdog has to do, in the order of time.
#[derive(Default)]
pub(super) struct Schedule {
    leases: BTreeMap<(Time, usize), Watched>,
    /// No renewal of those under watch may have a longer head start. What is due later than that need not be looked at.
    longest_head_start: Duration,
    reclaims: BTreeMap<Due, Reclaim>,
    last_reclaim: u64,
}

/// Where a key to free is: when that is due, and a number of its own.
pub(super) type Due = (Time, u64);

struct Watched {
    hold: Arc<Hold>,
    progress: Progress,
}

/// What is due.
#[derive(Default)]
pub(super) struct Work {
    /// With when each was due.
    pub(super) renewals: Vec<(Arc<Hold>, Time)>,
    pub(super) losses: Vec<(Arc<Hold>, LostReason)>,
    pub(super) reclaims: Vec<Reclaim>,
}

impl Schedule {
    /// Takes a lock under watch. Returns when the first thing has to be done for it.
    pub(super) fn watch(&mut self, hold: &Arc<Hold>, progress: Progress) -> Time {
        let at = progress.next(&hold.terms);
        self.longest_head_start = self.longest_head_start.max(head_start(&hold.terms));
        hold.due.store(at.as_nanos(), Ordering::Relaxed);
        self.leases.insert((at, id(hold)), Watched { hold: hold.clone(), progress });
        at
    }

    /// Ends the watch over a lock. Returns how far it had come, unless it was not watched.
    pub(super) fn unwatch(&mut self, hold: &Arc<Hold>) -> Option<Progress> {
        let due = hold.due.swap(0, Ordering::Relaxed);
        if due == 0 {
            return None;
        }
        self.leases.remove(&(Time::from_nanos(due), id(hold))).map(|watched| watched.progress)
    }

    /// Takes in the answer to a renewal. Locks that have ended meanwhile are passed over. An extension that comes when the
    /// lease is over ends the watch, and the caller has to see to it that the loss is told.
    pub(super) fn answered(&mut self, hold: &Arc<Hold>, answer: Answer, sent: Time, now: Time) {
        let Some(mut progress) = self.unwatch(hold) else { return };
        progress.answered(answer, sent, now, &hold.terms, fastrand::f64());
        let goes_on = match answer {
            Answer::Extended => hold.extend(progress.end(&hold.terms)),
            Answer::Unknown => true,
            Answer::Lost => false,
        };
        if goes_on {
            self.watch(hold, progress);
        }
    }

    /// Adds a key to free at `at`, and returns where it is. Hands it back if there are too many already.
    pub(super) fn reclaim(&mut self, reclaim: Reclaim, at: Time) -> Result<Due, Reclaim> {
        if self.reclaims.len() >= MAX_RECLAIMS {
            return Err(reclaim);
        }
        self.last_reclaim += 1;
        let due = (at, self.last_reclaim);
        self.reclaims.insert(due, reclaim);
        Ok(due)
    }

    /// Takes back what was added, unless it was due meanwhile.
    pub(super) fn take_back(&mut self, due: Due) -> Option<Reclaim> {
        self.reclaims.remove(&due)
    }

    /// Takes out what has to be done at `now`.
    pub(super) fn take_due(&mut self, now: Time) -> Work {
        let mut work = Work::default();
        if self.leases.is_empty() {
            self.longest_head_start = Duration::ZERO;
        }
        for key in self.due_leases(now) {
            if let Some(watched) = self.leases.remove(&key) {
                self.begin(watched, now, &mut work);
            }
        }
        let later = self.reclaims.split_off(&(now.saturating_add(Duration::from_nanos(1)), 0));
        work.reclaims.extend(std::mem::replace(&mut self.reclaims, later).into_values());
        work
    }

    fn due_leases(&self, now: Time) -> Vec<(Time, usize)> {
        let horizon = (now.saturating_add(self.longest_head_start), usize::MAX);
        let due = |watched: &Watched| watched.progress.duty(now, &watched.hold.terms).is_some();
        self.leases.range(..=horizon).filter(|(_, watched)| due(watched)).map(|(key, _)| *key).collect()
    }

    fn begin(&mut self, mut watched: Watched, now: Time, work: &mut Work) {
        watched.hold.due.store(0, Ordering::Relaxed);
        match watched.progress.duty(now, &watched.hold.terms) {
            Some(Duty::GiveUp(reason)) => return work.losses.push((watched.hold, reason)),
            Some(Duty::Renew) => {
                let due = watched.progress.renewal().unwrap_or(now);
                watched.progress.sent();
                work.renewals.push((watched.hold.clone(), due));
            }
            None => {}
        }
        self.watch(&watched.hold, watched.progress);
    }

    /// Ends the watch over all locks and hands them out.
    pub(super) fn take_all(&mut self) -> Vec<Arc<Hold>> {
        let leases = std::mem::take(&mut self.leases);
        leases.into_values().map(|watched| watched.hold).inspect(|hold| hold.due.store(0, Ordering::Relaxed)).collect()
    }

    /// When there is something to do next.
    pub(super) fn next(&self) -> Time {
        let lease = self.leases.first_key_value().map(|((at, _), _)| *at);
        let reclaim = self.reclaims.first_key_value().map(|((at, _), _)| *at);
        lease.into_iter().chain(reclaim).min().unwrap_or(Time::FAR_FUTURE)
    }

    pub(super) fn has_urgent_reclaims(&self) -> bool {
        self.reclaims.values().any(Reclaim::is_urgent)
    }

    pub(super) fn has_reclaims(&self) -> bool {
        !self.reclaims.is_empty()
    }
}

/// Unique among the holds that are alive, and all in the schedule are.
fn id(hold: &Arc<Hold>) -> usize {
    Arc::as_ptr(hold) as usize
}
