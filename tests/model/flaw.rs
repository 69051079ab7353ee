//! What is changed in the rules, to see that the checker finds it.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The rules as they are.
    None,
    /// A release deletes or hands over the lock, whoever holds it.
    ReleaseOfAnyLock,
    /// The message that wakes a waiter is taken for a grant.
    BodyAtHandOver,
    /// The lease counts from when the answer came, not from when the request was sent.
    LeaseFromReply,
    /// The lease is taken to last as long as on a server with the same clock.
    NoDrift,
    /// A renewal that had no answer is taken for one that was extended, and the deadline is not looked at.
    DeadlineIgnored,
    /// An extension that comes after the deadline brings the lease back.
    LateExtensionCounts,
    /// A lock that is handed over belongs to the waiter without a term, and the waiter is out of the queue.
    HandOverForGood,
    /// A waiter's turn comes whether or not it shows that it lives.
    DeadWaitersServed,
    /// The queue is taken from the wrong end.
    LastComeFirstServed,
    /// The queue has no expiry of its own.
    QueueKeptForGood,
    /// One value for each client, not for each acquisition.
    ValueReused,
}
