//! Locks on a Redis Cluster: each on the node that has its slot.
//!
//! The redis crate has connections to clusters, too. They are not used, since one task drives all nodes there: while it
//! connects anew to one of them, commands to all others wait, renewals too.

mod ears;
mod several;
mod topology;
mod view;
mod way;

use std::fmt;
use std::sync::Arc;

use crc::{CRC_16_XMODEM, Crc};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use self::ears::Wanted;
pub(crate) use self::topology::Access;
use self::topology::{GRACE, Topology};
use self::view::SLOTS;
use self::way::{Signpost, Way};
use super::{
    Acquired, AcquiredAll, Attempt, Backend, BackendError, BoxFuture, Entry, Listener, Released, Renewed, Route, Turn,
};
use crate::FencingToken;
use crate::key::encode_hash_tag;

/// Locks on a Redis Cluster.
pub(crate) struct ClusterBackend {
    topology: Arc<Topology>,
    wanted: Arc<Wanted>,
}

impl fmt::Debug for ClusterBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.topology.describe())
    }
}

/// The slot of a lock and of its helpers: what stands between the braces of their names decides on it, and that is the key.
fn slot(key: &str) -> u16 {
    const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);
    CRC.checksum(encode_hash_tag(key).as_bytes()) % SLOTS
}

impl ClusterBackend {
    pub(crate) fn new(access: Access) -> ClusterBackend {
        ClusterBackend { topology: Arc::new(Topology::new(access)), wanted: Arc::default() }
    }

    /// Finds the nodes, and connects to those that have slots. One that is down or frozen is no reason to fail or to wait: the
    /// others may have what is asked for, and it may have a successor soon.
    async fn connect(&self) -> Result<(), BackendError> {
        self.topology.connect().await?;
        tokio::spawn(Topology::watch(Arc::downgrade(&self.topology)));
        let mut tries = JoinSet::new();
        for node in self.topology.owners() {
            tries.spawn(async move { node.prepare().await });
        }
        let (mut until, mut failure) = (None, None);
        while let Some(tried) = next_of(&mut tries, until).await {
            match tried {
                Ok(()) => until = until.or_else(|| Some(Instant::now() + GRACE)),
                Err(error) => failure = Some(error),
            }
        }
        tries.detach_all();
        failure.filter(|_| until.is_none()).map_or(Ok(()), Err)
    }

    async fn way<'a>(&'a self, entry: &Entry<'_>) -> Result<Way<'a>, BackendError> {
        Way::of(&self.topology, slot(entry.key), entry, self.topology.connect_timeout()).await
    }

    async fn way_within_timeout<'a>(&'a self, entry: &Entry<'_>) -> Result<Way<'a>, BackendError> {
        Way::within_timeout(&self.topology, slot(entry.key), entry).await
    }

    async fn acquire(
        &self,
        entry: Entry<'_>,
        attempt: Attempt,
        route: &mut Option<Arc<dyn Route>>,
    ) -> Result<Acquired, BackendError> {
        let mut way = self.way(&entry).await?;
        loop {
            match Backend::acquire(way.node(), way.entry(entry), attempt, route).await {
                Err(error) if way.goes_on(&error).await => {}
                answer => return way.end(answer),
            }
        }
    }

    /// A waiter whose key nobody has listened for asks once more when somebody does: until then it could have been called in
    /// vain.
    async fn wait(&self, entry: Entry<'_>, route: &mut Option<Arc<dyn Route>>) -> Result<Turn, BackendError> {
        let heard = self.wanted.note(entry.key);
        let turn = self.ask_for_turn(entry, route).await?;
        if heard || matches!(turn, Turn::Come { .. }) || !self.wanted.is_heard(entry.key).await {
            return Ok(turn);
        }
        self.ask_for_turn(entry, route).await
    }

