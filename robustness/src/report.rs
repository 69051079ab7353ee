//! What was done, in a few lines.

use std::collections::BTreeMap;
use std::fmt;

use crate::check::{Checked, Exempt};
use crate::coverage::Coverage;
use crate::history::What;
use crate::settings::{Plant, Topology};

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

/// What a run has shown. The worst of several is the last in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// All promises were kept; or the fault that was planted was found.
    Good,
    TooLittle,
    Broken,
}

/// If more of the time is exempt from the check for two holders, or more of the pairs of tokens, not enough was checked. Failovers of
/// Sentinel take their time: a run of 42 s came to 0.42.
const MOST_EXEMPT: f64 = 0.6;

impl Report {
    /// A planted fault has to be found by what it can break, and not by anything that was left by chance.
    pub(crate) fn verdict(&self, plant: Option<Plant>) -> Verdict {
        let violations = &self.checked.violations;
        let is_found = |plant: Plant| violations.iter().any(|violation| plant.breaks().contains(&violation.promise));
        let is_good = plant.map_or(violations.is_empty() && self.leftovers.is_empty(), is_found);
        match (is_good, self.is_enough()) {
            (true, true) => Verdict::Good,
            (true, false) => Verdict::TooLittle,
            (false, _) => Verdict::Broken,
        }
    }

    /// Whether there was enough of everything for the run to prove something.
    pub(crate) fn is_enough(&self) -> bool {
        let has_much = self.checked.holds.len() >= 20 && self.checked.operations >= 20 && self.faults >= 3;
        has_much && !self.checked.exempt.is_above(MOST_EXEMPT) && self.coverage().missing().is_empty()
    }

    fn coverage(&self) -> Coverage {
        Coverage::of(&self.checked.events, &self.checked.holds, self.topology == Topology::Redlock)
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
            "  {} holds, {} steps ({} interrupted, not counted), {} reads and writes of registers, {} looks at the server, {} losses; after a server had forgotten, as documented: {} overlaps, {} late tokens",
            checked.holds.len(),
            count(|hold| hold.steps),
            count(|hold| hold.interrupted),
            checked.operations,
            checked.compared,
            checked.lost,
            checked.excused,
            checked.late
        )?;
        let Exempt { time, pairs: (exempt, pairs) } = checked.exempt;
        write!(f, "; exempt for that: {:.0} % of the time, {exempt} of {pairs} pairs of tokens", time * 100.0)?;
        let coverage = self.coverage();
        write!(f, "\n  {coverage}")?;
        if !self.is_enough() {
            write!(
                f,
                "\n  TOO LITTLE HAPPENED for this to prove anything; missing: {}",
                coverage.missing().join(", ")
            )?;
        }
        for leftover in &self.leftovers {
            write!(f, "\n  IN THE END: {leftover}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;

    fn verdict(journal: &str, holders: &str, leftovers: &[&str], plant: Option<Plant>) -> Verdict {
        let leftovers = leftovers.iter().map(|what| (*what).to_owned()).collect();
        let checked = check(journal, holders);
        Report { topology: Topology::Single, seed: 1, acks: 0, faults: 3, checked, leftovers }.verdict(plant)
    }

    #[test]
    fn too_little_is_no_broken_promise() {
        assert_eq!(verdict("", "", &[], None), Verdict::TooLittle);
        assert_eq!(verdict("5 0.1 late x:1 7000000\n", "", &[], None), Verdict::Broken);
        assert_eq!(verdict("", "", &["a key"], None), Verdict::Broken);
        assert!(Verdict::Broken > Verdict::TooLittle && Verdict::TooLittle > Verdict::Good);
    }

    #[test]
    fn a_planted_fault_is_found_by_what_it_breaks_alone() {
        let two = "1 start 0.1/1 x k\n2 start 1.1/1 x k\n3 step 0.1/1 x k\n";
        let plant = Some(Plant::LeaseFromReply);
        // Found, but in a run that proves nothing.
        assert_eq!(verdict("", two, &[], plant), Verdict::TooLittle);
        assert_eq!(verdict("5 0.1 late x:1 7000000\n", "", &["a key"], plant), Verdict::Broken);
    }
}
