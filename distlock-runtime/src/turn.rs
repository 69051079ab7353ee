use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::backend::{Attempt, BackendError, Kind, PATIENCE};
use crate::claim::{Ask, Claim, Refusal, Strays};
use crate::clock::Time;
use crate::ears::Ear;
use crate::guard::LockGuard;
use crate::hold::Hold;
use crate::line::{Competitor, Line, Seat, Tenure, Turns};
use crate::manager::{Core, Entered};
use crate::{FencingToken, LockError, backoff, events};

/// How often a waiter gives a sign of life, and so finds out about a call that it has missed: three times before its
/// patience with others, [`PATIENCE`](crate::backend::PATIENCE), is over.
const SIGN_OF_LIFE: Duration = Duration::from_millis(300);

/// How long a request may take, with all that it takes to connect. Nobody of the same process is asked to wait for longer.
const LONGEST_REQUEST: Duration = Duration::from_secs(5);

/// A wait is not shorter than this where the server has to be asked.
pub(crate) const SHORTEST_WAIT: Duration = Duration::from_millis(100);

/// How often a lock is passed on within a process before others are asked for.
const MOST_TURNS: u32 = 15;

/// For how long a lock is passed on within a process, while others may wait.
const LONGEST_TENURE: Duration = Duration::from_millis(250);

/// Stands in line for a lock: in that of this process, and as its first in that of the server.
///
/// # Cancel safety
///
/// If the future is dropped, the place is given up, or goes to the next caller of this process.
pub(crate) async fn wait(core: Arc<Core>, hold: Arc<Hold>, wait: Duration) -> Result<LockGuard, LockError> {
    let call = core.enter()?;
    let started = Time::now();
    let until = started.saturating_add(hold.terms.patience(wait));
    let ticket = call.core.lines().join(hold.key.as_str());
    let (line, number) = (ticket.line().clone(), ticket.number());
    let shares = hold.terms.kind.is_shared();
    let out_of_time = || {
        // Where nothing has been heard yet, it is a caller of this process who came before.
        let before = || Refusal::Held { holder: String::new(), remaining: Duration::ZERO, first: false };
        let refusal = line.refusal(call.core.owner()).unwrap_or_else(before);
        refusal.report(&hold, true);
        refusal.into_error(&hold, Time::now().saturating_since(started))
    };
    let Some(gate) = in_turn(&call.core, &line, until, ticket.pass(shares)).await? else {
        return Err(out_of_time());
    };
    let mut claim = Claim::new(&call.core, hold.clone());
    let seat = loop {
        if shares && line.is_open() {
            // Others of this process may do the same at the same time.
            claim.beside = line.companion(number);
            if let Some(strays) = beside_others(&line, &mut claim, started, until).await? {
                drop(claim);
                return held(call, &hold, strays, None);
            }
        }
        let Some(gate) = &gate else { break None };
        match in_turn(&call.core, &line, until, gate.clone().seat()).await? {
            Some(Some(_)) if shares && line.is_open() => {}
            Some(seat) => break seat,
            None => return Err(out_of_time()),
        }
    };
    let (mut seat, mut queued) = (seat, false);
    match seat.as_mut().and_then(Seat::take) {
        Some(Competitor::Holding(tenure)) if suits(&tenure, &hold) => {
            if let Some(turns) = take_over(&call, &hold, tenure) {
                drop(claim);
                return held(call, &hold, Strays::default(), seat.map(|seat| (seat, turns)));
            }
        }
        // Each place in the line has its kind. And who may have left something under a value of its own keeps that.
        Some(Competitor::Waiting(left)) if left.kind() == Some(hold.terms.kind) && claim.is_clean() => {
            if let Some(earlier) = left.take() {
                hold.inherit(&earlier);
                queued = true;
            }
        }
        // One that does not suit goes back to the server, and whoever is the first there gets it.
        Some(_) | None => {}
    }
    let competed = compete(claim.with_seat(seat, queued), &line, started, until).await;
    let (hold, strays, seat) = competed.inspect(|(hold, ..)| {
        if hold.terms.kind == Kind::Read {
            line.opened_by(hold.value());
        }
    })?;
    held(call, &hold, strays, seat)
}

