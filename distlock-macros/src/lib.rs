//! The attribute of `distlock`: see [`macro@distributed_lock`].
//!
//! Read in this order: `args` is the syntax, `check` makes a `Spec` of it, `expand` writes the function. What one
//! stage gives the next is a plain value, and all mistakes are reported at once.

mod args;
mod names;
mod suggest;
mod mistakes;
mod function;
mod returning;
mod check;
mod key;
mod template;
mod hygiene;
mod options;
mod words;
mod duration;
mod expand;
mod call;
mod params;
mod mentions;
mod erase;

use proc_macro2::TokenStream;
use quote::ToTokens;

use crate::args::Args;
use crate::check::Spec;
use crate::function::Function;
use crate::mistakes::Mistakes;

/// Makes the body of an async function a critical section across processes and machines.
///
/// ```ignore
/// use distlock::{LockError, distributed_lock};
///
/// #[distributed_lock(key = "order:<id>", ttl = "30s", retry = 3)]
/// async fn pay(id: u64, amount: Cents) -> Result<Receipt, OrderError> {
///     // At most one call for each `id` is here at a time.
/// }
/// ```
///
/// The body runs only while the lock is held. If the lock is not to be had, or is lost, the function returns the
/// `LockError`, made into its own error by `From`; a function that returns no `Result` says what to return instead
/// with `or_else`.
///
/// # Arguments
///
/// | argument | value | default | meaning |
/// |---|---|---|---|
/// | `key` | template literal, or any expression that is `Display` | this or `keys` | what is locked |
/// | `keys` | `["account:<from>", "account:<to>"]`, or an expression that is an `IntoIterator` of what is `Display` | - | several locks, all or none; in one order for everybody, one that is named twice counts once |
/// | `global` | a flag, without value | - | one lock for all arguments is meant: `key = "nightly-report", global` |
/// | `ttl` | `"30s"`, `"1m 30s"`, `"500ms"`, or an expression of type `Duration` | the manager's | how long a lease lasts; 100 ms to 24 h |
/// | `retry` | integer, or an expression of type `u32` | the manager's | tries after the first |
/// | `backoff` | `"50ms..800ms"`, or an expression of type `Backoff` | the manager's | the first and the longest delay between tries |
/// | `wait` | duration, as for `ttl` | none | stand in line for the lock, first come first served, for so long at most; 1 ms to 24 h; over several servers (`redlock://`) it polls |
/// | `watchdog` | `true` or `false`, or an expression of type `bool` | `true` | renew the lease while the body runs |
/// | `max_hold` | duration, as for `ttl` | none | stop renewing, and the body, after so long; the manager's ttl, if no other is given, gives way to a shorter one |
/// | `on_lost` | `cancel` or `finish` | `cancel` | what happens to the body if the lock is lost |
/// | `or_else` | closure or function from `LockError` to the return type | - | what to return when the lock is not to be had |
/// | `lease` | a name | - | binds a `Lease` under that name in the body (in its `async` blocks, if it returns its future) |
/// | `fencing_token` | a name | - | binds a `FencingToken` under that name in the body, as `lease` does |
/// | `mode` | `exclusive`, `read` or `write` | `exclusive` | readers share the lock with each other, see below |
/// | `permits` | integer, or an expression of type `u32` | - | so many hold the lock at the same time at most, see below; 1 to 10,000 |
/// | `reentrant` | `true` or `false`, or an expression of type `bool` | `true` | pass under the same lock where the calling task holds it, or fail with `WouldDeadlock` |
/// | `manager` | an expression of type `LockManager` | the one in scope, else the installed one | which manager to ask |
/// | `crate` | a path | `::distlock` | where the crate is, if it was renamed or is re-exported |
///
/// Literals are checked while compiling. Anything else is an expression, which sees the parameters and is evaluated
/// once, before the body. Only `or_else` comes later, when the parameters have moved into the body: of what the body has
/// moved it sees what is `Copy`, as shared references are, and no bindings of patterns.
///
/// Of `keys`, each is a template or an expression as for `key`, and each must name a parameter unless `global` is said.
///
/// # Key templates
///
/// `<expr>` and `{expr}` are placeholders, and mean the same; `<<`, `>>`, `{{` and `}}` are the characters themselves.
/// Inside stands a parameter, a binding of a pattern, `self`, or any expression over them: `<order.id>`,
/// `<Self::KIND>`, `{req.user_id()}`. After a `:` may follow a format, as in `{id:04}` or `{kind:?}`.
///
/// Different arguments make different keys. In a value, the first character of what follows the placeholder, `%` and
/// control characters are percent-encoded, so that no value runs into what stands behind it. A value that renders to
/// nothing, or to blanks, is refused when the function is called, and so is a key of more than 1,024 bytes. (What a
/// format or a `Display` makes equal is equal: `{id:>4}` of `7` and of `" 7"`.)
///
/// A placeholder ends at the first `>` or `}` before which an expression is complete. So `<order.items::<u8>()>` is
/// one placeholder, and a comparison belongs into braces, `{a > b}`. The last `:` that isn't part of a `::` starts the
/// format, unless the whole is an expression with it.
///
/// Between two placeholders must stand something, or `<a><b>` would be the same key for `1`, `23` and `12`, `3`. A
/// key that names no parameter, on a function that has some, needs `global`. That holds for expressions, too, in which a
/// text names one only inside of a macro: `format!("order:{id}")` does, `"order:{id}".to_owned()` does not.
///
/// # Readers and writers
///
/// With `mode = read` any number of calls hold the lock at the same time; with `mode = write` one call, and no reader. Nobody
/// else holds it under `mode = exclusive` either, which is what a function without `mode` means: for the lock it is the same as
/// `write`, and for people it says that there are no readers.
///
/// ```ignore
/// #[distributed_lock(key = "prices:<shop>", mode = read)]
/// async fn price(shop: u64, item: u64) -> Result<Cents, ShopError> {
///     // Other calls of `price` may be here, too, but none of `import`.
/// }
///
/// #[distributed_lock(key = "prices:<shop>", mode = write, wait = "10s")]
/// async fn import(shop: u64, list: PriceList) -> Result<(), ShopError> {
///     // Nobody else is here or in `price`.
/// }
/// ```
///
/// While somebody waits or tries to write, new readers are held back. A reader that calls a function which writes under the same
/// key gets `UpgradeNotSupported`. The words are no variables; what is decided at run time is `LockRequest::mode`.
///
/// # Permits
///
/// With `permits = n` at most `n` calls hold the lock at the same time, over all processes.
///
/// ```ignore
/// #[distributed_lock(key = "geocoder", global, permits = 5, wait = "10s")]
/// async fn locate(address: String) -> Result<Place, GeocoderError> {
///     // At most five calls are here at a time.
/// }
/// ```
///
/// Where callers name different numbers, the smallest counts of those who hold the lock and of who asks. `permits` and `mode`
/// exclude each other. Neither `permits` nor `mode = read` goes with `fencing_token`, which tells later holders from earlier ones.
/// An expression is judged when the function is called, and one beyond 1 to 10,000 is `InvalidOption`.
///
/// `mode` (other than `exclusive`) and `permits` are not to be had over several servers (`redlock://`).
///
/// # Expansion
///
/// The signature stays, but for patterns, which get a name (`__distlock_arg0`). With `distlock` for `::distlock::__private`, the function
/// above becomes
///
/// ```text
/// async fn pay(id: u64, amount: Cents) -> Result<Receipt, OrderError> {
///     let __distlock_key = distlock::KeyBuilder::new()
///         .literal("order:")
///         .last_value("id", distlock::format_args!("{}", id))
///         .finish();
///     let __distlock_call = distlock::Call::new(
///         distlock::manager(),
///         __distlock_key,
///         const { distlock::Options::new().ttl(distlock::Duration::from_millis(30000)).retry(3) },
///         distlock::concat!(distlock::module_path!(), "::", "pay"),
///     );
///     distlock::run(
///         __distlock_call,
///         async move {
///             if let distlock::Option::Some(__distlock_return) = distlock::Option::None::<Result<Receipt, OrderError>> {
///                 return __distlock_return;   // never reached; tells the compiler the type that was declared
///             }
///             let id = id;            // every parameter is moved into the body, and so dropped before the release
///             let _ = &id;            // used by the key, and so not unused
///             let amount = amount;
///             {
///                 // the body
///             }
///         },
///         distlock::by_outcome(),     // asks that the return type can hold a `LockError`
///     )
///     .await
/// }
/// ```
///
/// # Functions that return a future
///
/// What is said of an `async fn` holds for methods with any receiver, for those of traits and their impls, and for
/// functions that return `impl Future<Output = ..>`, `Pin<Box<dyn Future<Output = ..>>>`, `BoxFuture<..>` or
/// `LocalBoxFuture<..>`. `#[async_trait]` and `#[async_recursion]` make the latter.
///
/// Such a function has two parts. What stands before the future runs when the function is called, without the lock; the
/// future runs under the lock, which is taken when it is first polled.
///
/// ```ignore
/// #[distributed_lock(key = "order:<id>", lease = lease)]
/// fn pay(mut id: u64) -> impl Future<Output = Result<Receipt, OrderError>> + Send {
///     // Not locked. The key is already made, and `id` in it is what the caller gave.
///     id += 1;
///     async move {
///         // Locked; and here, in the `async` block, the lease is bound.
///         charge(id, &lease).await
///     }
/// }
/// ```
///
/// The key, `manager` and the options are evaluated when the function is called, so that the future need not keep the
/// parameters that they name. So neither `?` nor `.await` can stand in them, as they can on an `async fn`; the methods of
/// an `#[async_trait]` are such functions too. Only the manager in scope is looked up at the first poll, as for an `async fn`, so that
/// `manager.scope(pay(1))` does what it says. The function above becomes
///
/// ```text
/// fn pay(id: u64) -> impl Future<Output = Result<Receipt, OrderError>> + Send {
///     let mut __distlock_call = distlock::Call::later(..);
///     let __distlock_lease0 = __distlock_call.later_lease();
///     distlock::run(
///         __distlock_call,
///         distlock::begin(move || {       // called at once; a `return` in it does not get past the lock
///             let mut id = id;
///             {
///                 id += 1;
///                 async move {
///                     let lease = __distlock_lease0.get();
///                     charge(id, &lease).await
///                 }
///             }
///         }),
///         distlock::by_outcome(),
///     )
/// }
/// ```
///
/// and a boxed future is boxed again, `Box::pin(distlock::run(..))`.
///
/// # With other attributes
///
/// The compiler expands the upper of two attributes first, and the lower one sees what came out. So an attribute *above*
/// this one is nearer to the body, and what it adds happens under the lock; one *below* is around the lock.
///
/// | attribute | above `#[distributed_lock]` | below it |
/// |---|---|---|
/// | `#[distributed_lock]` | its lock is the outer one: taken first, freed last | its lock is the inner one |
/// | `#[async_trait]` | stands on the trait or the impl, and so always is | - |
/// | `#[async_recursion]` | every level takes its lock, or passes under that of the level above if the keys are the same | the same |
/// | `#[tracing::instrument]` | the span begins when the lock is held | the span includes waiting for the lock; but see below |
/// | `#[tokio::main]`, `#[tokio::test]` | an error: the function is no longer async | the body runs under the lock |
/// | `#[rstest]` | an error: the lock would be around the call without the parameters | every case takes its lock |
/// | `#[cfg_attr(.., ..)]` | as if what it adds stood there | the same, but for another `distributed_lock` (see below) |
///
/// Several attributes of this name nest in the order in which they are written, whatever stands between them, because the
/// first one expands all of them. It knows the others by the name `distributed_lock`: one that is imported under another
/// name, or added by `#[cfg_attr]`, is an attribute like any other, and so around the lock when it stands below.
///
/// Below this attribute, `#[instrument]` knows an `async fn`, but no function that returns its future, as those of an
/// `#[async_trait]` are: there, put it above.
///
/// An attribute below this one sees `__distlock_arg0` in place of a pattern. If it names what the pattern binds, as
/// `#[instrument(fields(n = %from))]` does with `(from, to): (u64, u64)`, it belongs above.
///
/// # Like the plain function
///
/// In all else the function is the one without the attribute. The compiler infers the same types, and its errors and
/// lints stand at the same tokens; `file!`, `line!` and panics are where they were written; the future is `Send` when
/// the plain one is; the arguments are dropped in the same order, all of them before the release is sent.
///
/// # Known limits
///
/// What can't be as in the plain function:
///
/// - The returned value waits for the release, so for the future to be `Send` it must be `Send`, too. Meanwhile it is kept
///   in the future, which grows by its size.
/// - The future grows by about 1 KB, whatever its body holds. But each parameter is moved once more, and takes up its
///   size once more; twice, if the key or another argument of the attribute uses it.
/// - The future is neither `Sync` nor `Unpin` nor `RefUnwindSafe`, even if the plain one is.
/// - A chain of more than ten locked functions that await each other needs `#![recursion_limit = "256"]`.
/// - Where the return type is a bare `impl Fn(..)`, the closure that is returned needs the types of its arguments written.
/// - An error about a return type that can't be may be repeated. An error about `?` calls the body an async block, and the
///   path of an item inside the body, as `type_name` shows it, has another `{closure#0}`.
/// - What the compiler offers for a value that a placeholder moves or borrows is to be written into the placeholder, even
///   if it is shown elsewhere in the attribute: a literal has no places inside.
/// - Of clippy's lints, `needless_return` does not see that the body's end is the function's; `unused_async` has nothing to
///   say, since to wait for a lock the function does need its `async`; `toplevel_ref_arg` does not see a `ref` before a
///   parameter; `needless_lifetimes` does not see a lifetime that the return type names; `async_yields_async` speaks where
///   the returned type is a future and its name does not say so; `shadow_same`, if it is asked for, speaks of every
///   parameter. Parameters that the attribute uses are used.
/// - A parameter `_name` is moved under an `allow` of `clippy::used_underscore_binding`, which a `forbid` of that refuses.
/// - Where the return type is a future, the compiler may call the end of a body that does not get there unreachable.
/// - `unused_assignments` also speaks of a field of `mut self` that is set and not read again, even by a `Drop`.
/// - In a function that returns its future, clippy does not see `manual_async_fn`, `needless_pass_by_value` and
///   `missing_errors_doc`; `#[track_caller]` reaches the statements before the future only where that is an `impl Future`;
///   the lease can't be used in an async closure there, and in a closure that the future keeps only if that is `move`.
///
/// # Errors
///
/// Mistakes are errors at the argument where they were made, all of them at once: an unknown argument (with the one
/// that was meant), one given twice, two that exclude each other, a value of the wrong kind, a duration without a unit or
/// out of range, a placeholder that is empty, unbalanced or names no parameter. The function itself stays, so that its callers raise no
/// further errors.
///
/// Only an `async fn` with a body, or a function that returns its future, can be locked. A function whose return type
/// can't hold a `LockError` gets one error under that type, which names both ways out.
#[proc_macro_attribute]
pub fn distributed_lock(args: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    attribute(args.into(), item.into()).into()
}

