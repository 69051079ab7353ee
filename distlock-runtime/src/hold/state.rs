use std::sync::atomic::AtomicU64;

use crate::LostReason;

/// A deadline on the monotonic clock in nanoseconds, or one of the marks below, so that a lease is judged, extended and
/// ended in one atomic step. The clock starts with the machine, so no real time is as small as the marks.
#[derive(Debug)]
pub(super) struct State(pub(super) AtomicU64);

impl State {
    pub(super) fn new() -> State {
        State(AtomicU64::new(PENDING))
    }
}

const PENDING: u64 = 0;
const GONE: u64 = 1;
const EXPIRED: u64 = 2;
const HELD_TOO_LONG: u64 = 3;
const SHUTDOWN: u64 = 4;
pub(super) const ENDED: u64 = 5;

pub(super) fn is_deadline(state: u64) -> bool {
    state > ENDED
}

pub(super) fn mark(reason: LostReason) -> u64 {
    match reason {
        LostReason::Gone => GONE,
        LostReason::Expired => EXPIRED,
        LostReason::HeldTooLong => HELD_TOO_LONG,
        LostReason::Shutdown => SHUTDOWN,
        LostReason::Released => ENDED,
    }
}

pub(super) fn reason(state: u64) -> Option<LostReason> {
    match state {
        GONE => Some(LostReason::Gone),
        EXPIRED => Some(LostReason::Expired),
        HELD_TOO_LONG => Some(LostReason::HeldTooLong),
        SHUTDOWN => Some(LostReason::Shutdown),
        _ => None,
    }
}
