//! What is made to fail, in which order and for how long: a function of the seed and the topology.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

use crate::client::TTL;
use crate::settings::Topology;

/// Two rows of faults, which go on at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) of_clients: Vec<Fault>,
    pub(crate) of_servers: Vec<Fault>,
}

/// All is well for a while, and then something fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) after: Duration,
    /// Which client or server it hits.
    pub(crate) victim: usize,
    pub(crate) lasts: Duration,
    pub(crate) kind: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// SIGSTOP, and later SIGCONT.
    Stop,
    /// SIGKILL; another client takes its place.
    Kill,
    /// The client's wall clock jumps by so many seconds.
    StepClient(i64),
    /// Nothing passes on the way to the server, and nobody is told; what was sent arrives later.
    BlackHole,
    /// Replies are late by so many milliseconds.
    SlowReplies(u64),
    /// The same, and then nothing passes any more.
    SlowThenDeaf(u64),
    /// The server obeys, the answers are lost, and the connections with them.
    LostReplies,
    /// One request arrives when everybody has given it up, behind later ones of other connections.
    LateRequest,
    /// Connections are refused.
    Refuse,
    /// The server process stands still.
    Freeze,
    /// The server is killed, and comes back with nothing.
    Restart,
    /// The same, with all it had at some time shortly before.
    RestartWithData,
    /// `CLIENT PAUSE`.
    Pause,
    /// `CLIENT KILL` of all connections.
    Disconnect,
    /// `SCRIPT FLUSH`.
    ForgetScripts,
    /// `FLUSHALL`.
    Flush,
    /// No write that needs memory is taken.
    OutOfMemory,
    /// The server's wall clock jumps by so many seconds, and later back.
    StepServer(i64),
    /// The primary is replaced by command.
    Failover,
}

/// Those that have most to do with leases come more often.
const OF_LINKS: [FaultKind; 9] = [
    FaultKind::BlackHole,
    FaultKind::BlackHole,
    FaultKind::SlowReplies(0),
    FaultKind::SlowThenDeaf(0),
    FaultKind::SlowThenDeaf(0),
    FaultKind::SlowThenDeaf(0),
    FaultKind::LostReplies,
    FaultKind::LateRequest,
    FaultKind::Refuse,
];

impl Plan {
    /// Enough for so long.
    pub(crate) fn of(seed: u64, topology: Topology, clients: usize, time: Duration) -> Plan {
        let mut random = Rng::with_seed(seed);
        // Each takes a quarter of a second at least.
        let many = usize::try_from(time.as_millis() / 250).unwrap_or(usize::MAX) + 1;
        let of_clients = (0..many).map(|_| of_client(&mut random, topology, clients)).collect();
        let of_servers = (0..many).map(|_| of_server(&mut random, topology)).collect();
        Plan { of_clients, of_servers }
    }
}

fn of_client(random: &mut Rng, topology: Topology, clients: usize) -> Fault {
    // Where clients are told the addresses of servers, there is nothing in between.
    let has_links = matches!(topology, Topology::Single | Topology::Redlock);
    let kind = match random.u8(..if has_links { 10 } else { 4 }) {
        0 | 1 => FaultKind::Stop,
        2 => FaultKind::Kill,
        3 => FaultKind::StepClient([-3_600, 3_600][random.usize(..2)]),
        _ => OF_LINKS[random.usize(..OF_LINKS.len())],
    };
    let slow = random.u64(100..380);
    let kind = match kind {
        FaultKind::SlowReplies(_) => FaultKind::SlowReplies(slow),
        FaultKind::SlowThenDeaf(_) => FaultKind::SlowThenDeaf(slow),
        other => other,
    };
    let after = Duration::from_millis(random.u64(20..400));
    // From a fifth of the ttl to twice that.
    let lasts = TTL.mul_f64(0.2 + 1.8 * random.f64());
    Fault { after, victim: random.usize(..clients), lasts, kind }
}

fn of_server(random: &mut Rng, topology: Topology) -> Fault {
    let harmless = [FaultKind::Pause, FaultKind::Disconnect, FaultKind::ForgetScripts, FaultKind::OutOfMemory];
    let more: &[FaultKind] = match topology {
        Topology::Single => &[
            FaultKind::Freeze,
            FaultKind::Restart,
            FaultKind::RestartWithData,
            FaultKind::Flush,
            FaultKind::StepServer(5),
            FaultKind::StepServer(-5),
        ],
        Topology::Sentinel | Topology::Cluster => {
            &[FaultKind::Failover, FaultKind::Failover, FaultKind::Freeze, FaultKind::Restart, FaultKind::Flush]
        }
        // A minority only, and back without its data only after the longest ttl.
        Topology::Redlock => &[FaultKind::Freeze, FaultKind::Restart, FaultKind::RestartWithData, FaultKind::Freeze],
    };
    let at = random.usize(..harmless.len() + more.len());
    let kind = harmless.iter().chain(more).nth(at).copied().unwrap_or(FaultKind::Pause);
    let after = Duration::from_millis(random.u64(200..1_500));
    let lasts = TTL.mul_f64(0.1 + 1.4 * random.f64());
    Fault { after, victim: random.usize(..5), lasts, kind }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} for {} ms", self.kind, self.victim, self.lasts.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_it_all() {
        let plan = |seed| format!("{:?}", Plan::of(seed, Topology::Single, 5, Duration::from_secs(60)));
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
    }

    #[test]
    fn on_each_topology_there_is_each_of_its_faults() {
        for (topology, count) in
            [(Topology::Single, 18), (Topology::Sentinel, 11), (Topology::Cluster, 11), (Topology::Redlock, 16)]
        {
            let plan = Plan::of(1, topology, 5, Duration::from_secs(600));
            let kinds = plan.of_clients.iter().chain(&plan.of_servers);
            // By name, without the figures.
            let name = |fault: &Fault| format!("{:?}", fault.kind).split('(').next().map(str::to_owned);
            let kinds: std::collections::BTreeSet<_> = kinds.map(name).collect();
            assert_eq!(kinds.len(), count, "{topology:?}: {kinds:?}");
        }
    }
}
