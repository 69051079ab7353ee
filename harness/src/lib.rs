//! Starts real servers and client processes, breaks them and the links between them, and watches what happens.
//!
//! Everything that a test starts ends with it: on drop, also when the test panics, and by the kernel's hand when the
//! test process itself is killed (see [`tied`]).

pub mod backstage;
pub mod cluster;
pub mod eventually;
pub mod faketime;
pub mod faults;
pub mod holders;
pub mod inspect;
pub mod monitor;
pub mod process;
pub mod proxy;
pub mod sentinel;
pub mod server;
pub mod storm;
pub mod tied;
pub mod topology;