    async fn ask_for_turn(&self, entry: Entry<'_>, route: &mut Option<Arc<dyn Route>>) -> Result<Turn, BackendError> {
        let mut way = self.way(&entry).await?;
        loop {
            match Backend::wait(way.node(), way.entry(entry), route).await {
                Err(error) if way.goes_on(&error).await => {}
                answer => return way.end(answer),
            }
        }
    }

    async fn release(&self, entry: Entry<'_>) -> Result<Released, BackendError> {
        let mut way = self.way_within_timeout(&entry).await?;
        loop {
            let mut answer = way.node().release(way.entry(entry)).await;
            if let Some(Signpost::TryAgain) = answer.as_ref().err().and_then(Signpost::of) {
                answer = way.node().release_alone(way.entry(entry)).await;
            }
            match answer {
                Err(error) if way.goes_on(&error).await => {}
                answer => return way.end(answer),
            }
        }
    }

    async fn listen(&self, waiter: &str, listener: &dyn Listener) -> BackendError {
        let error = ears::listen(&self.topology, &self.wanted, waiter, listener).await;
        match fastrand::choice(self.topology.owners()) {
            // Before Redis 7 there is no such thing. What is published on one node comes to all others, too.
            Some(node) if error.to_string().contains("unknown command") => node.listen(waiter, listener).await,
            _ => error,
        }
    }

    async fn renew(&self, entry: Entry<'_>) -> Result<Renewed, BackendError> {
        let mut way = self.way_within_timeout(&entry).await?;
        loop {
            match way.node().renew_one(way.entry(entry)).await {
                Err(error) if way.goes_on(&error).await => {}
                answer => return way.end(answer),
            }
        }
    }
}

/// The next outcome, or nothing after the last one, or when it is time.
async fn next_of<T: 'static>(tries: &mut JoinSet<T>, until: Option<Instant>) -> Option<T> {
    let next = async {
        loop {
            match tries.join_next().await {
                Some(Ok(outcome)) => return Some(outcome),
                Some(Err(_)) => {}
                None => return None,
            }
        }
    };
    match until {
        Some(until) => timeout_at(until, next).await.ok().flatten(),
        None => next.await,
    }
}

impl Backend for ClusterBackend {
    fn prepare(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        Box::pin(self.connect())
    }

    fn place(&self, key: &str) -> usize {
        self.topology.number(slot(key))
    }

    fn only_exclusive(&self) -> Option<&'static str> {
        None
    }

    fn acquire<'a>(
        &'a self,
        entry: Entry<'a>,
        attempt: Attempt,
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Acquired, BackendError>> {
        Box::pin(self.acquire(entry, attempt, route))
    }

    fn wait<'a>(
        &'a self,
        entry: Entry<'a>,
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Turn, BackendError>> {
        Box::pin(self.wait(entry, route))
    }

    fn listen<'a>(&'a self, waiter: &'a str, listener: &'a dyn Listener) -> BoxFuture<'a, BackendError> {
        Box::pin(self.listen(waiter, listener))
    }

    fn acquire_all<'a>(
        &'a self,
        entries: &'a [Entry<'a>],
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<AcquiredAll, BackendError>> {
        Box::pin(self.acquire_all(entries, route))
    }

    fn mint<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Result<Option<FencingToken>, BackendError>> {
        Box::pin(self.mint(entries))
    }

    fn release<'a>(&'a self, entry: Entry<'a>) -> BoxFuture<'a, Result<Released, BackendError>> {
        Box::pin(self.release(entry))
    }

    fn renew<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Renewed, BackendError>>> {
        Box::pin(self.renew_all(entries))
    }

    fn release_all<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Released, BackendError>>> {
        Box::pin(self.release_all(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::slot;

    /// Measured with `CLUSTER KEYSLOT` of Redis 7.0.15, on `lock:{..}`.
    #[test]
    fn slots_are_those_of_the_server() {
        assert_eq!((slot("order:42"), slot("a}b{c")), (8691, 3912));
    }
}
