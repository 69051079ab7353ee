use std::fmt;

/// A number that rises with every acquisition of a lock, for the store to refuse a holder that is late.
///
/// A lock is a lease: a process that was paused may still believe in it when another has got the lock. Whoever writes to
/// a store hands on the token with what it writes, and the store takes only what is not older than the last it has seen
/// (<https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html>). In SQL, with the token in a column
/// that starts at 0:
///
/// ```sql
/// UPDATE orders SET status = 'paid', fence = $token WHERE id = $id AND fence <= $token
/// ```
///
/// No row updated, though it is there, means that a later holder has been here: give up. With `<`, one holder could write
/// only once, and neither could a nested call that passes under its lock, and so has the same token.
///
/// Tokens of one key rise strictly, however the lock changes hands: by release, by expiry, after `FLUSHALL`, after a restart
/// without persistence, after a failover that lost the last writes. That is since each is at least the server's time in
/// microseconds; it holds as long as a server that takes over is not behind by more than the failover took. Those of
/// different keys say nothing about each other. A token is at most 2⁵³, so it fits into an `i64` and into a JSON number.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
/// # let locks = distlock::LockManager::in_memory();
/// let first = locks.lock("order:42").fencing_token(true).acquire().await?;
/// let token = first.lease().fencing_token();
/// first.release().await?;
/// let second = locks.lock("order:42").fencing_token(true).acquire().await?;
/// assert!(second.lease().fencing_token() > token);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// What is below every token that is handed out.
    pub const MIN: FencingToken = FencingToken(0);
    /// The highest token that there can be.
    pub const MAX: FencingToken = FencingToken(1 << 53);

    /// A Lua script that sets a value in Redis unless a later holder has set it: `EVAL` it, by whatever client you have,
    /// with two keys and two arguments:
    ///
    /// | | |
    /// |---|---|
    /// | `KEYS[1]` | the key of the value |
    /// | `KEYS[2]` | the key where the token is kept that it was set with; with the same `{..}` in a cluster |
    /// | `ARGV[1]` | the value |
    /// | `ARGV[2]` | the fencing token |
    ///
    /// It returns 1 if the value was set, and 0 if it was set with a higher token before: then give up. One holder may set
    /// a value several times. The example `fenced_writes` does it with the crate `redis`.
    pub const REDIS_SET: &str = include_str!("../scripts/fenced_set.lua");

    /// Takes a number for a token: one that was stored, or that a backend has minted. Nothing if it is above
    /// [`MAX`](Self::MAX).
    pub const fn new(number: u64) -> Option<FencingToken> {
        if number <= FencingToken::MAX.0 { Some(FencingToken(number)) } else { None }
    }

    /// The token as a number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> u64 {
        token.0
    }
}

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> i64 {
        // A token is far below the highest number.
        token.0.cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::FencingToken;

    #[test]
    fn every_token_is_the_same_number_signed_and_unsigned() {
        for number in [0, 1, 1_700_000_000_000_000, FencingToken::MAX.get()] {
            let token = FencingToken::new(number).unwrap();
            assert_eq!((u64::from(token), u64::try_from(i64::from(token)).unwrap()), (number, number));
        }
        assert_eq!(FencingToken::new(FencingToken::MAX.get() + 1), None);
    }
}
