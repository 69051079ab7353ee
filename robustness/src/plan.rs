//! What is made to fail, in which order and for how long: a function of the seed and the topology.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

use crate::client::TTL;
use crate::rights::TAKEN;
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
    /// The same of one reply: the server has obeyed in time.
    LateReply,
    /// Connections are refused.
    Refuse,
    /// The server process stands still.
    Freeze,
    /// The server is killed, and comes back with nothing.
    Restart,
    /// The same, with all it had at some time shortly before.
    RestartWithData,
    /// The server is shut down in order, and comes back with all that it had.
    ShutDown,
    /// The server is killed, and comes back when another one has taken its place.
    Crash,
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
    /// The clients' user lacks this right, and later has it again.
    Forbid(&'static str),
    /// The server's wall clock jumps by so many seconds, and later back.
    StepServer(i64),
    /// The primary is replaced by command.
    Failover,
    /// The primary is cut off from its replicas, and from the sentinels or other nodes, and not from the clients.
    Isolate,
    /// So many sentinels stand still.
    FreezeSentinels(usize),
    /// A sentinel is killed, and comes back.
    RestartSentinel,
    /// The slot of a lock goes to another primary, and takes its time.
    MoveSlot,
}

impl FaultKind {
    /// Whether another server may take the place of the one that is hit, by what is meant by this; or it loses nothing by that.
    pub(crate) fn may_replace(self) -> bool {
        use FaultKind::{Crash, Failover, Freeze, Isolate, Restart, RestartWithData, ShutDown};
        matches!(self, Freeze | Crash | Failover | Isolate | Restart | RestartWithData | ShutDown)
    }
}

/// Those that have most to do with leases come more often. The last one is not for a way that is shared: the listener is not for
/// clients alone there.
const OF_LINKS: [FaultKind; 10] = [
    FaultKind::BlackHole,
    FaultKind::BlackHole,
    FaultKind::SlowReplies(0),
    FaultKind::SlowThenDeaf(0),
    FaultKind::SlowThenDeaf(0),
    FaultKind::SlowThenDeaf(0),
    FaultKind::LostReplies,
    FaultKind::LateRequest,
    FaultKind::LateReply,
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
    let shares_links = matches!(topology, Topology::Sentinel | Topology::Cluster);
    let of_links = &OF_LINKS[..OF_LINKS.len() - usize::from(shares_links)];
    let kind = match random.u8(..11) {
        0 | 1 => FaultKind::Stop,
        2 => FaultKind::Kill,
        3 => FaultKind::StepClient([-3_600, 3_600][random.usize(..2)]),
        _ => of_links[random.usize(..of_links.len())],
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
    let forbidden = FaultKind::Forbid(TAKEN[random.usize(..TAKEN.len())]);
    let harmless =
        [FaultKind::Pause, FaultKind::Disconnect, FaultKind::ForgetScripts, FaultKind::OutOfMemory, forbidden];
    let more: &[FaultKind] = match topology {
        Topology::Single => &[
            FaultKind::Freeze,
            FaultKind::Restart,
            FaultKind::RestartWithData,
            FaultKind::ShutDown,
            FaultKind::Flush,
            FaultKind::StepServer(5),
            FaultKind::StepServer(-5),
        ],
        Topology::Sentinel => &[
            FaultKind::Failover,
            FaultKind::Failover,
            FaultKind::Freeze,
            FaultKind::Crash,
            FaultKind::Restart,
            FaultKind::Flush,
            FaultKind::Isolate,
            FaultKind::StepServer(2),
            FaultKind::StepServer(-2),
            FaultKind::FreezeSentinels(1),
            FaultKind::FreezeSentinels(2),
            FaultKind::RestartSentinel,
        ],
        Topology::Cluster => &[
            FaultKind::Failover,
            FaultKind::Failover,
            FaultKind::Freeze,
            FaultKind::Crash,
            FaultKind::Restart,
            FaultKind::Flush,
            FaultKind::Isolate,
            FaultKind::StepServer(2),
            FaultKind::StepServer(-2),
            FaultKind::MoveSlot,
            FaultKind::MoveSlot,
        ],
        // A minority only, and back without its data only after the longest ttl.
        Topology::Redlock => &[
            FaultKind::Freeze,
            FaultKind::Freeze,
            FaultKind::Restart,
            FaultKind::ShutDown,
            FaultKind::StepServer(2),
            FaultKind::StepServer(-2),
        ],
    };
    let at = random.usize(..harmless.len() + more.len());
    let kind = harmless.iter().chain(more).nth(at).copied().unwrap_or(FaultKind::Pause);
    let after = Duration::from_millis(random.u64(200..1_500));
    let lasts = TTL.mul_f64(0.1 + 1.4 * random.f64());
    // As many as there are locks of all kinds.
    Fault { after, victim: random.usize(..15), lasts, kind }
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
            [(Topology::Single, 21), (Topology::Sentinel, 23), (Topology::Cluster, 22), (Topology::Redlock, 19)]
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