/// Tries for a share without a place in any line. Nothing if that has to be stood in.
async fn beside_others(
    line: &Line,
    claim: &mut Claim<'_>,
    started: Time,
    until: Time,
) -> Result<Option<Strays>, LockError> {
    claim.hold().count_attempt();
    let (core, patience) = (claim.core(), until.max(started.saturating_add(SHORTEST_WAIT)));
    let refusal = match core.by(patience, claim.attempt(Ask::Try(Attempt::Repeated))).await? {
        Some(Ok(grant)) => {
            if claim.beside.is_some() {
                line.joined_by(claim.hold().value());
            }
            return Ok(Some(grant.strays));
        }
        Some(Err(refusal)) => {
            line.refused(&refusal);
            refusal
        }
        None => line.refusal(core.owner()).unwrap_or_else(Refusal::out_of_time),
    };
    line.set_open(false);
    let last = Time::now() >= patience || refusal.is_lasting();
    refusal.report(claim.hold(), last);
    if last {
        return Err(refusal.into_error(claim.hold(), Time::now().saturating_since(started)));
    }
    Ok(None)
}

/// Waits for a turn in the line of this process. There is none (`Some(None)`) where whoever has it does nothing, since nobody
/// polls it: that must not keep others from the server. Nothing if the time is over.
async fn in_turn<T>(
    core: &Core,
    line: &Line,
    until: Time,
    turn: impl Future<Output = T>,
) -> Result<Option<Option<T>>, LockError> {
    let mut turn = pin!(turn);
    let at_once = poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx))).await;
    if let Poll::Ready(turn) = at_once {
        return Ok(Some(Some(turn)));
    }
    if line.is_stuck() {
        return Ok(Some(None));
    }
    loop {
        let look = until.min(Time::now().saturating_add(PATIENCE));
        if let Some(turn) = core.by(look, turn.as_mut()).await? {
            return Ok(Some(Some(turn)));
        }
        if Time::now() >= until {
            return Ok(None);
        }
        if line.is_stuck() {
            return Ok(Some(None));
        }
    }
}

/// Whether what is left of a tenure is as good as a lock of this call's own.
fn suits(tenure: &Tenure, hold: &Hold) -> bool {
    let earlier = tenure.parked.hold();
    let fenced = !hold.terms.fencing_token || tenure.turns.last_fence > 0;
    // Without renewals the body would have less than its ttl.
    let alike = earlier.terms.kind == hold.terms.kind && earlier.terms.ttl == hold.terms.ttl;
    fenced && hold.terms.watchdog && alike
}

fn take_over(call: &Entered, hold: &Arc<Hold>, tenure: Tenure) -> Option<Turns> {
    let Tenure { parked, progress, turns } = tenure;
    let remaining = progress.end(&hold.terms).saturating_since(Time::now());
    if remaining < hold.terms.ttl / 2 {
        return None;
    }
    let earlier = parked.hold().clone();
    if !parked.take() {
        return None;
    }
    hold.inherit(&earlier);
    if let Some(token) = turns.token() {
        hold.set_fence(token);
        call.core.note_fence(token);
    }
    call.core.watchdog().watch_on(hold, progress);
    call.core.backend().passed_on(hold.entry_within(remaining));
    Some(turns)
}

/// What a caller has got: its lock, what its attempts have left, and its seat, if the lock goes on with that.
type Got = (Arc<Hold>, Strays, Option<(Seat, Turns)>);

async fn compete(mut claim: Claim<'_>, line: &Line, started: Time, until: Time) -> Result<Got, LockError> {
    let (core, has_seat) = (claim.core(), claim.has_seat());
    let tokens = if claim.hold().terms.fencing_token { MOST_TURNS + 1 } else { 0 };
    let mut pauses = Pauses::new(core, claim.hold());
    pauses.after_own(core, line).await?;
    // Within the wait; but who waits for less than a round trip still gets a lock that is free.
    let patience = until.max(started.saturating_add(SHORTEST_WAIT));
    let mut last_refusal = None;
    loop {
        claim.hold().count_attempt();
        expect(line, has_seat, LONGEST_REQUEST);
        let refusal = match core.by(patience, claim.attempt(Ask::Wait { tokens })).await? {
            Some(Ok(grant)) => {
                let hold = claim.hold().clone();
                let turns = Turns::new(&hold, grant.others, line.waiting(), tokens);
                return Ok((hold, grant.strays, claim.into_seat().map(|seat| (seat, turns))));
            }
            Some(Err(refusal)) => {
                line.refused(&refusal);
                refusal
            }
            // What had no time to be answered says nothing of the server: what this caller, or the line, has heard before does.
            None => last_refusal.take().or_else(|| line.refusal(core.owner())).unwrap_or_else(Refusal::out_of_time),
        };
        let now = Time::now();
        let last = now >= until || refusal.is_lasting();
        refusal.report(claim.hold(), last);
        if last {
            return Err(refusal.into_error(claim.hold(), now.saturating_since(started)));
        }
        let pause = pauses.next(&refusal, &mut claim).min(until.saturating_since(now));
        expect(line, has_seat, pause + PATIENCE);
        pauses.take(core, now.saturating_add(pause)).await?;
        last_refusal = Some(refusal);
    }
}

