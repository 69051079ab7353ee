//! A real cluster: primaries with a third of the slots each, say, and replicas of them.

use std::time::Duration;

use redis::{Cmd, FromRedisValue, cmd};

use crate::eventually::{eventually, soon};
use crate::proxy::Proxy;
use crate::server::{Options, Server, free_port};

const SLOTS: usize = 16_384;

/// A running cluster. The first nodes were the primaries at the start, each followed by one of the others, if there are so
/// many.
pub struct Cluster {
    pub nodes: Vec<Server>,
    primaries: usize,
    /// The ways to each node's bus, unless the nodes are not linked.
    buses: Vec<Bus>,
}

struct Bus {
    /// By the node that they come from.
    ways: Vec<Proxy>,
    /// All are parts of it.
    _proxy: Proxy,
}

impl Cluster {
    pub async fn start(primaries: usize, replicas: usize) -> Self {
        Self::start_with(primaries, replicas, Server::options()).await
    }

    pub async fn start_with(primaries: usize, replicas: usize, options: Options) -> Self {
        let (mut nodes, mut buses) = (Vec::new(), Vec::new());
        for _ in 0..primaries + replicas {
            let (node, bus) = node(options.clone()).await;
            nodes.push(node);
            buses.extend(bus);
        }
        let buses = by_sender(buses, &nodes).await;
        let cluster = Self { nodes, primaries, buses };
        for (at, node) in cluster.nodes.iter().enumerate() {
            node.say(cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(at + 1)).await;
            if at < primaries {
                let (first, last) = (at * SLOTS / primaries, (at + 1) * SLOTS / primaries - 1);
                node.say(cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(first).arg(last)).await;
            }
            cluster.meet(node).await;
        }
        cluster.is_whole().await;
        for at in 0..replicas {
            cluster.follows(primaries + at, at).await;
        }
        cluster
    }

    /// Adds a node without slots.
    pub async fn add(&mut self) -> &Server {
        self.nodes.push(node(Server::options()).await.0);
        let added = self.nodes.last().unwrap();
        added.say(cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(100 + self.nodes.len())).await;
        self.meet(added).await;
        self.is_whole().await;
        self.nodes.last().unwrap()
    }

    /// Has a node join.
    pub async fn meet(&self, node: &Server) {
        let first = &self.nodes[0];
        let name = if first.link().is_some() { "cluster-announce-bus-port" } else { "cluster-port" };
        let bus: String = first.ask::<Vec<String>>(cmd("CONFIG").arg("GET").arg(name)).await.pop().unwrap();
        node.say(cmd("CLUSTER").arg("MEET").arg("127.0.0.1").arg(first.port).arg(bus)).await;
    }

    /// Waits until all nodes know each other and all slots.
    async fn is_whole(&self) {
        let count = format!("cluster_known_nodes:{}\r", self.nodes.len());
        for node in &self.nodes {
            let knows = || async {
                let info: String = node.ask(cmd("CLUSTER").arg("INFO")).await;
                info.contains("cluster_state:ok\r") && info.contains(&count)
            };
            eventually("a node to know the cluster", knows).await;
        }
    }

    /// Makes one node the replica of another, and waits until it has what that one has.
    async fn follows(&self, replica: usize, primary: usize) {
        let (replica, id) = (&self.nodes[replica], self.nodes[primary].id().await);
        // Whether a node is known to another is a matter of gossip.
        let accepts = || async { replica.query::<()>(cmd("CLUSTER").arg("REPLICATE").arg(&id)).await.is_ok() };
        eventually("a node to know the one to follow", accepts).await;
        let follows = || async { replica.info("replication").await.unwrap().contains("master_link_status:up\r") };
        eventually("the replica to follow", follows).await;
        for node in &self.nodes {
            let (own, link) = (replica.id().await, format!("slave {id}"));
            let knows = || async {
                let all: String = node.ask(cmd("CLUSTER").arg("NODES")).await;
                all.lines().any(|line| line.starts_with(&own) && line.contains(&link))
            };
            eventually("a node to know of the replica", knows).await;
        }
    }

    /// Cuts one node off from all others, on the bus and where it replicates: nothing passes any more. Clients still reach it if their
    /// link was split off. Only where nodes are linked.
    pub fn cut_off(&self, node: usize) {
        self.ways_of(node).for_each(Proxy::blackhole);
    }

    /// The end of that.
    pub fn join_again(&self, node: usize) {
        self.ways_of(node).for_each(Proxy::pass);
    }

    fn ways_of(&self, node: usize) -> impl Iterator<Item = &Proxy> {
        let from_it = self.buses.iter().map(move |bus| &bus.ways[node]);
        self.buses[node].ways.iter().chain(from_it).chain(self.nodes[node].link())
    }

    /// A URL with all nodes.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(Server::address).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// The slot of a lock.
    pub async fn slot(&self, key: &str) -> u16 {
        self.nodes[0].ask(cmd("CLUSTER").arg("KEYSLOT").arg(format!("lock:{{{key}}}"))).await
    }

    /// The primary, of those at the start, that has had the slot of a lock.
    pub async fn home(&self, key: &str) -> usize {
        usize::from(self.slot(key).await) * self.primaries / SLOTS
    }

