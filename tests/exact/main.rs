//! The annotated function against the plain one: the same lints, the same errors, the same behaviour.
//!
//! The tests that compare what the compiler says build small crates in the target folder, once with the attribute and
//! once without it. In the code of both, everything stands on the same line and column.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod scratch;
mod lints;
mod errors;
mod suggestions;
mod inference;
mod drops;
mod futures;
mod keys;

/// Runs a future on this thread alone.
fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
