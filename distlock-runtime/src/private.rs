//! What the attribute's expansion calls. Nothing here is for people to use, or to rely on.

use std::fmt::Display;
use std::sync::{Arc, OnceLock};

pub use std::boxed::Box;

pub use core::option::Option;
pub use core::time::Duration;
pub use core::{concat, format_args, module_path, stringify};

pub use crate::key::Keys;
pub use crate::key::{Key, KeyBuilder};
pub use crate::options::{Mode, OnLost, Options};
pub use crate::{Backoff, FencingToken, Lease, LockError, LockManager};

use crate::hold::Hold;
use crate::run::{Prepared, Settle};
use crate::scope;

/// The key of `key = expression`.
///
/// # Errors
///
/// [`LockError::InvalidKey`] if it is empty or too long, or fails to render.
pub fn key_of<T: Display + ?Sized>(key: &T) -> Result<Key, LockError> {
    Key::render(&key)
}

/// The keys of `keys = [..]`.
///
/// # Errors
///
/// That of the first key that can't be used, and [`LockError::InvalidKey`] if there is none.
pub fn keys<const N: usize>(keys: [Result<Key, LockError>; N]) -> Result<Keys, LockError> {
    Keys::new(keys.into_iter().collect::<Result<_, _>>()?)
}

/// The keys of `keys = expression`.
///
/// # Errors
///
/// As for [`keys`].
pub fn keys_of<T: Display>(keys: impl IntoIterator<Item = T>) -> Result<Keys, LockError> {
    Keys::new(keys.into_iter().map(|key| key_of(&key)).collect::<Result<_, _>>()?)
}

/// The manager in scope, else the installed one.
///
/// # Errors
///
/// [`LockError::NotInstalled`] if there is neither.
pub fn manager() -> Result<LockManager, LockError> {
    scope::manager()
}

/// The manager of `manager = expression`.
///
/// # Errors
///
/// None. It has the form of [`manager`], so that [`Call::new`] takes both.
pub fn use_manager(manager: &LockManager) -> Result<LockManager, LockError> {
    Ok(manager.clone())
}

/// A call of an annotated function.
#[allow(missing_debug_implementations)]
pub struct Call(State);

#[allow(clippy::large_enum_variant)] // A box would cost every call.
enum State {
    Prepared(Prepared),
    Later(Later),
}

/// What is known of a call whose future was made, but not polled.
struct Later {
    manager: Option<Result<LockManager, LockError>>,
    keys: Result<Keys, LockError>,
    options: Options,
    function: &'static str,
    lease: Option<Arc<OnceLock<Lease>>>,
}

impl Call {
    /// Makes the call ready. What is wrong with it is told when it runs.
    pub fn new(
        manager: Result<LockManager, LockError>,
        keys: Result<impl Into<Keys>, LockError>,
        options: Options,
        function: &'static str,
    ) -> Call {
        Call(State::Prepared(prepare(manager, keys.map(Into::into), &options, function)))
    }

    /// Makes a call for a function that returns its future, and may not be in its scope yet: without a manager, the one
    /// is taken that is in scope when the future is first polled.
    pub fn later(
        manager: Option<Result<LockManager, LockError>>,
        keys: Result<impl Into<Keys>, LockError>,
        options: Options,
        function: &'static str,
    ) -> Call {
        Call(State::Later(Later { manager, keys: keys.map(Into::into), options, function, lease: None }))
    }

    /// The lease that the body will run under, for the body to use. If there will be none, the body does not run.
    pub fn lease(&self) -> Lease {
        match &self.0 {
            State::Prepared(Ok((_, hold))) => Lease { hold: hold.clone() },
            State::Prepared(Err(_)) | State::Later(_) => no_lease(),
        }
    }

    /// Where the lease will be when the body is polled.
    pub fn later_lease(&mut self) -> LaterLease {
        LaterLease(match &mut self.0 {
            State::Later(later) => later.lease.get_or_insert_default().clone(),
            State::Prepared(_) => Arc::default(),
        })
    }

    fn prepare(self) -> Prepared {
        match self.0 {
            State::Prepared(prepared) => prepared,
            State::Later(later) => later.prepare(),
        }
    }
}

impl Later {
    fn prepare(self) -> Prepared {
        let manager = self.manager.unwrap_or_else(manager);
        let prepared = prepare(manager, self.keys, &self.options, self.function)?;
        if let Some(lease) = self.lease {
            // It is empty: a call is prepared once.
            let _ = lease.set(Lease { hold: prepared.1.clone() });
        }
        Ok(prepared)
    }
}

fn prepare(
    manager: Result<LockManager, LockError>,
    keys: Result<Keys, LockError>,
    options: &Options,
    function: &'static str,
) -> Prepared {
    manager.and_then(|manager| manager.core.prepare(keys?, options, Some(function)))
}

