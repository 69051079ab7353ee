//! The servers: of one topology, and one more that nothing happens to.

use std::path::Path;
use std::time::Duration;

use harness::cluster::Cluster;
use harness::eventually::within;
use harness::faketime::FakeClock;
use harness::proxy::Proxy;
use harness::sentinel::{Guarded, SERVICE};
use harness::server::Server;
use redis::cmd;

use crate::journal::Journal;
use crate::settings::Topology;

/// After a fault, servers that agree again on who does what: sentinels look at a server that is not what they take it for for up to
/// half a minute.
const SETTLED: Duration = Duration::from_secs(90);

/// How many independent servers there are under Redlock.
const SERVERS: usize = 5;

pub(crate) struct World {
    pub(crate) topology: Topology,
    pub(crate) journal: Journal,
    pub(crate) store: Server,
    /// The wall clock of the single server.
    pub(crate) clock: FakeClock,
    servers: Servers,
}

enum Servers {
    Plain(Vec<Server>),
    Guarded(Guarded),
    Cluster(Cluster),
}

impl World {
    pub(crate) async fn start(topology: Topology, folder: &Path) -> World {
        let clock = FakeClock::new();
        let servers = match topology {
            Topology::Single => Servers::Plain(vec![Server::options().clock(&clock).start().await]),
            Topology::Redlock => {
                let mut servers = Vec::new();
                for _ in 0..SERVERS {
                    servers.push(Server::start().await);
                }
                Servers::Plain(servers)
            }
            Topology::Sentinel => Servers::Guarded(Guarded::start(2).await),
            Topology::Cluster => {
                let cluster = Cluster::start(3, 3).await;
                cluster.be_impatient().await;
                Servers::Cluster(cluster)
            }
        };
        let journal = Journal::open(&folder.join("journal"));
        World { topology, journal, store: Server::start().await, clock, servers }
    }

    /// All servers with locks.
    pub(crate) fn servers(&self) -> &[Server] {
        match &self.servers {
            Servers::Plain(servers) => servers,
            Servers::Guarded(guarded) => &guarded.servers,
            Servers::Cluster(cluster) => &cluster.nodes,
        }
    }

    /// The ways of one client to the servers, each of which can fail. None where clients are told the servers' addresses.
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
            Servers::Cluster(cluster) => cluster.url(),
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

    /// Has another server take the place of a primary, by command.
    pub(crate) async fn fail_over(&self, victim: usize) {
        match &self.servers {
            Servers::Plain(_) => {}
            Servers::Guarded(guarded) => {
                let failover = cmd("SENTINEL").arg("FAILOVER").arg(SERVICE).clone();
                // It refuses while one is under way, or where it knows of no sound replica.
                let _ = guarded.sentinels[victim % guarded.sentinels.len()].query::<()>(&failover).await;
            }
            Servers::Cluster(cluster) => {
                for node in cluster.nodes.iter().cycle().skip(victim).take(cluster.nodes.len()) {
                    if !node.is_primary().await && node.query::<()>(cmd("CLUSTER").arg("FAILOVER")).await.is_ok() {
                        return;
                    }
                }
            }
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
                        if sentinel.named().await != Some(primary.address()) {
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
                    self.primaries().await.len() == 3
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
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Has the servers answer again before anything else is asked of them.
    pub(crate) async fn answers(&self, server: &Server) {
        within(SETTLED, "a server to answer", || async { server.info("server").await.is_some() }).await;
    }
}
