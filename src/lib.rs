// The first definition of a link counts: what stands beside the README in the repository is not beside these pages.
//! [TOPOLOGIES.md]: crate::topologies
//! [OBSERVABILITY.md]: crate::observability
//! [docs/comparison.md]: #more
//! [`examples/order_service`]: #more
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub use distlock_macros::distributed_lock;
pub use distlock_runtime::{
    Backoff, FencingToken, Key, Lease, LockError, LockEvent, LockEventKind, LockGuard, LockManager, LockManagerBuilder,
    LockRequest, LostReason, Mode, OnLost, ServerCheck, backend,
};

#[cfg(feature = "conformance")]
pub use distlock_runtime::conformance;
#[cfg(feature = "test-util")]
pub use distlock_runtime::{assert_locked, test_util};

#[doc = include_str!("../TOPOLOGIES.md")]
pub mod topologies {}

#[doc = include_str!("../OBSERVABILITY.md")]
pub mod observability {}

#[doc(hidden)]
pub use distlock_runtime::private as __private;