fn no_lease() -> Lease {
    Lease { hold: Arc::new(Hold::never()) }
}

/// The lease of a body that was made before its call was.
#[allow(missing_debug_implementations)]
pub struct LaterLease(Arc<OnceLock<Lease>>);

impl LaterLease {
    /// The same for one more future.
    #[must_use]
    pub fn again(&self) -> LaterLease {
        LaterLease(self.0.clone())
    }

    /// The lease, in a body that runs. It takes `self`, so that also a block without `move` owns it.
    pub fn get(self) -> Lease {
        self.0.get().cloned().unwrap_or_else(no_lease)
    }
}

/// The fencing token of a lease that was asked to bring one, in a body that runs.
#[allow(clippy::needless_pass_by_value)] // What it is bound from is not used again.
pub fn fencing_token(lease: Lease) -> FencingToken {
    lease.fencing_token().unwrap_or(FencingToken::MIN)
}

/// Makes the body's future. Inside a closure, a `return` of the user's does not get past the lock.
pub fn begin<F: Future>(body: impl FnOnce() -> F) -> F {
    body()
}

/// Runs the body under the call's lock.
///
/// What is asked of the return type, or of `or_else`, is asked by [`by_outcome`] or [`or_else`] alone: a bound here would also
/// be one of the future's type, and the compiler would complain twice.
pub fn run<F: Future, G>(call: Call, body: F, settling: Settling<F::Output, G>) -> impl Future<Output = F::Output> {
    crate::run::run(|| call.prepare(), body, settling)
}

/// Runs the body under the call's lock, with what [`or_else`] puts beside it.
pub fn run_or_else<F: Future, G>(
    call: Call,
    (body, settling): (F, Settling<F::Output, G>),
) -> impl Future<Output = F::Output> {
    run(call, body, settling)
}

/// What a function may return whose lock can fail.
#[diagnostic::on_unimplemented(
    message = "a function with `#[distributed_lock]` must be able to return that it did not get its lock",
    label = "this has no place for a `LockError`",
    note = "return a `Result<T, E>` with `E: From<LockError>`, or say with `or_else = |error| ..` what to return instead"
)]
pub trait Outcome {
    /// The lock failed.
    fn lock_failed(error: LockError) -> Self;

    /// Whether the body failed by itself, so that its own error comes first.
    fn is_failure(&self) -> bool;
}

/// The error that such a function returns.
#[diagnostic::on_unimplemented(
    message = "a function with `#[distributed_lock]` returns a `LockError` if it does not get its lock, and `{Self}` can't be made of one",
    label = "its error needs `From<LockError>`",
    note = "add `impl From<distlock::LockError> for ..` (`#[from]` with thiserror), or say what to return instead, as in `or_else = |error| Err(..)`"
)]
pub trait Failure {
    /// The lock failed.
    fn lock_failed(error: LockError) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<LockError>> Failure for E {
    fn lock_failed(error: LockError) -> Self {
        error.into()
    }
}

impl<T, E: Failure> Outcome for Result<T, E> {
    fn lock_failed(error: LockError) -> Self {
        Err(E::lock_failed(error))
    }

    fn is_failure(&self) -> bool {
        self.is_err()
    }
}

/// What `or_else` may be.
#[diagnostic::on_unimplemented(
    message = "`or_else` must be a closure of one argument that returns what the function returns",
    label = "this takes no `LockError`, or returns something else",
    note = "write `or_else = |error| ..`"
)]
pub trait OrElse<R>: FnOnce(LockError) -> R {}

impl<R, G: FnOnce(LockError) -> R> OrElse<R> for G {}

/// What a call returns where its lock fails.
#[allow(missing_debug_implementations)]
pub struct Settling<R, G> {
    given: G,
    failed: fn(G, LockError) -> R,
    lost: fn(G, R, LockError) -> R,
}

/// The way to settle that a return type brings with it.
pub fn by_outcome<R: Outcome>() -> Settling<R, ()> {
    let lost = |(), returned: R, error| if returned.is_failure() { returned } else { R::lock_failed(error) };
    Settling { given: (), failed: |(), error| R::lock_failed(error), lost }
}

/// The body, and beside it the way to settle by a closure. The compiler looks at the body first, and so knows what the
/// closure must return before it looks at that.
pub fn or_else<F: Future, G: OrElse<F::Output>>(body: F, or_else: G) -> (F, Settling<F::Output, G>) {
    let settling = Settling {
        given: or_else,
        failed: |or_else: G, error| or_else(error),
        lost: |or_else, _, error| or_else(error),
    };
    (body, settling)
}

impl<R, G> Settle<R> for Settling<R, G> {
    fn failed(self, error: LockError) -> R {
        (self.failed)(self.given, error)
    }

    fn lost(self, returned: R, error: LockError) -> R {
        (self.lost)(self.given, returned, error)
    }
}
