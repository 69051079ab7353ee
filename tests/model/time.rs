//! Time in ticks. Every instant is told from the present, so that states which differ only in the time of day are one.

pub(crate) type Tick = i8;

pub(crate) const NOW: Tick = 0;
/// Not subject to time.
pub(crate) const NEVER: Tick = Tick::MAX;

/// The lease.
pub(crate) const TTL: Tick = 3;
/// By how much a holder ends its lease before the server does, since their clocks may differ.
pub(crate) const DRIFT: Tick = 1;
/// Between two renewals.
pub(crate) const RENEW: Tick = 1;
/// Between two signs of life of a waiter.
pub(crate) const POLL: Tick = 1;
/// A waiter that gave no sign of life for longer is passed over. Above [`POLL`], so that one late sign costs no turn.
pub(crate) const LIVE: Tick = 2;
/// How long a lock that was handed over stands unclaimed.
pub(crate) const CLAIM: Tick = 1;
/// A waiter that gave no sign of life for longer leaves the queue.
pub(crate) const FORGET: Tick = 4;

/// The same instant, told one tick later.
pub(crate) fn closer(instant: Tick) -> Tick {
    if instant == NEVER { NEVER } else { instant - 1 }
}
