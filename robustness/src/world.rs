//! The servers: of one topology, and one more that nothing happens to.

use std::path::Path;
use std::time::Duration;

use harness::cluster::Cluster;
use harness::eventually::within;
use harness::proxy::Proxy;
use harness::sentinel::{Guarded, Passwords, SERVICE, Sentinel};
use harness::server::Server;
use redis::cmd;
use tokio::time::sleep;

use crate::client::calls::KEYS;
use crate::journal::Journal;
use crate::loss::CONFIRMED_FAILOVER;
use crate::rights;
use crate::settings::Topology;

/// After a fault, servers that agree again on who does what: sentinels look at a server that is not what they take it for for up to
/// half a minute.
const SETTLED: Duration = Duration::from_secs(90);

/// How long a client takes at most to leave a primary that was replaced: a second and a half, as documented, and as long as it is
/// stopped meanwhile.
const HEARD: Duration = Duration::from_secs(4);

/// How many independent servers there are under Redlock.
const SERVERS: usize = 5;
/// How many primaries a cluster has.
const PRIMARIES: usize = 3;

pub(crate) struct World {
    pub(crate) topology: Topology,
    pub(crate) journal: Journal,
    pub(crate) store: Server,
    /// The ways of all clients, where they are told the addresses of servers. There each server announces a proxy. Replicas and
    /// sentinels come by it, too, and are told apart by the user's name, so that either can be cut off alone ([`Server::link`] is the
    /// others' way). The bus of a cluster has proxies of its own.
    shared: Vec<Proxy>,
    /// How many replicas have to confirm a lock: a part of the seed.
    pub(crate) acks: u32,
    servers: Servers,
}

enum Servers {
    Plain(Vec<Server>),
    Guarded(Guarded),
    Cluster(Cluster),
}

impl World {
    pub(crate) async fn start(topology: Topology, folder: &Path, seed: u64) -> World {
        let options = Server::options().user(rights::rules(topology)).own_clock();
        let mut acks = 0;
        let servers = match topology {
            Topology::Single | Topology::Redlock => {
                let mut servers = Vec::new();
                for _ in 0..if topology == Topology::Single { 1 } else { SERVERS } {
                    servers.push(options.clone().start().await);
                }
                Servers::Plain(servers)
            }
            Topology::Sentinel => {
                acks = [0, 1, 2][usize::try_from(seed % 3).unwrap_or_default()];
                Servers::Guarded(Guarded::start_with(2, options.linked(), Passwords::default()).await)
            }
            Topology::Cluster => {
                acks = u32::from(!seed.is_multiple_of(3));
                let cluster = Cluster::start_with(PRIMARIES, PRIMARIES, options.linked()).await;
                cluster.be_impatient().await;
                Servers::Cluster(cluster)
            }
        };
        let journal = Journal::open(&folder.join("journal"));
        let mut world = World { topology, journal, store: Server::start().await, shared: Vec::new(), acks, servers };
        let links = world.servers().iter().filter_map(Server::link);
        world.shared = links.map(|link| link.split(rights::USER)).collect();
        world
    }

