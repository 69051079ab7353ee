use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::reclaim::{Next, Reclaim};
use super::thread::Shared;
use crate::backend::{Backend, BackendError, Entry, Released, Renewed, Route};
use crate::clock::Time;
use crate::hold::Hold;
use crate::lease::Answer;
use crate::planted::{self, Planted};
use crate::{LostReason, events};

/// How many renewals or releases are sent in one go. While a server works on them it answers nobody else.
const MOST: usize = 256;

/// What may go in one batch: how long an answer may take, and where the locks are kept.
fn kind(shared: &Shared, hold: &Hold) -> (Duration, usize) {
    (hold.terms.command_timeout, shared.backend.place(hold.key.as_str()))
}

/// Renewals on their way. Whatever becomes of the backend's answer, the schedule gets one for each lock.
pub(super) struct Renewals {
    shared: Arc<Shared>,
    sent: Time,
    /// With when each was due.
    holds: VecDeque<(Arc<Hold>, Time)>,
}

impl Renewals {
    /// Sends renewals, those of the same server and with the same timeout together: neither a server that is sick nor a lock
    /// with a short ttl is a reason to give up early on others.
    pub(super) fn send(shared: &Arc<Shared>, holds: Vec<(Arc<Hold>, Time)>) {
        let mut holds: Vec<_> = holds.into_iter().map(|hold| (kind(shared, &hold.0), hold)).collect();
        holds.sort_by_key(|(kind, _)| *kind);
        for batch in holds.chunk_by(|(a, _), (b, _)| a == b).flat_map(|alike| alike.chunks(MOST)) {
            let holds = batch.iter().map(|(_, hold)| hold.clone()).collect();
            tokio::spawn(Renewals { shared: shared.clone(), sent: Time::now(), holds }.run());
        }
    }

    async fn run(mut self) {
        let entries: Vec<Entry<'_>> = self.holds.iter().map(|(hold, _)| hold.entry()).collect();
        let answers = self.shared.backend.renew(&entries).await;
        for answer in answers {
            // One by one, so that after a panic of a subscriber the rest are still there to be told.
            if let Some((hold, due)) = self.holds.pop_front() {
                self.answered(&hold, due, answer);
            }
        }
    }

    fn answered(&self, hold: &Arc<Hold>, due: Time, answer: Result<Renewed, BackendError>) {
        let verdict = match &answer {
            Ok(Renewed::Extended) => Answer::Extended,
            Ok(Renewed::NotHeld) => Answer::Lost,
            Err(_) => Answer::Unknown,
        };
        let (verdict, sent) = match verdict {
            Answer::Extended if planted::is(Planted::LeaseFromReply) => (verdict, Time::now()),
            Answer::Unknown if planted::is(Planted::RenewalErrorIgnored) => (Answer::Extended, Time::now()),
            verdict => (verdict, self.sent),
        };
        self.shared.lock().schedule.answered(hold, verdict, sent, Time::now());
        match answer {
            // An extension that comes too late extends nothing, and then nobody else is left to notice.
            Ok(Renewed::Extended) if hold.check().is_err() => {}
            Ok(Renewed::Extended) => events::renewed(hold, Time::now().saturating_since(due)),
            Ok(Renewed::NotHeld) => drop(hold.lose(LostReason::Gone)),
            Err(error) => events::renewal_failed(hold, &error),
        }
    }
}

impl Drop for Renewals {
    /// A backend from outside may panic, or answer too few. That is no answer, so the renewal is tried again.
    fn drop(&mut self) {
        for (hold, _) in &self.holds {
            self.shared.lock().schedule.answered(hold, Answer::Unknown, self.sent, Time::now());
        }
        self.shared.wake.notify_one();
    }
}

/// Releases on their way. Each is counted until its outcome is known.
pub(super) struct Releases {
    shared: Arc<Shared>,
    reclaims: VecDeque<Reclaim>,
}

impl Releases {
    /// Sends releases: along their own way those that have one, the others together with those of the same kind.
    pub(super) fn send(shared: &Arc<Shared>, reclaims: Vec<Reclaim>) {
        let mut reclaims: Vec<_> = reclaims.into_iter().map(|reclaim| (kind(shared, &reclaim.hold), reclaim)).collect();
        reclaims.sort_by_key(|(kind, _)| *kind);
        let (mut batch, mut last) = (VecDeque::new(), None);
        for (kind, reclaim) in reclaims {
            let joins = last == Some(kind) && reclaim.route.is_none() && batch.len() < MOST;
            if !joins {
                Releases::send_batch(shared, std::mem::take(&mut batch));
            }
            // Behind one that goes its own way nothing else goes.
            last = reclaim.route.is_none().then_some(kind);
            batch.push_back(reclaim);
        }
        Releases::send_batch(shared, batch);
    }

