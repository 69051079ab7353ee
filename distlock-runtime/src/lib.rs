//! What `distlock` does at run time: leases, the watchdog that keeps them alive, and the backends that they are kept in.
//! Use it through the crate `distlock`, which adds the attribute and the documentation.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

#[doc(hidden)]
pub mod private;

mod request;
mod manager;
mod builder;
mod scope;
mod run;
mod acquire;
mod nest;
mod several;
mod turn;
mod line;
mod passage;
mod ears;
mod claim;
mod guard;
mod hold;
mod traces;
mod watchdog;
pub mod backend;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "test-util")]
pub mod test_util;
mod backoff;
mod lease;
mod fence;
mod clock;
mod options;
mod key;
mod events;
mod error;
mod planted;

pub use backend::redis::ServerCheck;
pub use backoff::Backoff;
pub use builder::LockManagerBuilder;
pub use error::{LockError, LostReason};
pub use events::{LockEvent, LockEventKind};
pub use fence::FencingToken;
pub use guard::{Lease, LockGuard};
pub use key::Key;
pub use manager::LockManager;
pub use options::{Mode, OnLost};
pub use request::LockRequest;
