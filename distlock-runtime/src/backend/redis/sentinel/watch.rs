//! Looking out for failovers that break no connection.
//!
//! The old primary of a failover takes writes for some seconds more, over the connections that it has: after `SENTINEL
//! FAILOVER` until it is made a replica, and after a freeze until sentinels have noticed that it is back. All of them are
//! lost, locks too. So for as long as there are connections, sentinels are asked again and again whether it moved.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::ask;
use super::ballot::{Address, Said};
use super::{Home, Known, Service};
use crate::clock::Time;

/// How often sentinels are asked. They themselves notice a promotion within a second.
const PERIOD: Duration = Duration::from_millis(500);

/// When sentinels have not been asked for so long, the process stood still: nothing is known any more about who is the
/// primary.
const OVERDUE: Duration = Duration::from_secs(2);

/// How long to search for the primary where sentinels name another.
const SEARCH: Duration = Duration::from_secs(2);

/// For how long the same contradiction is not looked into again, after the primary turned out to be the same as before.
const SETTLED: Duration = Duration::from_secs(5);

/// A sentinel's place in the list, and what it names.
type Naming = (usize, Address, u64);

impl Home {
    /// Whether new commands may go there.
    pub(in crate::backend::redis) fn is_trusted(&self) -> bool {
        self.service.since_asked() < OVERDUE && !self.has_moved()
    }

    /// Whether another server was found to be the primary.
    pub(in crate::backend::redis) fn has_moved(&self) -> bool {
        self.is_other_than(self.service.known.borrow().as_ref())
    }

    /// Returns when another server was found to be the primary.
    pub(in crate::backend::redis) async fn moved(&self) {
        // The sender is ours, so there is no error.
        let _ = self.service.known.subscribe().wait_for(|known| self.is_other_than(known.as_ref())).await;
    }

    fn is_other_than(&self, known: Option<&Known>) -> bool {
        known.is_some_and(|known| known.address != self.address)
    }
}

impl Service {
    /// Asks the sentinels again and again, as long as it is polled. Of several watchers only one does so at a time.
    pub(in crate::backend::redis) async fn watch(self: Arc<Self>) {
        let mut lines: Vec<Option<MultiplexedConnection>> = self.sentinels.iter().map(|_| None).collect();
        let mut settled: Option<(Vec<Naming>, Instant)> = None;
        let mut next = Instant::now() + PERIOD;
        loop {
            sleep_until(next).await;
            // From the beginning on, so that a sentinel that keeps us waiting makes no difference.
            next = Instant::now() + PERIOD;
            let known = self.known.borrow().clone();
            let Some(known) = known.filter(|_| self.since_asked() >= PERIOD * 3 / 4) else { continue };
            let begin = Time::now();
            let mut others = self.poll(&mut lines).await;
            others.retain(|(_, address, _)| *address != known.address);
            let is_settled = |(before, at): &(Vec<Naming>, Instant)| *before == others && at.elapsed() < SETTLED;
            if others.is_empty() || settled.as_ref().is_some_and(is_settled) {
                self.note_asked(begin);
                continue;
            }
            // They contradict what is known, which is not confirmed before a search has found the same again. Whoever
            // searches also remembers what is found.
            settled = match self.find(Instant::now() + SEARCH).await {
                Ok(found) if found.home.address == known.address => Some((others, Instant::now())),
                _ => None,
            };
        }
    }

    /// Asks all sentinels at once, over connections that are kept, and returns whom they name, in the order of the list.
    async fn poll(self: &Arc<Self>, lines: &mut [Option<MultiplexedConnection>]) -> Vec<Naming> {
        let mut talks = JoinSet::new();
        for (sentinel, line) in lines.iter_mut().enumerate() {
            let (service, line) = (self.clone(), line.take());
            talks.spawn(
                async move { (sentinel, timeout(PERIOD, service.ask_over(sentinel, line)).await.ok().flatten()) },
            );
        }
        let mut named = Vec::new();
        while let Some(answer) = talks.join_next().await {
            let Ok((sentinel, Some((said, connection)))) = answer else { continue };
            if let Some(line) = lines.get_mut(sentinel) {
                *line = Some(connection);
            }
            if let Said::Names(address, epoch) = said {
                named.push((sentinel, address, epoch));
            }
        }
        named.sort_unstable_by_key(|(sentinel, ..)| *sentinel);
        named
    }

    async fn ask_over(
        &self,
        sentinel: usize,
        line: Option<MultiplexedConnection>,
    ) -> Option<(Said, MultiplexedConnection)> {
        let mut line = match line {
            Some(line) => line,
            None => ask::open(self.sentinels.get(sentinel)?).await.ok()?,
        };
        let said = ask::question(&mut line, &self.name).await.ok()?;
        Some((said, line))
    }
}
