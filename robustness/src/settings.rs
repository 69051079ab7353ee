//! What can be set.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::check::Promise;

/// Tries to break the promises of distlock at random.
#[derive(Debug, Parser)]
#[command(name = "robustness")]
pub(crate) struct Settings {
    /// How long faults are made, in all.
    #[arg(long, default_value_t = 1.0, value_parser = minutes)]
    minutes: f64,
    /// What the plan is drawn from; without it each run has another.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Where the locks are. `all` has each for its part of the time.
    #[arg(long, value_enum, default_value = "all")]
    topology: Choice,
    /// How many client processes there are, with five tasks each.
    #[arg(long, default_value_t = 5, value_parser = clients)]
    pub(crate) clients: usize,
    /// A fault to put into the library. The run then fails unless it is found.
    #[arg(long, value_enum)]
    pub(crate) plant: Option<Plant>,
    /// Where pictures of violations are to be drawn. The topology is put into the name.
    #[arg(long, default_value = "target/robustness.svg")]
    pub(crate) picture: PathBuf,
    /// Keeps what was written down in this folder. Without it that is kept only of a run that fails, beside the picture.
    #[arg(long)]
    pub(crate) keep: Option<PathBuf>,
}

/// A minute over all topologies is little already; more than a day is a mistake.
fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.1..=1440.0).contains(&minutes) { Ok(minutes) } else { Err("from 0.1 to 1440".to_owned()) }
}

/// Each is a process of its own.
fn clients(text: &str) -> Result<usize, String> {
    let clients = text.parse().map_err(|_| "not a number".to_owned())?;
    if (2..=50).contains(&clients) { Ok(clients) } else { Err("from 2 to 50".to_owned()) }
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

impl Plant {
    /// What it breaks, and nothing else that is found shows that it was found.
    pub(crate) fn breaks(self) -> &'static [Promise] {
        match self {
            Plant::ReleaseWithoutCheck | Plant::LeaseFromReply | Plant::RenewalErrorIgnored => {
                &[Promise::Exclusion, Promise::Counters, Promise::Leases]
            }
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
    /// Where the picture of one topology is drawn.
    pub(crate) fn picture_of(&self, topology: Topology) -> PathBuf {
        let stem = self.picture.file_stem().unwrap_or_default().to_string_lossy();
        self.picture.with_file_name(format!("{stem}-{}.svg", topology.name()))
    }

    /// Where the journal of a run is kept, if it is.
    pub(crate) fn keeps(&self, is_good: bool) -> Option<PathBuf> {
        let of_failed = || (!is_good && self.plant.is_none()).then(|| self.picture.with_extension("failed"));
        self.keep.clone().or_else(of_failed)
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Option<Settings> {
        Settings::try_parse_from(["robustness"].iter().chain(arguments)).ok()
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in ["-1", "0", "nan", "inf", "1e30", "1e9", "much"] {
            assert!(parsed(&[&format!("--minutes={wrong}")]).is_none(), "{wrong}");
        }
        for wrong in ["-1", "0", "1", "1000000"] {
            assert!(parsed(&[&format!("--clients={wrong}")]).is_none(), "{wrong}");
        }
        assert!(parsed(&["--minutes", "0.7", "--clients", "3"]).is_some());
    }

    #[test]
    fn each_topology_has_its_picture_and_what_failed_is_kept_beside_it() {
        let settings = parsed(&["--picture", "some/where.svg"]).expect("a folder");
        assert_eq!(settings.picture_of(Topology::Redlock), PathBuf::from("some/where-redlock.svg"));
        assert_eq!((settings.keeps(true), settings.keeps(false)), (None, Some("some/where.failed".into())));
        let planted = parsed(&["--plant", "lease-from-reply"]).expect("a fault");
        assert_eq!(planted.keeps(false), None);
    }
}