/// What a waiter does between two requests.
enum Pauses {
    /// It stands in the server's line, and listens for its call.
    InLine(Ear),
    /// There is no line, so that it asks again and again.
    Polling(backoff::Pauses),
}

impl Pauses {
    fn new(core: &Core, hold: &Hold) -> Pauses {
        if core.backend().reuses_values() {
            Pauses::InLine(core.ears().listen(hold.token_in_line()))
        } else {
            Pauses::Polling(hold.terms.backoff.pauses())
        }
    }

    /// Where there is no line, and callers of this process had the lock one after the other, those of others get a chance to
    /// ask for it.
    async fn after_own(&self, core: &Core, line: &Line) -> Result<(), LockError> {
        match self {
            Pauses::Polling(pauses) if line.was_ours() => core.pause(pauses.jitter()).await,
            _ => Ok(()),
        }
    }

    fn next(&mut self, refusal: &Refusal, claim: &mut Claim<'_>) -> Duration {
        match self {
            Pauses::InLine(_) => refusal.next_sign(),
            Pauses::Polling(pauses) => {
                pauses.next(refusal.remaining()).min(SIGN_OF_LIFE + pauses.jitter()) + claim.go_on()
            }
        }
    }

    async fn take(&self, core: &Arc<Core>, until: Time) -> Result<(), LockError> {
        match self {
            Pauses::InLine(ear) => {
                core.ears().open(core);
                core.by(until, ear.called()).await.map(drop)
            }
            Pauses::Polling(_) => core.pause(until.saturating_since(Time::now())).await,
        }
    }
}

fn expect(line: &Line, has_seat: bool, time: Duration) {
    if has_seat {
        line.expect_within(time);
    }
}

impl Refusal {
    pub(crate) fn out_of_time() -> Refusal {
        Refusal::Failed(BackendError::unanswered("the server did not answer within the time to wait"))
    }

    /// When to ask again if no call comes. Who is the first in line looks for the end of the holder's lease; the others
    /// need not.
    fn next_sign(&self) -> Duration {
        let spread = SIGN_OF_LIFE.mul_f64(fastrand::f64() / 10.0);
        match self {
            Refusal::Held { remaining, first: true, .. } => {
                SIGN_OF_LIFE.min(remaining.saturating_add(Duration::from_millis(1)))
            }
            Refusal::Held { first: false, .. } => SIGN_OF_LIFE.saturating_sub(spread),
            Refusal::Late | Refusal::Failed(_) => Duration::from_millis(50) + spread,
        }
    }
}

fn held(call: Entered, hold: &Arc<Hold>, strays: Strays, seat: Option<(Seat, Turns)>) -> Result<LockGuard, LockError> {
    let mut guard = LockGuard::new(call, hold.clone(), strays);
    // Of a lock that is shared, the next caller of this process may have a share at the same time.
    if let Some((seat, turns)) = seat.filter(|_| !hold.terms.kind.is_shared()) {
        seat.line().held_by_us(hold);
        guard = guard.with_seat(seat, turns);
    }
    events::acquired(hold);
    // Where a shutdown came first, dropping the guard gives the lock back.
    guard.ensure_open().map(|()| guard)
}

impl Turns {
    /// Those that follow on a grant. While others wait elsewhere, the lock is passed on to who waits here already, and
    /// not to who comes meanwhile.
    fn new(hold: &Hold, others: bool, waiting: usize, tokens: u32) -> Turns {
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        let left = if others { waiting.min(MOST_TURNS) } else { MOST_TURNS };
        let last_fence = hold.fence().map_or(0, |first| first.get() + u64::from(tokens) - 1);
        Turns { until: Time::now().saturating_add(LONGEST_TENURE), left, last_fence }
    }

    /// The turns of the next caller, if there is one to come.
    pub(crate) fn next(self) -> Option<Turns> {
        let left = self.left.checked_sub(1)?;
        (Time::now() < self.until).then_some(Turns { left, ..self })
    }

    /// The token of this turn, if there are any. They rise from turn to turn, up to the last one. Each turn has its own, also
    /// if it does not ask for one: a call that passes under it may.
    fn token(self) -> Option<FencingToken> {
        if self.last_fence == 0 { None } else { FencingToken::new(self.last_fence - u64::from(self.left)) }
    }
}
