use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use redis::{Client, ConnectionInfo};
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::view::{Map, View, ids_of, of_one_cluster};
use crate::backend::BackendError;
use crate::backend::redis::{Address, Inspector, RedisBackend, Target};
use crate::clock::Time;

/// How often some of the nodes are asked for what they know of the cluster.
const PERIOD: Duration = Duration::from_secs(1);

/// When nodes have not been asked for so long, the process stood still: others may have taken over what they had.
const OVERDUE: Duration = Duration::from_secs(3);

/// How long may pass at least between two times when nodes are asked because something has failed.
const PAUSE: Duration = Duration::from_millis(200);

/// How many nodes are asked where nothing has failed.
const SAMPLE: usize = 5;

/// For how long the other nodes are waited for, once one has answered. It passes only where one of them is silent.
pub(super) const GRACE: Duration = Duration::from_millis(250);

/// How long to wait for somebody else who is asking.
const TURN: Duration = Duration::from_millis(500);

/// After what time a node is forgotten that no other knows of any more. What is under way there is over by then.
const GONE: Duration = Duration::from_secs(60);

/// How to connect to the nodes of a cluster.
pub(crate) struct Access {
    pub(crate) seeds: Vec<Address>,
    /// The settings of all connections. Its address does not matter.
    pub(crate) like: ConnectionInfo,
    pub(crate) prefix: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) inspector: Arc<Inspector>,
    pub(crate) replica_acks: u32,
}

/// The nodes of a cluster, and which slots each of them has.
pub(super) struct Topology {
    access: Access,
    state: RwLock<State>,
    /// When the nodes were last asked, in nanoseconds.
    asked: AtomicU64,
    asking: Mutex<()>,
    /// For who has no patience with whoever has the former.
    urgent: Mutex<()>,
    hurry: Notify,
}

struct State {
    map: Map,
    nodes: HashMap<Address, Node>,
    /// The ids of the nodes, as they were last told: what makes this cluster another one than others.
    ids: BTreeSet<String>,
    /// Their addresses, also of those without slots.
    addresses: HashSet<Address>,
}

struct Node {
    backend: Arc<RedisBackend>,
    /// When it was last heard of.
    known: Time,
}

impl Topology {
    pub(super) fn new(access: Access) -> Topology {
        let state = RwLock::new(State {
            map: Map::new(),
            nodes: HashMap::new(),
            ids: BTreeSet::new(),
            addresses: HashSet::new(),
        });
        let (asking, urgent) = (Mutex::new(()), Mutex::new(()));
        Topology { access, state, asked: AtomicU64::new(0), asking, urgent, hurry: Notify::new() }
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        self.access.connect_timeout
    }

    pub(super) fn describe(&self) -> String {
        let seeds: Vec<_> = self.access.seeds.iter().map(Address::to_string).collect();
        format!("the cluster of {}", seeds.join(", "))
    }

    /// The node that has a slot. Others are asked first if none is known, or if what is known may be out of date, for as long
    /// as `patience` lasts.
    ///
    /// # Errors
    ///
    /// Nothing was sent to the node if it fails.
    pub(super) async fn owner(&self, slot: u16, patience: Duration) -> Result<Arc<RedisBackend>, BackendError> {
        match self.trusted_owner(slot) {
            Some(owner) => Ok(owner),
            None => Box::pin(self.owner_after_asking(slot, patience)).await,
        }
    }

    async fn owner_after_asking(&self, slot: u16, patience: Duration) -> Result<Arc<RedisBackend>, BackendError> {
        self.ask_all(PAUSE, patience).await?;
        let nobody = || format!("of {}, no node is known to have slot {slot}", self.describe());
        self.known_owner(slot).ok_or_else(|| BackendError::passing(nobody()))
    }

    /// Asks all nodes, unless somebody has done so and it is no older than `age`.
    pub(super) async fn ask_all(&self, age: Duration, patience: Duration) -> Result<(), BackendError> {
        let late = |_| BackendError::passing(format!("{} could not be found out about in time", self.describe()));
        timeout(patience, self.refresh(usize::MAX, age, patience)).await.map_err(late)?
    }

    /// Whether one of the nodes has this address, as far as is known.
    pub(super) fn knows(&self, address: &Address) -> bool {
        self.read().addresses.contains(address)
    }

