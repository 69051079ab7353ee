//! What was done, in a few lines.

use std::collections::BTreeMap;
use std::fmt;

use crate::check::Checked;
use crate::history::What;
use crate::settings::Topology;

/// Of one topology.
pub(crate) struct Report {
    pub(crate) topology: Topology,
    pub(crate) seed: u64,
    /// How many replicas had to confirm a lock.
    pub(crate) acks: u32,
    pub(crate) faults: usize,
    pub(crate) checked: Checked,
    /// What was wrong in the end: locks that were not free, and what was left.
    pub(crate) leftovers: Vec<String>,
}

impl Report {
    pub(crate) fn is_good(&self) -> bool {
        self.checked.violations.is_empty() && self.leftovers.is_empty() && self.is_enough()
    }

    /// Whether there was enough of everything for the run to prove something.
    pub(crate) fn is_enough(&self) -> bool {
        self.checked.holds.len() >= 20 && self.checked.operations >= 20 && self.faults >= 3
    }

    /// How calls ended, and how often.
    fn ends(&self) -> BTreeMap<&str, usize> {
        let mut ends = BTreeMap::new();
        for event in &self.checked.events {
            if let What::Done(how) = &event.what {
                *ends.entry(how.split(' ').next().unwrap_or_default()).or_default() += 1;
            }
        }
        ends
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checked = &self.checked;
        let count = |of: fn(&harness::holders::Hold) -> usize| checked.holds.iter().map(of).sum::<usize>();
        let calls = checked.events.iter().filter(|event| matches!(event.what, What::Call(_))).count();
        let ends: Vec<_> = self.ends().into_iter().map(|(how, count)| format!("{how} {count}")).collect();
        writeln!(
            f,
            "{} (seed {}, replica_acks {}): {} faults, {calls} calls: {}",
            self.topology.name(),
            self.seed,
            self.acks,
            self.faults,
            ends.join(", ")
        )?;
        write!(
            f,
            "  {} holds, {} steps ({} interrupted, not counted), {} reads and writes of registers, {} leases compared with the server, {} losses; after a server had forgotten, as documented: {} overlaps, {} late tokens",
            checked.holds.len(),
            count(|hold| hold.steps),
            count(|hold| hold.interrupted),
            checked.operations,
            checked.compared,
            checked.lost,
            checked.excused,
            checked.late
        )?;
        if !self.is_enough() {
            write!(f, "\n  TOO LITTLE HAPPENED for this to prove anything")?;
        }
        for leftover in &self.leftovers {
            write!(f, "\n  IN THE END: {leftover}")?;
        }
        Ok(())
    }
}
