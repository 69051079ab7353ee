//! Starts real servers and client processes, breaks them and the links between them, and watches what happens.
//!
//! Everything that a test starts ends with it: on drop, also when the test panics, and by the kernel's hand when the
//! test process itself is killed (see [`tied`]).

pub(crate) mod backstage;
pub(crate) mod cluster;
pub(crate) mod eventually;
pub(crate) mod faketime;
pub(crate) mod faults;
pub(crate) mod holders;
pub(crate) mod inspect;
pub(crate) mod monitor;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod sentinel;
pub(crate) mod server;
pub(crate) mod storm;
pub(crate) mod tied;
pub(crate) mod topology;