    /// So many keys of locks that one of the primaries has had from the start.
    pub async fn keys_at(&self, home: usize, count: usize) -> Vec<String> {
        let mut keys = Vec::new();
        for n in 0.. {
            let key = format!("k{n}");
            if self.home(&key).await == home {
                keys.push(key);
            }
            if keys.len() == count {
                break;
            }
        }
        keys
    }

    /// The first of such keys.
    pub async fn key_at(&self, home: usize) -> String {
        self.keys_at(home, 1).await.remove(0)
    }

    /// Begins to move a slot: what is not there is asked for at the other node from now on.
    pub async fn begin_move(&self, slot: u16, from: &Server, to: &Server) {
        let set = |state: &str, id: &str| cmd("CLUSTER").arg("SETSLOT").arg(slot).arg(state).arg(id).clone();
        to.say(&set("IMPORTING", &from.id().await)).await;
        from.say(&set("MIGRATING", &to.id().await)).await;
    }

    /// Moves the keys that are there.
    pub async fn move_keys(&self, slot: u16, from: &Server, to: &Server) {
        let keys: Vec<String> = from.ask(cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(1000)).await;
        if !keys.is_empty() {
            let mut migrate = cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(to.port).arg("").arg(0).arg(5000).arg("KEYS").arg(keys);
            from.say(&migrate).await;
        }
    }

    pub async fn end_move(&self, slot: u16, from: &Server, to: &Server) {
        self.move_keys(slot, from, to).await;
        let id = to.id().await;
        // The new owner first, so that there is one at any time.
        for node in [to, from] {
            node.say(cmd("CLUSTER").arg("SETSLOT").arg(slot).arg("NODE").arg(&id)).await;
        }
        self.has_one_epoch().await;
    }

    /// Waits until all nodes have heard of the latest move. One that takes a slot back before that may give itself the epoch that the
    /// other has, who then settles the tie by a higher one, and has the slot again.
    async fn has_one_epoch(&self) {
        let agreed = || async {
            let mut epochs = Vec::new();
            for node in &self.nodes {
                let info: String = node.query(cmd("CLUSTER").arg("INFO")).await.unwrap_or_default();
                let epoch = info.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:"));
                epochs.extend(epoch.map(str::to_owned));
            }
            epochs.windows(2).all(|pair| pair[0] == pair[1])
        };
        eventually("the nodes to agree on an epoch", agreed).await;
    }

    /// Moves a slot with all that is in it.
    pub async fn move_slot(&self, slot: u16, from: &Server, to: &Server) {
        self.begin_move(slot, from, to).await;
        self.end_move(slot, from, to).await;
    }

    /// Has nodes take each other for dead after two seconds of silence. Before, it is fifteen: a node that shares two cores
    /// with a dozen tests may be silent for long.
    pub async fn be_impatient(&self) {
        for node in &self.nodes {
            node.config("cluster-node-timeout", "2000").await;
        }
    }

    /// Waits until another node than this has taken over its slots, and returns it.
    pub async fn successor(&self, fallen: usize) -> &Server {
        let replica = &self.nodes[self.primaries + fallen];
        soon("the replica to take over", async {
            while !replica.info("replication").await.is_some_and(|info| info.contains("role:master\r")) {
                tokio::time::sleep(Duration::from_millis(5)).await; // The pause between two looks.
            }
        })
        .await;
        replica
    }

    /// Has a replica have all that its primary was told.
    pub async fn replicated(&self, primary: usize) {
        let primary = &self.nodes[primary];
        let count = primary.ask::<i64>(cmd("WAIT").arg(1).arg(5000)).await;
        assert!(count >= 1, "the replica does not follow");
    }

    pub async fn dbsize(&self) -> u64 {
        let mut size = 0;
        for node in &self.nodes[..self.primaries] {
            size += node.dbsize().await;
        }
        size
    }
}

/// A node, and where it is linked the way to its bus.
async fn node(options: Options) -> (Server, Option<Proxy>) {
    let bus = free_port();
    let options = options.directive("cluster-enabled", "yes").directive("cluster-port", &bus.to_string());
    let options = options.directive("repl-diskless-sync-delay", "0");
    if !options.linked {
        return (options.start().await, None);
    }
    let way = Proxy::start_before(format!("127.0.0.1:{bus}"), free_port()).await;
    let options = options.directive("cluster-announce-bus-port", way.address().split(':').next_back().unwrap());
    (options.start().await, Some(way))
}

/// Each message of the bus has the id of its sender at its begin.
async fn by_sender(buses: Vec<Proxy>, nodes: &[Server]) -> Vec<Bus> {
    let mut ids = Vec::new();
    for node in nodes {
        ids.push(node.id().await);
    }
    let bus = |proxy: Proxy| Bus { ways: ids.iter().map(|id| proxy.split(id)).collect(), _proxy: proxy };
    buses.into_iter().map(bus).collect()
}

impl Server {
    async fn id(&self) -> String {
        self.ask(cmd("CLUSTER").arg("MYID")).await
    }

    async fn ask<T: FromRedisValue + Send + 'static>(&self, command: &Cmd) -> T {
        self.query(command).await.unwrap()
    }

    async fn say(&self, command: &Cmd) {
        self.ask::<()>(command).await;
    }
}
