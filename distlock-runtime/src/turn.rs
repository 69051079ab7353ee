use std::sync::Arc;
use std::time::Duration;

use crate::claim::{Ask, Claim, Refusal, Strays};
use crate::clock::Time;
use crate::events;
use crate::guard::LockGuard;
use crate::hold::Hold;
use crate::line::{Competitor, Seat, Tenure, Turns};
use crate::manager::{Core, Entered};
use crate::{FencingToken, LockError};

/// How often a waiter gives a sign of life, and so finds out about a call that it has missed: three times before its
/// patience with others, [`PATIENCE`](crate::backend::PATIENCE), is over.
const SIGN_OF_LIFE: Duration = Duration::from_millis(300);

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
    let line = ticket.line().clone();
    let Some(mut seat) = call.core.by(until, ticket.seat()).await? else {
        let refusal = line.refusal(call.core.owner());
        refusal.report(&hold, true);
        return Err(refusal.into_error(&hold, Time::now().saturating_since(started)));
    };
    let strays = match seat.take() {
        Some(Competitor::Holding(tenure)) if suits(&tenure, &hold) => match take_over(&call, &hold, tenure) {
            Some(turns) => return held(call, &hold, Strays::default(), seat, turns),
            None => None,
        },
        // One that does not suit goes back to the server, and whoever is the first there gets it.
        Some(Competitor::Holding(_)) | None => None,
        Some(Competitor::Waiting(left)) => left.take().map(|(earlier, strays)| {
            hold.inherit(&earlier);
            strays
        }),
    };
    compete(call, &hold, seat, strays, started, until).await
}

/// Whether what is left of a tenure is as good as a lock of this call's own.
fn suits(tenure: &Tenure, hold: &Hold) -> bool {
    let earlier = tenure.parked.hold();
    let fenced = !hold.terms.fencing_token || tenure.turns.last_fence > 0;
    // Without renewals the body would have less than its ttl.
    fenced && hold.terms.watchdog && earlier.terms.ttl == hold.terms.ttl
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
    turns.give_token(hold);
    call.core.watchdog().watch_on(hold, progress);
    Some(turns)
}

async fn compete(
    call: Entered,
    hold: &Arc<Hold>,
    seat: Seat,
    strays: Option<Strays>,
    started: Time,
    until: Time,
) -> Result<LockGuard, LockError> {
    let core = call.core.clone();
    let line = seat.line().clone();
    let ear = core.ears().listen(hold.token_in_line());
    let mut claim = Claim::new(&core, hold).with_seat(seat, strays);
    let tokens = if hold.terms.fencing_token { MOST_TURNS + 1 } else { 0 };
    loop {
        hold.count_attempt();
        let refusal = match claim.attempt(Ask::Wait { tokens }).await {
            Ok(grant) => {
                let turns = Turns::new(hold, grant.others, line.waiting(), tokens);
                let Some(seat) = claim.into_seat() else { return Err(LockError::ShuttingDown) };
                return held(call, hold, grant.strays, seat, turns);
            }
            Err(refusal) => refusal,
        };
        line.refused(&refusal);
        let now = Time::now();
        let last = now >= until || refusal.is_lasting();
        refusal.report(hold, last);
        if last {
            return Err(refusal.into_error(hold, now.saturating_since(started)));
        }
        core.ears().open(&core);
        let pause = refusal.next_sign().min(until.saturating_since(now));
        core.by(now.saturating_add(pause), ear.called()).await?;
    }
}

impl Refusal {
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

fn held(call: Entered, hold: &Arc<Hold>, strays: Strays, seat: Seat, turns: Turns) -> Result<LockGuard, LockError> {
    seat.line().held_by_us(hold);
    let guard = LockGuard::new(call, hold.clone(), strays).with_seat(seat, turns);
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

    /// Gives the token of this turn. They rise from turn to turn, up to the last one.
    fn give_token(self, hold: &Hold) {
        if hold.terms.fencing_token
            && let Some(token) = FencingToken::new(self.last_fence - u64::from(self.left))
        {
            hold.set_fence(token);
        }
    }
}
