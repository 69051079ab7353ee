use std::panic::UnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tracing::Span;

use crate::acquire::acquire;
use crate::guard::{LockGuard, NotFreed};
use crate::hold::Hold;
use crate::manager::Core;
use crate::nest::Polling;
use crate::{LockError, OnLost};

/// A call that is ready to be made, or that can't be.
pub(crate) type Prepared = Result<(Arc<Core>, Arc<Hold>), LockError>;

/// What becomes of a call's result when its lock fails.
pub(crate) trait Settle<T> {
    /// The body did not run, or not to its end.
    fn failed(self, error: LockError) -> T;

    /// The body ran to its end, but its lock was lost before it was released.
    fn lost(self, returned: T, error: LockError) -> T;
}

/// Runs `body` under the lock that `prepare` describes, and settles by `settle` what comes of it. It is asked at the first
/// poll, since only there is it known which manager is in scope.
pub(crate) fn run<F: Future, S: Settle<F::Output>>(
    prepare: impl FnOnce() -> Prepared,
    body: F,
    settle: S,
) -> impl Future<Output = F::Output> {
    let phase = Phase::Preparing { prepare: Some(prepare) };
    Run { body: Some(body), phase, hold: None, part: Span::none(), settle: Some(settle), acquire, free }
}

/// A panic in the middle of a call leaves nothing half done: what is ours is freed on the way. So it is for the user's
/// own parts to say, as it is without the lock.
impl<F: Future + UnwindSafe, P, A, S: UnwindSafe, R> UnwindSafe for Run<F, P, A, S, R> {}

async fn free(mut guard: LockGuard) -> Result<(), NotFreed> {
    guard.free().await
}

pin_project! {
    /// A call under a lock: acquire, hold, release.
    ///
    /// It is written by hand, since an async function would store the body twice, as its argument and as what it awaits,
    /// and a body can be large.
    struct Run<F: Future, P, A, S, R> {
        // Before the phase, which has the guard: fields are dropped in this order, and the lock is freed after the body
        // is gone.
        #[pin]
        body: Option<F>,
        #[pin]
        phase: Phase<P, A, R, F::Output>,
        hold: Option<Arc<Hold>>,
        // Of the call's span, the part that is under way.
        part: Span,
        settle: Option<S>,
        acquire: fn(Arc<Core>, Arc<Hold>) -> A,
        free: fn(LockGuard) -> R,
    }
}

pin_project! {
    #[project = PhaseProjection]
    enum Phase<P, A, R, T> {
        Preparing { prepare: Option<P> },
        Refused { error: Option<LockError> },
        Acquiring { #[pin] acquiring: A },
        Holding { guard: Option<LockGuard> },
        Releasing { #[pin] releasing: R, returned: Option<T> },
        Done,
    }
}

impl<F, P, A, S, R> Future for Run<F, P, A, S, R>
where
    F: Future,
    P: FnOnce() -> Prepared,
    A: Future<Output = Result<LockGuard, LockError>>,
    S: Settle<F::Output>,
    R: Future<Output = Result<(), NotFreed>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        if let PhaseProjection::Preparing { prepare } = this.phase.as_mut().project() {
            let Some(prepare) = prepare.take() else { return Poll::Pending };
            match prepare() {
                Ok((core, hold)) => {
                    *this.part = hold.audience.acquiring();
                    *this.hold = Some(hold.clone());
                    this.phase.set(Phase::Acquiring { acquiring: (this.acquire)(core, hold) });
                }
                Err(error) => this.phase.set(Phase::Refused { error: Some(error) }),
            }
        }
        let hold = this.hold.as_deref();
        let _in_span = hold.map(|hold| hold.audience.span.enter());
        let mut judged = false;
        let ended = loop {
            // Each arm sets the next phase by itself: what is moved then is as large as that, and not as the largest.
            match this.phase.as_mut().project() {
                PhaseProjection::Refused { error } => {
                    let Some(error) = error.take() else { return Poll::Pending };
                    break Ended::Failed(error);
                }
                PhaseProjection::Acquiring { acquiring } => {
                    let acquired = ready!(this.part.in_scope(|| acquiring.poll(cx)));
                    match acquired.and_then(|guard| begin_to_hold(guard, hold, this.part)) {
                        Ok(guard) => this.phase.set(Phase::Holding { guard: Some(guard) }),
                        Err(error) => break Ended::Failed(error),
                    }
                    judged = true;
                }
                PhaseProjection::Holding { guard } => {
                    match ready!(this.part.in_scope(|| poll_holding(guard, this.body.as_mut(), judged, cx))) {
                        Ok((guard, returned)) => {
                            *this.part = Span::none();
                            this.phase
                                .set(Phase::Releasing { releasing: (this.free)(guard), returned: Some(returned) });
                        }
                        Err(error) => break Ended::Failed(error),
                    }
                }
                PhaseProjection::Releasing { releasing, returned } => {
                    let freed = ready!(releasing.poll(cx));
                    match (returned.take(), hold) {
                        (Some(returned), Some(hold)) => break Ended::after_release(returned, &freed, hold),
                        _ => return Poll::Pending,
                    }
                }
                // To poll a future after its end, or after it panicked, is a mistake of the caller's, but none to panic for.
                PhaseProjection::Preparing { .. } | PhaseProjection::Done => return Poll::Pending,
            }
        };
        this.body.set(None);
        this.phase.set(Phase::Done);
        *this.part = Span::none();
        this.settle.take().map_or(Poll::Pending, |settle| Poll::Ready(ended.settle(settle)))
    }
}

