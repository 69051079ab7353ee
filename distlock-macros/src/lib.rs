//! The attribute of `distlock`: see [`macro@distributed_lock`].
//!
//! Read in this order: `args` is the syntax, `check` makes a `Spec` of it, `expand` writes the function. What one
//! stage gives the next is a plain value, and all mistakes are reported at once.

mod args;
mod names;
mod suggest;
mod mistakes;
mod function;
mod check;
mod key;
mod template;
mod options;
mod duration;
mod expand;
mod params;
mod mentions;
mod erase;

use proc_macro2::TokenStream;

use crate::args::Args;
use crate::function::Function;

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
/// | `key` | template literal, or any expression that is `Display` | required | what is locked |
/// | `global` | a flag, without value | - | one lock for all arguments is meant: `key = "nightly-report", global` |
/// | `ttl` | `"30s"`, `"1m 30s"`, `"500ms"`, or an expression of type `Duration` | the manager's | how long a lease lasts; 100 ms to 24 h |
/// | `retry` | integer, or an expression of type `u32` | the manager's | tries after the first |
/// | `backoff` | `"50ms..800ms"`, or an expression of type `Backoff` | the manager's | the first and the longest delay between tries |
/// | `watchdog` | `true` or `false`, or an expression of type `bool` | `true` | renew the lease while the body runs |
/// | `max_hold` | duration, as for `ttl` | none | stop renewing, and the body, after so long |
/// | `on_lost` | `cancel` or `finish` | `cancel` | what happens to the body if the lock is lost |
/// | `or_else` | closure or function from `LockError` to the return type | - | what to return when the lock is not to be had |
/// | `lease` | a name | - | binds a `Lease` under that name in the body |
/// | `manager` | an expression of type `LockManager` | the one in scope, else the installed one | which manager to ask |
/// | `crate` | a path | `::distlock` | where the crate is, if it was renamed or is re-exported |
///
/// Literals are checked while compiling. Anything else is an expression, which sees the parameters and is evaluated
/// once, before the body. Only `or_else` comes later, when the parameters have moved into the body: it sees those that
/// are `Copy`, and no bindings of patterns.
///
/// The names `keys`, `wait`, `fencing_token`, `mode`, `permits` and `reentrant` are kept for what is not built yet.
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
/// template without placeholders on a function with parameters needs `global`.
///
/// # Expansion
///
/// The signature stays, but for patterns, which get a name. With `distlock` for `::distlock::__private`, the function
/// above becomes
///
/// ```text
/// async fn pay(id: u64, amount: Cents) -> Result<Receipt, OrderError> {
///     let call = distlock::Call::new(
///         distlock::manager(),
///         distlock::KeyBuilder::new()
///             .literal("order:")
///             .last_value("id", distlock::format_args!("{}", id))
///             .finish(),
///         const { distlock::Options::new().ttl(distlock::Duration::from_millis(30000)).retry(3) },
///         distlock::concat!(distlock::module_path!(), "::", "pay"),
///     );
///     distlock::run(
///         call,
///         async move {
///             if let distlock::Option::Some(ret) = distlock::Option::None::<Result<Receipt, OrderError>> {
///                 return ret;         // never reached; tells the compiler the type that was declared
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
/// # Like the plain function
///
/// In all else the function is the one without the attribute. The compiler infers the same types, and its errors and
/// lints stand at the same tokens; `file!`, `line!` and panics are where they were written; the future is `Send` when
/// the plain one is; the arguments are dropped in the same order, all of them before the release is sent. What can't be
/// so:
///
/// - The returned value waits for the release, so for the future to be `Send` it must be `Send`, too.
/// - The future grows by about 1 KB, whatever its body holds. But each parameter is moved once more, and takes up its
///   size once more; twice, if the key or another argument of the attribute uses it.
/// - `clippy::unused_async` has nothing to say, since to wait for a lock the function does need its `async`. Parameters
///   that the attribute uses are used. `clippy::toplevel_ref_arg` does not see a `ref` before a parameter.
/// - `unused_assignments` also speaks of a field of `mut self` that is set and not read again, even by a `Drop`.
/// - An error about `?` calls the body an async block, and the path of an item inside the body, as `type_name` shows
///   it, has another `{closure#0}`.
///
/// # Other attributes
///
/// Attributes are expanded from the top down, and each sees what those above it have made. So what stands above
/// `#[distributed_lock]` works on the body, inside the lock, and what stands below it works on the locked function:
///
/// - `#[tracing::instrument]` below it has a span that includes the time spent waiting for the lock; above it, the span
///   is that of the body.
/// - `#[tokio::test]` and `#[tokio::main]`, which take the `async` away, stand below it.
/// - `#[cfg]`, `#[must_use]`, `#[deprecated]`, lint levels and doc comments keep their meaning on either side.
///
/// # Errors
///
/// Mistakes are errors at the argument where they were made, all of them at once: an unknown argument (with the one
/// that was meant), one given twice, a value of the wrong kind, a duration without a unit or out of range, a
/// placeholder that is empty, unbalanced or names no parameter. The function itself stays, so that its callers raise no
/// further errors.
///
/// Only an `async fn` with a body can be locked. A function whose return type can't hold a `LockError` gets one error
/// under that type, which names both ways out.
#[proc_macro_attribute]
pub fn distributed_lock(args: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    attribute(args.into(), item.into()).into()
}

/// What was written stays, also if it can't be locked, so that one mistake is one error.
fn attribute(args: TokenStream, item: TokenStream) -> TokenStream {
    lock(args, item.clone()).unwrap_or_else(|error| {
        let mut tokens = error.into_compile_error();
        tokens.extend(item);
        tokens
    })
}

fn lock(args: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let function: Function = syn::parse2(item)?;
    let spec = check::check(Args::read(args), &function)?;
    Ok(expand::expand(function, &spec))
}

#[cfg(test)]
mod snapshots;
