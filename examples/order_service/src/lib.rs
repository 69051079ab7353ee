//! Orders that are paid once, however often the customer taps: distlock in front of a database and a payment provider.
//!
//! Read in this order: `pay` is the point, `idempotency` and `store` are the other two lines of defence, `service` is the HTTP
//! around them, `provider` the slow and failing one who takes the money. `alternatives` does without a lock.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod pay;
pub mod idempotency;
pub mod store;
pub mod transfer;
pub mod stock;
pub mod alternatives;
pub mod reconcile;
pub mod provider;
pub mod service;
pub mod error;
pub mod app;
pub mod observe;
pub mod config;

/// What ends a process.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
