use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::topology::Topology;
use crate::backend::redis::{Address, RedisBackend, is_non_local};
use crate::backend::{BackendError, Entry};
use crate::clock::Time;

/// How often a command follows at once what nodes say about where to go. In peace once is enough. Two nodes may name each
/// other for a moment, so after that it takes its time.
const HASTY_HOPS: u32 = 4;

/// How often it follows in all.
const MOST_HOPS: u32 = 100;

/// The way of one command to the node that has its slot.
pub(super) struct Way<'a> {
    topology: &'a Arc<Topology>,
    slot: u16,
    node: Arc<RedisBackend>,
    hops: u32,
    /// Whether the command may have been carried out, though its answer says nothing.
    may_stand: bool,
    /// When the command has to be answered.
    until: Time,
}

/// What an answer says about where to go.
pub(super) enum Signpost {
    /// The slot is another node's now.
    Moved(Address),
    /// The slot is on its way to another node, and what the command is about may be there already.
    Ask(Address),
    /// The slot is on its way, and the keys of the command are on both sides.
    TryAgain,
    /// The cluster has nobody for the slot, or no majority.
    Down,
}

impl Signpost {
    pub(super) fn of(error: &BackendError) -> Option<Signpost> {
        let error: &RedisError = error.source()?.downcast_ref()?;
        let address = || error.redirect_node().and_then(|(address, _)| Address::parse(address));
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => address().map(Signpost::Moved),
            ErrorKind::Server(ServerErrorKind::Ask) => address().map(Signpost::Ask),
            ErrorKind::Server(ServerErrorKind::TryAgain) => Some(Signpost::TryAgain),
            ErrorKind::Server(ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown) => Some(Signpost::Down),
            _ if is_non_local(error) => Some(Signpost::TryAgain),
            _ => None,
        }
    }
}

impl<'a> Way<'a> {
    /// The way of a command on `entry`, which is in `slot`. To find it may take as long as `patience` lasts.
    pub(super) async fn of(
        topology: &'a Arc<Topology>,
        slot: u16,
        entry: &Entry<'_>,
        patience: Duration,
    ) -> Result<Way<'a>, BackendError> {
        let node = topology.owner(slot, patience).await?;
        let until = Time::now().saturating_add(entry.timeout);
        Ok(Way { topology, slot, node, hops: 0, may_stand: false, until })
    }

    /// The same for a command that keeps to the entry's timeout in all.
    pub(super) async fn within_timeout(
        topology: &'a Arc<Topology>,
        slot: u16,
        entry: &Entry<'_>,
    ) -> Result<Way<'a>, BackendError> {
        let until = Time::now().saturating_add(entry.timeout);
        Ok(Way { until, ..Way::of(topology, slot, entry, entry.timeout).await? })
    }

    /// The node to send the command to.
    pub(super) fn node(&self) -> &RedisBackend {
        &self.node
    }

    /// The entry with what is left of its time.
    pub(super) fn entry<'e>(&self, entry: Entry<'e>) -> Entry<'e> {
        Entry { timeout: self.left(), ..entry }
    }

    /// Whether the command is to be sent once more, and then to [`node`](Self::node).
    pub(super) async fn goes_on(&mut self, error: &BackendError) -> bool {
        self.may_stand |= error.is_unanswered();
        let Some(signpost) = Signpost::of(error) else {
            if error.is_passing() {
                self.topology.hurry();
            }
            return false;
        };
        self.hops += 1;
        let next = match signpost {
            Signpost::Moved(address) => self.moved(address).await,
            Signpost::Ask(address) => match self.known(address).await {
                Ok(address) => self.topology.node(&address).map(|node| Arc::new(node.asking())),
                Err(error) => Err(error),
            },
            Signpost::TryAgain => self.after(Duration::from_millis(fastrand::u64(5..20))).await,
            Signpost::Down => {
                self.topology.hurry();
                self.after(Duration::from_millis(fastrand::u64(50..100))).await
            }
        };
        let Ok(next) = next else { return false };
        self.node = next;
        if self.hops > HASTY_HOPS {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(5..20)).min(self.left())).await;
        }
        self.hops <= MOST_HOPS && !self.left().is_zero()
    }

    async fn moved(&self, address: Address) -> Result<Arc<RedisBackend>, BackendError> {
        self.topology.move_slot(self.slot, &self.known(address).await?)
    }

    /// The address that a node names, if the others know of it, too: a node that has gone to another cluster names nodes of
    /// that one.
    async fn known(&self, address: Address) -> Result<Address, BackendError> {
        let address = self.at(address);
        if self.topology.knows(&address) {
            return Ok(address);
        }
        self.topology.ask_all(Duration::ZERO, self.left()).await?;
        let stranger = || BackendError::passing(format!("{address} is no node of the cluster"));
        if self.topology.knows(&address) { Ok(address) } else { Err(stranger()) }
    }

    /// The answer in the end: not that nothing was done, if an earlier one left that open.
    pub(super) fn end<T>(&self, answer: Result<T, BackendError>) -> Result<T, BackendError> {
        answer.map_err(|error| {
            let error = match Signpost::of(&error) {
                Some(Signpost::Ask(_) | Signpost::TryAgain) => BackendError::passing(format!(
                    "slot {} is on its way from one node of the cluster to another, and what is asked for may be on both: {error}",
                    self.slot
                )),
                Some(Signpost::Moved(address)) => BackendError::passing(format!(
                    "{} says that slot {} of the cluster is at {address}, which says otherwise",
                    self.node.address(),
                    self.slot
                )),
                _ => error,
            };
            if self.may_stand && !error.is_unanswered() { BackendError::unanswered(error.to_string()) } else { error }
        })
    }

    async fn after(&mut self, pause: Duration) -> Result<Arc<RedisBackend>, BackendError> {
        // Time alone is the limit to what passes by itself.
        self.hops = 0;
        tokio::time::sleep(pause.min(self.left())).await;
        self.topology.owner(self.slot, self.left()).await
    }

    /// A node that was not told its own address leaves it out, and then it is its own.
    fn at(&self, mut address: Address) -> Address {
        if address.host.is_empty() {
            address.host = Address::parse(self.node.address()).map(|own| own.host).unwrap_or_default();
        }
        address
    }

    fn left(&self) -> Duration {
        self.until.saturating_since(Time::now())
    }
}