enum Ended<T> {
    Returned(T),
    Failed(LockError),
    Lost(T, LockError),
}

impl<T> Ended<T> {
    /// What a body returned stands, whatever became of the release; unless its lock turned out to have been lost.
    fn after_release(returned: T, freed: &Result<(), NotFreed>, hold: &Hold) -> Ended<T> {
        match freed {
            Err(NotFreed::Lost(reason)) if hold.terms.on_lost == OnLost::Cancel => {
                Ended::Lost(returned, hold.lost_error(*reason))
            }
            Ok(()) | Err(_) => Ended::Returned(returned),
        }
    }

    fn settle(self, settle: impl Settle<T>) -> T {
        match self {
            Ended::Returned(returned) => returned,
            Ended::Failed(error) => settle.failed(error),
            Ended::Lost(returned, error) => settle.lost(returned, error),
        }
    }
}

/// Gets ready for the body. None begins under a lock that is lost by now, whatever happens to one that runs.
fn begin_to_hold(guard: LockGuard, hold: Option<&Hold>, part: &mut Span) -> Result<LockGuard, LockError> {
    // The body's lease was made before the attempts, of which each may have had a hold of its own.
    hold.inspect(|hold| hold.stands_for(guard.hold()));
    *part = guard.hold().audience.holding();
    guard.ensure_held().map(|()| guard)
}

/// Polls the body while its lock is held. The guard comes back with what the body returned, after the body is gone.
fn poll_holding<F: Future>(
    place: &mut Option<LockGuard>,
    mut body: Pin<&mut Option<F>>,
    judged: bool,
    cx: &mut Context<'_>,
) -> Poll<Result<(LockGuard, F::Output), LockError>> {
    // Out of its place while the body is polled: if the body panics, the lock is freed on the way.
    let Some(guard) = place.take() else { return Poll::Pending };
    match poll_body(&guard, body.as_mut(), judged, cx) {
        Poll::Pending => {
            *place = Some(guard);
            Poll::Pending
        }
        Poll::Ready(ended) => {
            body.set(None);
            Poll::Ready(ended.map(|returned| (guard, returned)))
        }
    }
}

/// Polls the body if its lease is good. The lease is judged by the clock before every poll, unless that was done just now, so
/// that a process that was paused for longer than its lease does not take another step.
fn poll_body<F: Future>(
    guard: &LockGuard,
    body: Pin<&mut Option<F>>,
    judged: bool,
    cx: &mut Context<'_>,
) -> Poll<Result<F::Output, LockError>> {
    let hold = guard.hold();
    let cancels = hold.terms.on_lost == OnLost::Cancel;
    let check = || guard.ensure_held();
    if !judged && let (Err(error), true) = (check(), cancels) {
        return Poll::Ready(Err(error));
    }
    let Some(body) = body.as_pin_mut() else { return Poll::Pending };
    let polling = Polling::begin(guard.core(), hold);
    if let Poll::Ready(returned) = body.poll(cx) {
        return Poll::Ready(Ok(returned));
    }
    drop(polling);
    if cancels {
        for hold in hold.group() {
            hold.watch_body(cx.waker());
        }
        // A loss before this line woke nobody.
        check()?;
    }
    Poll::Pending
}
