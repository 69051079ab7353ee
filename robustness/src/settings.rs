//! What can be set.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// Tries to break the promises of distlock at random.
#[derive(Debug, Parser)]
#[command(name = "robustness")]
pub(crate) struct Settings {
    /// How long faults are made, in all.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// What the plan is drawn from; without it each run has another.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Where the locks are. `all` has each for its part of the time.
    #[arg(long, value_enum, default_value = "all")]
    topology: Choice,
    /// How many client processes there are, with five tasks each.
    #[arg(long, default_value_t = 5)]
    pub(crate) clients: usize,
    /// A fault to put into the library. The run then fails unless it is found.
    #[arg(long, value_enum)]
    pub(crate) plant: Option<Plant>,
    /// Where the picture of a violation is to be drawn.
    #[arg(long, default_value = "target/robustness.svg")]
    pub(crate) picture: PathBuf,
    /// Keeps what was written down in this folder.
    #[arg(long)]
    pub(crate) keep: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choice {
    All,
    Single,
    Sentinel,
    Cluster,
    Redlock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    Single,
    Sentinel,
    Cluster,
    Redlock,
}

/// See `planted` in the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Plant {
    ReleaseWithoutCheck,
    LeaseFromReply,
    RenewalErrorIgnored,
}

impl Plant {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Plant::ReleaseWithoutCheck => "release-without-check",
            Plant::LeaseFromReply => "lease-from-reply",
            Plant::RenewalErrorIgnored => "renewal-error-ignored",
        }
    }
}

impl Topology {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Topology::Single => "single",
            Topology::Sentinel => "sentinel",
            Topology::Cluster => "cluster",
            Topology::Redlock => "redlock",
        }
    }
}

impl Settings {
    /// One after the other, each for how long.
    pub(crate) fn topologies(&self) -> Vec<(Topology, Duration)> {
        let all = [Topology::Single, Topology::Sentinel, Topology::Cluster, Topology::Redlock];
        let topologies = match self.topology {
            // What is planted is found on one server, if anywhere.
            Choice::All if self.plant.is_some() => vec![Topology::Single],
            Choice::All => all.to_vec(),
            Choice::Single => vec![Topology::Single],
            Choice::Sentinel => vec![Topology::Sentinel],
            Choice::Cluster => vec![Topology::Cluster],
            Choice::Redlock => vec![Topology::Redlock],
        };
        let each = Duration::from_secs_f64(self.minutes * 60.0) / u32::try_from(topologies.len()).unwrap_or(1);
        topologies.into_iter().map(|topology| (topology, each)).collect()
    }
}
