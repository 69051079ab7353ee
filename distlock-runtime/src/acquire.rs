use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Acquired, Attempt, BackendError, Route};
use crate::clock::Time;
use crate::guard::LockGuard;
use crate::hold::Hold;
use crate::lease;
use crate::manager::Core;
use crate::{LockError, events};

/// Tries for a lock until it is granted, its tries are used up, or something says that trying is of no use.
///
/// # Cancel safety
///
/// If the future is dropped, a key that a request under way sets is freed behind it.
pub(crate) async fn acquire(core: Arc<Core>, hold: Arc<Hold>) -> Result<LockGuard, LockError> {
    let call = core.enter()?;
    let mut pauses = None;
    let mut claim = Claim::new(&call.core, &hold);
    loop {
        let refusal = match claim.attempt().await {
            Ok(strays) => {
                drop(claim);
                let guard = LockGuard::new(call, hold.clone(), strays);
                events::acquired(&hold);
                // Where a shutdown came first, dropping the guard gives the lock back.
                return guard.ensure_open().map(|()| guard);
            }
            Err(refusal) => refusal,
        };
        let last = hold.attempt() > u64::from(hold.terms.retry) || refusal.is_lasting();
        refusal.report(&hold, last);
        if last {
            let waited = Time::now().saturating_since(claim.started);
            return Err(refusal.into_error(&hold, waited));
        }
        let pause = pauses.get_or_insert_with(|| hold.terms.backoff.pauses()).next(refusal.remaining());
        call.core.pause(pause).await?;
    }
}

/// A call's claim to a lock: its attempts so far. If it is dropped before a grant, what it may have left is freed.
struct Claim<'a> {
    core: &'a Arc<Core>,
    hold: &'a Arc<Hold>,
    started: Time,
    in_flight: bool,
    strays: Strays,
    /// Whether a request met a connection at its end, and was repeated.
    interrupted: bool,
}

/// Requests that had no answer, and so may have set the key or may set it yet.
#[derive(Default)]
pub(crate) struct Strays {
    pub(crate) requests: u32,
    /// The ways that they took, as far as is known.
    pub(crate) routes: Vec<Arc<dyn Route>>,
}

impl<'a> Claim<'a> {
    fn new(core: &'a Arc<Core>, hold: &'a Arc<Hold>) -> Claim<'a> {
        Claim { core, hold, started: Time::FAR_FUTURE, in_flight: false, strays: Strays::default(), interrupted: false }
    }

    async fn attempt(&mut self) -> Result<Strays, Refusal> {
        let which = if self.hold.count_attempt() == 1 { Attempt::First } else { Attempt::Repeated };
        match self.request(which).await {
            // An idle connection may have been closed by the server, or by something on the way to it. That is no failed
            // attempt, so the caller is not troubled with it.
            Err(Refusal::Failed(error)) if error.is_interrupted() && !self.interrupted => {
                self.interrupted = true;
                self.request(Attempt::Repeated).await
            }
            answer => answer,
        }
    }

    async fn request(&mut self, attempt: Attempt) -> Result<Strays, Refusal> {
        self.in_flight = true;
        let mut route = RouteNote { routes: &mut self.strays.routes, route: None };
        let sent = Time::now();
        self.started = self.started.min(sent);
        let answer = self.core.backend().acquire(self.hold.entry(), attempt, &mut route.route).await;
        self.in_flight = false;
        match answer {
            Ok(Acquired::Granted) if Time::now() < lease::deadline(sent, self.hold.terms.ttl) => {
                route.forget();
                self.core.watchdog().watch(self.hold, sent);
                Ok(std::mem::take(&mut self.strays))
            }
            // The next try recognises our token and starts the expiry anew; without one the key is freed.
            Ok(Acquired::Granted) => {
                drop(route);
                self.strays.requests += 1;
                Err(Refusal::Late)
            }
            Ok(Acquired::Held { value, remaining }) => {
                route.forget();
                Err(Refusal::Held { holder: owner(&value), remaining })
            }
            Err(error) => {
                if error.is_unanswered() {
                    drop(route);
                    self.strays.requests = self.strays.requests.saturating_add(1);
                } else {
                    route.forget();
                }
                Err(Refusal::Failed(error))
            }
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut strays = std::mem::take(&mut self.strays);
        strays.requests = strays.requests.saturating_add(u32::from(self.in_flight));
        if strays.requests > 0 {
            self.core.watchdog().free_strays(self.hold, strays);
        }
    }
}

/// The way that the backend noted for the attempt under way. It is kept with the claim unless it is known not to matter.
struct RouteNote<'a> {
    routes: &'a mut Vec<Arc<dyn Route>>,
    route: Option<Arc<dyn Route>>,
}

impl RouteNote<'_> {
    /// Each way keeps a connection open, so only the latest are kept.
    const MOST: usize = 4;

    fn forget(mut self) {
        self.route = None;
    }
}

impl Drop for RouteNote<'_> {
    fn drop(&mut self) {
        let Some(route) = self.route.take() else { return };
        self.routes.retain(|known| !std::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(&route)));
        if self.routes.len() >= RouteNote::MOST {
            self.routes.remove(0);
        }
        self.routes.push(route);
    }
}

/// Why an attempt did not bring the lock.
enum Refusal {
    Held { holder: String, remaining: Duration },
    Late,
    Failed(BackendError),
}

impl Refusal {
    fn is_lasting(&self) -> bool {
        matches!(self, Refusal::Failed(error) if !error.is_passing())
    }

    fn remaining(&self) -> Option<Duration> {
        match self {
            Refusal::Held { remaining, .. } => Some(*remaining),
            Refusal::Late | Refusal::Failed(_) => None,
        }
    }

    fn report(&self, hold: &Hold, last: bool) {
        match self {
            Refusal::Held { holder, remaining } => events::refused(hold, holder, *remaining, last),
            Refusal::Late => events::late_grant(hold),
            Refusal::Failed(error) => events::failed(hold, error),
        }
    }

    fn into_error(self, hold: &Hold, waited: Duration) -> LockError {
        let key = hold.key.to_string();
        let attempts = u32::try_from(hold.attempt()).unwrap_or(u32::MAX);
        let source = match self {
            Refusal::Held { holder, remaining } => return LockError::Busy { key, holder, remaining, attempts, waited },
            Refusal::Failed(error) if error.is_foreign() => {
                return LockError::ForeignValue { key, found: error.to_string() };
            }
            Refusal::Failed(error) => error,
            Refusal::Late => BackendError::unanswered("the lock was granted only after its lease had ended"),
        };
        LockError::Backend { operation: format!("acquire lock `{key}`"), attempts, source }
    }
}

/// The owner's label in a value of ours, or as much of a value of somebody else's as fits a message.
fn owner(value: &str) -> String {
    match value.split_at_checked(36) {
        Some((token, rest)) if uuid::Uuid::try_parse(token).is_ok() => rest.trim_start_matches('/').to_owned(),
        _ => value.chars().take(64).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_named_by_its_label() {
        assert_eq!(owner("0f8fad5b-d9cb-469f-a165-70867728950e/web-1/3121"), "web-1/3121");
        assert_eq!(owner("locked-by-a-python-script"), "locked-by-a-python-script");
        assert_eq!(owner(&"x".repeat(100)).len(), 64);
    }
}