    fn send_batch(shared: &Arc<Shared>, reclaims: VecDeque<Reclaim>) {
        if !reclaims.is_empty() {
            tokio::spawn(Releases { shared: shared.clone(), reclaims }.run());
        }
    }

    async fn run(mut self) {
        let route = self.reclaims.front().and_then(|reclaim| reclaim.route.clone());
        let entries: Vec<Entry<'_>> = self.reclaims.iter().map(|reclaim| reclaim.hold.entry()).collect();
        let (answers, by_route) = match (route, entries.as_slice()) {
            (Some(route), [entry]) => {
                let (answer, by_route) = release_both_ways(&*self.shared.backend, &*route, *entry).await;
                (vec![answer], by_route)
            }
            (_, entries) => (self.shared.backend.release_all(entries).await, false),
        };
        for answer in answers {
            if let Some(reclaim) = self.reclaims.pop_front() {
                self.answered(reclaim, &answer, by_route);
            }
        }
    }

    fn answered(&self, reclaim: Reclaim, answer: &Result<Released, BackendError>, by_route: bool) {
        let hold = reclaim.hold.clone();
        let given_up = self.settle(reclaim, answer.as_ref().copied(), by_route);
        match answer {
            Ok(released) => events::reclaimed(&hold, *released),
            Err(_) if given_up => events::left_to_expire(&hold, "no answer within its ttl"),
            Err(error) => events::release_failed(&hold, error),
        }
    }

    /// Counts a release as over, or has it tried again, in one step. Returns whether it is given up.
    fn settle(&self, mut reclaim: Reclaim, answer: Result<Released, &BackendError>, by_route: bool) -> bool {
        let next = reclaim.answered(answer, by_route, Time::now());
        let mut state = self.shared.lock();
        state.releasing = state.releasing.saturating_sub(1);
        match next {
            Next::Done => false,
            Next::GivenUp => true,
            Next::At(at) => state.schedule.reclaim(reclaim, at).is_err(),
        }
    }
}

/// Releases along the way that the attempts took, where nothing can be overtaken, and at the same time by the watchdog's
/// own means: that way may belong to a runtime that nobody drives. Says also whether the answer came along the way.
async fn release_both_ways(
    backend: &dyn Backend,
    route: &dyn Route,
    entry: Entry<'_>,
) -> (Result<Released, BackendError>, bool) {
    let entries = [entry];
    let (mut along, mut across) = (Some(route.release(entry)), Some(backend.release_all(&entries)));
    let mut second_best = None;
    poll_fn(|cx| {
        if let Some(Poll::Ready(answer)) = along.as_mut().map(|along| along.as_mut().poll(cx)) {
            along = None;
            match answer {
                Ok(released) => return Poll::Ready((Ok(released), true)),
                Err(error) => second_best = second_best.take().or(Some(Err(error))),
            }
        }
        if let Some(Poll::Ready(mut answers)) = across.as_mut().map(|across| across.as_mut().poll(cx)) {
            across = None;
            match answers.pop() {
                // That frees what is there now. Only along the way it is sure that nothing follows.
                Some(Ok(released)) => second_best = Some(Ok(released)),
                Some(Err(error)) => second_best = second_best.take().or(Some(Err(error))),
                None => {}
            }
        }
        if along.is_some() || across.is_some() {
            return Poll::Pending;
        }
        let no_answer = || Err(BackendError::unanswered("the backend answered too few"));
        Poll::Ready((second_best.take().unwrap_or_else(no_answer), false))
    })
    .await
}

impl Drop for Releases {
    /// As with renewals, what had no answer is tried again.
    fn drop(&mut self) {
        let no_answer = BackendError::unanswered("the backend panicked, or answered too few");
        for reclaim in std::mem::take(&mut self.reclaims) {
            self.settle(reclaim, Err(&no_answer), false);
        }
        self.shared.wake.notify_one();
        self.shared.settled.notify_waiters();
    }
}
