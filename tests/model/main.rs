//! The protocol of queue and lease in every order that things can happen in, for a few clients and one key.
//!
//! [`server`] and [`client`] hold the rules; [`model`] with [`choices`] and [`effects`] is what happens to them: messages
//! that are late or lost, processes that crash or pause, clocks that differ. The checker visits every state that can come
//! about, and says how it came to one where a property does not hold.
//!
//! Left out: one server is all there is (no failover, no restart, no lost writes), the local queue of a process, fencing
//! tokens, several keys, read locks and permits, and servers that answer with an error, which is as good as no answer.

#![allow(clippy::panic, clippy::indexing_slicing, reason = "a panic is how a test says what broke")]

mod time;
mod flaw;
mod server;
mod client;
mod model;
mod choices;
mod effects;
mod watch;
mod properties;
mod rules_hold;
mod flaws_are_found;
