//! The tests of the whole system, against real servers and real client processes.
//!
//! `calls` is how tests call the library, `contenders` are many who do; the crate `harness` starts and breaks things; `selftest` shows that each fault it makes
//! is really there, since a fault that isn't makes a test that can't fail; `tidy` guards what a reviewer would have to
//! remember; the other modules hold the tests, by behaviour.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test says what broke"
)]

mod calls;
mod contenders;
mod roles;

mod selftest;
mod test_util;
mod tidy;

mod conformance;

mod acks;
mod acquire;
mod clock;
mod cluster;
mod cluster_faults;
mod cluster_links;
mod cluster_slots;
mod connecting;
mod ending;
mod events;
mod exclusion;
mod fencing;
mod going_down;
mod inspecting;
mod isolated;
mod keys;
mod kinds;
mod leases;
mod lost;
mod nesting;
mod observing;
mod odd_backends;
mod odd_callers;
mod odd_runtimes;
mod passing_faults;
mod reconnecting;
mod redlock;
mod redlock_faults;
mod redlock_votes;
mod releasing;
mod renewing;
mod rights;
mod runtimes;
mod secrets;
mod sentinel;
mod sentinel_faults;
mod server_faults;
mod several;
mod shapes;
mod shutdown;
#[cfg(feature = "tls")]
mod tls;
mod waiting;