    /// The nodes that have slots.
    pub(super) fn owners(&self) -> Vec<Arc<RedisBackend>> {
        let state = self.read();
        let owners = state.map.owners().into_iter().filter_map(|address| state.nodes.get(address));
        owners.map(|node| node.backend.clone()).collect()
    }

    /// Finds the nodes of the cluster.
    pub(super) async fn connect(&self) -> Result<(), BackendError> {
        self.ask_all(PAUSE, self.access.connect_timeout).await
    }

    /// The node that has a slot, if that is known without asking and has to do with how things are now.
    pub(super) fn trusted_owner(&self, slot: u16) -> Option<Arc<RedisBackend>> {
        if self.since_asked() >= OVERDUE { None } else { self.known_owner(slot) }
    }

    /// The node that has a slot, if it is known without asking.
    pub(super) fn known_owner(&self, slot: u16) -> Option<Arc<RedisBackend>> {
        let state = self.read();
        state.nodes.get(state.map.owner(slot)?).map(|node| node.backend.clone())
    }

    /// Which of the nodes has a slot: the same number for the same node, for as long as it has the slot.
    pub(super) fn number(&self, slot: u16) -> usize {
        self.known_owner(slot).map_or(0, |owner| Arc::as_ptr(&owner).addr())
    }

    /// The node at an address that another node names.
    pub(super) fn node(&self, address: &Address) -> Result<Arc<RedisBackend>, BackendError> {
        if let Some(node) = self.read().nodes.get(address) {
            return Ok(node.backend.clone());
        }
        self.write().node(address, &self.access)
    }

    /// Notes that a slot was moved.
    pub(super) fn move_slot(&self, slot: u16, address: &Address) -> Result<Arc<RedisBackend>, BackendError> {
        let mut state = self.write();
        let node = state.node(address, &self.access)?;
        state.map.move_slot(slot, address);
        Ok(node)
    }