/// What was written stays, also if it can't be locked, so that one mistake is one error.
fn attribute(args: TokenStream, item: TokenStream) -> TokenStream {
    let failed = |error: syn::Error, item: TokenStream| {
        let mut tokens = error.into_compile_error();
        tokens.extend(item);
        tokens
    };
    let mut function: Function = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => return failed(error, item),
    };
    let lower = function.take_locks();
    // The attributes below this one are judged here, and so must not be left to be judged again.
    let kept = if lower.is_empty() { item } else { function.to_token_stream() };
    match check(args, lower, &function) {
        Ok((spec, lower)) => expand::expand(function, &spec, &lower),
        Err(error) => failed(error, kept),
    }
}

/// Judges this attribute and those below it.
fn check(args: TokenStream, lower: Vec<TokenStream>, function: &Function) -> syn::Result<(Spec, Vec<Spec>)> {
    let check = |args| check::check(Args::read(args), function);
    let mut mistakes = Mistakes::default();
    let lower = lower.into_iter().filter_map(|args| check(args).map_err(|error| mistakes.push(error)).ok());
    let lower: Vec<Spec> = lower.collect();
    match check(args) {
        Ok(spec) => {
            check::bindings([&spec].into_iter().chain(&lower), &mut mistakes);
            mistakes.or((spec, lower))
        }
        Err(mut error) => {
            error.extend(mistakes.or(()).err());
            Err(error)
        }
    }
}

#[cfg(test)]
mod snapshots;