    /// Why something may be forgotten when a primary is replaced.
    pub(crate) fn failover(&self) -> &'static str {
        let replicas = match &self.servers {
            Servers::Plain(_) => 0,
            Servers::Guarded(guarded) => guarded.servers.len() - 1,
            Servers::Cluster(_) => 1,
        };
        if replicas > 0 && self.acks as usize == replicas { CONFIRMED_FAILOVER } else { "failover" }
    }

    pub(crate) fn has_replicas(&self) -> bool {
        matches!(self.topology, Topology::Sentinel | Topology::Cluster)
    }

    pub(crate) fn sentinels(&self) -> &[Sentinel] {
        match &self.servers {
            Servers::Guarded(guarded) => &guarded.sentinels,
            _ => &[],
        }
    }

    /// All servers with locks.
    pub(crate) fn servers(&self) -> &[Server] {
        match &self.servers {
            Servers::Plain(servers) => servers,
            Servers::Guarded(guarded) => &guarded.servers,
            Servers::Cluster(cluster) => &cluster.nodes,
        }
    }

    /// Those of the ways that all clients share that are hit together: all, or one.
    pub(crate) fn shared(&self, victim: usize) -> &[Proxy] {
        if victim == 0 { &self.shared } else { std::slice::from_ref(&self.shared[victim % self.shared.len()]) }
    }

    /// The ways of one client to the servers, each of which can fail. None where all clients share them.
    pub(crate) async fn links(&self) -> Vec<Proxy> {
        let mut links = Vec::new();
        if let Servers::Plain(servers) = &self.servers {
            for server in servers {
                links.push(Proxy::start(server).await);
            }
        }
        links
    }

    /// The URL of the locks, over such ways, or over none.
    pub(crate) fn url(&self, links: &[Proxy]) -> String {
        let plain = || self.servers().iter().map(Server::url).collect::<Vec<_>>();
        let urls = if links.is_empty() { plain() } else { links.iter().map(Proxy::url).collect() };
        match &self.servers {
            Servers::Plain(_) if self.topology == Topology::Redlock => {
                let hosts: Vec<_> = urls.iter().filter_map(|url| url.strip_prefix("redis://")).collect();
                format!("redlock://{}", hosts.join(","))
            }
            Servers::Plain(_) => urls[0].clone(),
            Servers::Guarded(guarded) => guarded.url(),
            Servers::Cluster(_) => {
                let hosts: Vec<_> = self.servers().iter().map(Server::announced).collect();
                format!("redis-cluster://{}", hosts.join(","))
            }
        }
    }

    pub(crate) fn note(&self, what: &str) {
        self.journal.note("-", what);
    }

    /// The servers that take writes, as far as they say so themselves.
    pub(crate) async fn primaries(&self) -> Vec<&Server> {
        let mut primaries = Vec::new();
        for server in self.servers() {
            if server.is_primary().await {
                primaries.push(server);
            }
        }
        primaries
    }

    /// The keys of the locks on one node of a cluster. None where all servers have all.
    pub(crate) async fn locks_of(&self, server: &Server) -> Vec<String> {
        let mut locks = Vec::new();
        if let Servers::Cluster(_) = &self.servers {
            for key in ["x", "rw", "p"].iter().flat_map(|kind| (0..KEYS).map(move |key| format!("{kind}:{key}"))) {
                // Who does not have the slot says who has it.
                if server.query::<bool>(cmd("EXISTS").arg(format!("lock:{{{key}}}"))).await.is_ok() {
                    locks.push(key);
                }
            }
        }
        locks
    }

    /// Has another server take the place of a primary, by command.
    pub(crate) async fn fail_over(&self, primary: &Server, victim: usize) {
        match &self.servers {
            Servers::Plain(_) => {}
            Servers::Guarded(guarded) => {
                let failover = cmd("SENTINEL").arg("FAILOVER").arg(SERVICE).clone();
                // It refuses while one is under way, or where it knows of no sound replica.
                let _ = guarded.sentinels[victim % guarded.sentinels.len()].query::<()>(&failover).await;
            }
            Servers::Cluster(cluster) => {
                let mut failover = cmd("CLUSTER");
                failover.arg("FAILOVER");
                if victim.is_multiple_of(2) {
                    // As if the primary were dead: it is not asked for what it has granted last.
                    failover.arg("FORCE");
                }
                let id = primary.query::<String>(cmd("CLUSTER").arg("MYID")).await.unwrap_or_default();
                for node in &cluster.nodes {
                    let nodes = node.query::<String>(cmd("CLUSTER").arg("NODES")).await.unwrap_or_default();
                    let is_replica = nodes.lines().any(|line| line.contains(&format!("myself,slave {id} ")));
                    if is_replica && node.query::<()>(&failover).await.is_ok() {
                        return;
                    }
                }
            }
        }
    }

    /// Waits until another server has taken the place of a primary, and everybody can know it: until then clients are led to this one, if
    /// it answers.
    pub(crate) async fn is_replaced(&self, primary: &Server) {
        let is_replaced = async || {
            let mut names = Vec::new();
            for sentinel in self.sentinels() {
                names.extend(sentinel.named().await);
            }
            let has_all = self.topology != Topology::Cluster || self.primaries().await.len() == PRIMARIES;
            has_all && names.len() == self.sentinels().len() && !names.contains(&primary.announced())
        };
        within(SETTLED, "a successor", is_replaced).await;
    }

    /// Cuts a primary off from its replicas, and from sentinels or other nodes, and not from clients; or mends that.
    pub(crate) fn isolate(&self, primary: &Server, is_cut_off: bool) {
        match &self.servers {
            Servers::Plain(_) => {}
            Servers::Guarded(_) => {
                let change = if is_cut_off { Proxy::blackhole } else { Proxy::pass };
                primary.link().into_iter().for_each(change);
            }
            Servers::Cluster(cluster) => {
                let change = if is_cut_off { Cluster::cut_off } else { Cluster::join_again };
                if let Some(node) = cluster.nodes.iter().position(|node| node.address() == primary.address()) {
                    change(cluster, node);
                }
            }
        }
    }

    /// Waits until no client is at a primary any more that was replaced.
    pub(crate) async fn is_left(&self, primary: &Server) {
        self.is_replaced(primary).await;
        let is_empty = async || {
            let clients = primary.query::<String>(cmd("CLIENT").arg("LIST").arg("TYPE").arg("normal")).await;
            clients.is_ok_and(|clients| !clients.contains(&format!("user={} ", rights::USER)))
        };
        // How long clients may take to hear of it.
        let begin = std::time::Instant::now();
        while begin.elapsed() < HEARD && !is_empty().await {
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Moves the slot of one of the locks to another primary.
    pub(crate) async fn move_slot(&self, victim: usize, lasts: Duration) {
        let (Servers::Cluster(cluster), primaries) = (&self.servers, self.primaries().await) else { return };
        let lock = format!("{}:{}", ["x", "rw", "p"][victim % 3], victim / 3);
        let slot = cluster.slot(&lock).await;
        for (at, from) in primaries.iter().enumerate() {
            // Who does not have the slot says who has it.
            if from.query::<bool>(cmd("EXISTS").arg(format!("lock:{{{lock}}}"))).await.is_err() {
                continue;
            }
            let to = primaries[(at + 1) % primaries.len()];
            cluster.begin_move(slot, from, to).await;
            // For a while, what is new comes to the other one.
            sleep(lasts / 2).await;
            cluster.move_keys(slot, from, to).await;
            sleep(lasts / 2).await;
            return cluster.end_move(slot, from, to).await;
        }
    }

    /// Waits until there are as many primaries as there are to be, and everybody knows them.
    pub(crate) async fn settles(&self) {
        match &self.servers {
            Servers::Plain(_) => {}
            Servers::Guarded(guarded) => {
                let settled = || async {
                    let primaries = self.primaries().await;
                    let [primary] = primaries[..] else { return false };
                    for sentinel in &guarded.sentinels {
                        if sentinel.named().await != Some(primary.announced()) || !sentinel.is_calm().await {
                            return false;
                        }
                    }
                    let info = primary.info("replication").await.unwrap_or_default();
                    info.matches("state=online").count() == guarded.servers.len() - 1
                };
                within(SETTLED, "one primary that all sentinels name", settled).await;
            }
            Servers::Cluster(cluster) => {
                let settled = || async {
                    for node in &cluster.nodes {
                        let info = node.query::<String>(cmd("CLUSTER").arg("INFO")).await.unwrap_or_default();
                        let links = node.info("replication").await.unwrap_or_default();
                        if !info.contains("cluster_state:ok\r") || links.contains("master_link_status:down") {
                            return false;
                        }
                    }
                    self.primaries().await.len() == PRIMARIES
                };
                within(SETTLED, "a cluster that is whole", settled).await;
            }
        }
    }

    /// What is left on the servers, once it is time for nothing to be left, or nothing.
    pub(crate) async fn leftovers(&self, patience: Duration) -> Vec<String> {
        let left = async || {
            let mut left = Vec::new();
            for server in self.servers() {
                // The last fencing tokens are remembered for a day.
                left.extend(server.keys().await.into_iter().filter(|key| !key.ends_with(":fence")));
            }
            left
        };
        let begin = std::time::Instant::now();
        loop {
            let left = left().await;
            if left.is_empty() || begin.elapsed() > patience {
                return left;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Has the servers answer again before anything else is asked of them.
    pub(crate) async fn answers(&self, server: &Server) {
        within(SETTLED, "a server to answer", || async { server.info("server").await.is_some() }).await;
    }
}
