//! The service over HTTP, as real processes: on `SQLite` and locks in memory, and on Postgres and Redis.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod harness;

mod equal_payments;
mod slow_provider;
mod crashes;
mod lost_locks;
mod lost_database;
mod lines_of_defence;
mod answers;
mod bad_input;
mod keys;
mod alternatives;
mod transfers;
mod reconciling;
mod observing;