    /// Has the nodes asked soon: something has failed, perhaps because others have taken over.
    pub(super) fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Asks the nodes again and again, for as long as there is a manager. Of several watchers one at a time does so.
    pub(super) async fn watch(topology: Weak<Topology>) {
        while let Some(topology) = topology.upgrade() {
            let hurried = timeout(PERIOD, topology.hurry.notified()).await.is_ok();
            if hurried {
                tokio::time::sleep(PAUSE.saturating_sub(topology.since_asked())).await;
            } else if topology.since_asked() < PERIOD * 3 / 4 {
                continue;
            }
            let most = if hurried { usize::MAX } else { SAMPLE };
            let asked = topology.refresh(most, PAUSE, topology.access.connect_timeout).await;
            if asked.is_err() {
                // It is tried again, and told to those who need it. Nodes that refuse are not asked without a pause, however
                // many commands fail there meanwhile.
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Asks nodes for what they know, unless somebody has done so and it is no older than `age`.
    async fn refresh(&self, most: usize, age: Duration, patience: Duration) -> Result<(), BackendError> {
        let called = Time::now();
        let is_done = || self.asked().saturating_add(age) >= called;
        if is_done() {
            return Ok(());
        }
        // Who asks may belong to a runtime that nobody drives, so that it is not waited for for ever. But of those who lose
        // their patience with it one at a time asks, too.
        let turn = timeout(TURN, self.asking.lock()).await;
        let _urgent = if turn.is_err() && !is_done() { Some(self.urgent.lock().await) } else { None };
        if is_done() {
            return Ok(());
        }
        let (begin, until) = (Time::now(), Instant::now() + patience);
        let mut heard = self.ask(self.some_nodes(most), until).await;
        let ids = self.read().ids.clone();
        heard.views = of_one_cluster(heard.views, &ids);
        let mut is_new = false;
        if !heard.has_claims() {
            // What the URL names is the cluster, whatever it was before.
            let seeds = self.access.seeds.iter().map(|seed| Ok((seed.clone(), self.node(seed)?)));
            let until = until.max(Instant::now() + patience / 2);
            heard = self.ask(seeds.collect::<Result<Vec<_>, BackendError>>()?, until).await;
            let of_known = of_one_cluster(heard.views.clone(), &ids);
            is_new = of_known.is_empty();
            heard.views = if is_new { of_one_cluster(heard.views, &BTreeSet::new()) } else { of_known };
        }
        if !heard.has_claims() {
            return Err(heard.explain(self));
        }
        self.take(&heard.views, is_new);
        self.asked.fetch_max(begin.as_nanos(), Ordering::Relaxed);
        Ok(())
    }

    /// So many of the nodes, at most.
    fn some_nodes(&self, most: usize) -> Vec<(Address, Arc<RedisBackend>)> {
        let mut nodes: Vec<_> = {
            let state = self.read();
            state.nodes.iter().map(|(address, node)| (address.clone(), node.backend.clone())).collect()
        };
        fastrand::shuffle(&mut nodes);
        nodes.truncate(most);
        nodes
    }

    async fn ask(&self, nodes: Vec<(Address, Arc<RedisBackend>)>, mut until: Instant) -> Heard {
        let mut answers = JoinSet::new();
        for (address, node) in nodes {
            answers.spawn(async move {
                let left = until.saturating_duration_since(Instant::now());
                (address, node.cluster(left).await)
            });
        }
        let mut heard = Heard { views: Vec::new(), failures: Vec::new() };
        while let Ok(Some(answer)) = timeout_at(until, answers.join_next()).await {
            match answer {
                Ok((address, Ok((nodes, slots)))) => {
                    heard.views.push(View::read(&nodes, &slots, &address));
                    until = until.min(Instant::now() + GRACE);
                }
                Ok((_, Err(error))) => heard.failures.push(error),
                Err(_) => {}
            }
        }
        heard
    }

    /// Takes what nodes have said, of the same cluster as before or of a new one.
    fn take(&self, views: &[View], is_new: bool) {
        let (now, mut state) = (Time::now(), self.write());
        if is_new {
            state.map = Map::new();
        }
        state.map.take(views);
        state.ids = ids_of(views);
        state.addresses = views.iter().flat_map(|view| view.nodes.iter().cloned()).collect();
        for address in views.iter().flat_map(|view| view.claims.iter().map(|claim| &claim.address)) {
            // A node that can't be connected to is told of when it is needed.
            let _ = state.node(address, &self.access);
        }
        for address in views.iter().flat_map(|view| &view.nodes) {
            if let Some(node) = state.nodes.get_mut(address) {
                node.known = now;
            }
        }
        state.nodes.retain(|_, node| now.saturating_since(node.known) < GONE);
    }

    fn since_asked(&self) -> Duration {
        Time::now().saturating_since(self.asked())
    }

    fn asked(&self) -> Time {
        Time::from_nanos(self.asked.load(Ordering::Relaxed))
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn node(&mut self, address: &Address, access: &Access) -> Result<Arc<RedisBackend>, BackendError> {
        if let Some(node) = self.nodes.get(address) {
            return Ok(node.backend.clone());
        }
        let client: Client = address.client(&access.like).map_err(|error| {
            BackendError::lasting(format!("{address}, which is a node of the cluster, can't be used: {error}"))
        })?;
        let target = Target::Node(Arc::new(client));
        let backend = RedisBackend::new(target, access.prefix.clone(), access.connect_timeout);
        let backend = backend.inspected_by(access.inspector.clone()).with_replica_acks(access.replica_acks);
        let backend = Arc::new(backend);
        self.nodes.insert(address.clone(), Node { backend: backend.clone(), known: Time::now() });
        Ok(backend)
    }
}

/// What nodes have answered.
struct Heard {
    views: Vec<View>,
    failures: Vec<BackendError>,
}

impl Heard {
    fn has_claims(&self) -> bool {
        self.views.iter().any(|view| !view.claims.is_empty())
    }

    fn explain(self, topology: &Topology) -> BackendError {
        let Heard { views, failures } = self;
        let mut told: Vec<String> = failures.iter().map(BackendError::to_string).collect();
        if !views.is_empty() {
            told.push("nobody has any slots yet".to_owned());
        }
        if told.is_empty() {
            told.push("none of them answered in time".to_owned());
        }
        told.dedup();
        let text = format!("{} can't be found out about: {}", topology.describe(), told.join("; "));
        if views.is_empty() && !failures.is_empty() && failures.iter().all(|failure| !failure.is_passing()) {
            BackendError::lasting(text)
        } else {
            BackendError::passing(text)
        }
    }
}
