//! What is asked for on the command line, and how long each part takes.

use std::time::Duration;

use crate::contender::Workload;

pub(crate) const HELP: &str = "\
Usage: cargo xtask compare [--quick] [--only <workload>].. [--write]

  --quick            a first look, in about three minutes; a full run takes about 22
  --only <workload>  only this one; may be repeated: uncontended, delayed, contended, held, redlock
  --write            write docs/comparison.md and its charts also after a quick or partial run, with what that has measured

Peers in other languages take part where they are installed, or where these variables say:

  pip install --target <folder> redis                                COMPARE_PYTHON_PATH=<folder>
  npm install --prefix <folder> redlock@5.0.0-beta.2 ioredis         COMPARE_NODE_PATH=<folder>/node_modules";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) only: Vec<Workload>,
    write: bool,
}

/// How often and how long.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) round: Duration,
}

/// How many locks are held, and for how long.
#[derive(Clone, Copy)]
pub(crate) struct HeldPlan {
    pub(crate) locks: usize,
    /// The time is cut in so many pieces, each of which gives a figure.
    pub(crate) slices: u32,
    pub(crate) slice: Duration,
    pub(crate) paused_slices: u32,
}

impl Options {
    /// `None` when the help is asked for.
    pub(crate) fn parse(arguments: &[String]) -> Result<Option<Options>, String> {
        let mut options = Options { quick: false, only: Vec::new(), write: false };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--quick" => options.quick = true,
                "--write" => options.write = true,
                "--only" => {
                    let name = arguments.next().ok_or("`--only` needs a workload")?;
                    let workload = Workload::ALL.into_iter().find(|workload| workload.name() == name);
                    options.only.push(workload.ok_or_else(|| format!("there is no workload `{name}`\n\n{HELP}"))?);
                }
                "--help" | "-h" | "help" => return Ok(None),
                _ => return Err(format!("unknown argument `{argument}`\n\n{HELP}")),
            }
        }
        Ok(Some(options))
    }

    pub(crate) fn workloads(&self) -> impl Iterator<Item = Workload> {
        Workload::ALL.into_iter().filter(|workload| self.only.is_empty() || self.only.contains(workload))
    }

    /// A partial run must not take the place of a full one unasked.
    pub(crate) fn writes(&self) -> bool {
        self.write || !self.quick && self.only.is_empty()
    }

    pub(crate) fn plan(&self, workload: Workload) -> Plan {
        let (rounds, millis) = match (workload, self.quick) {
            (Workload::Uncontended, false) => (41, 100),
            (Workload::Delayed, false) => (21, 200),
            (Workload::Contended, false) => (5, 1_200),
            (Workload::Redlock, false) => (11, 200),
            (Workload::Contended, true) => (1, 800),
            (Workload::Redlock, true) => (2, 50),
            (_, true) => (3, 50),
            (Workload::Held, false) => (1, 0),
        };
        Plan { rounds, round: Duration::from_millis(millis) }
    }

    pub(crate) fn held(&self) -> HeldPlan {
        if self.quick {
            return HeldPlan { locks: 2_000, slices: 4, slice: Duration::from_millis(2_500), paused_slices: 2 };
        }
        HeldPlan { locks: 20_000, slices: 6, slice: Duration::from_secs(10), paused_slices: 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::Options;
    use crate::contender::Workload;

    fn parse(line: &str) -> Result<Option<Options>, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&arguments)
    }

    #[test]
    fn a_full_run_writes_and_a_partial_one_only_when_told() {
        assert!(parse("").unwrap().unwrap().writes());
        assert!(!parse("--quick").unwrap().unwrap().writes());
        assert!(!parse("--only held").unwrap().unwrap().writes());
        assert!(parse("--quick --write").unwrap().unwrap().writes());
    }

    #[test]
    fn only_may_be_repeated() {
        let options = parse("--only redlock --only held").unwrap().unwrap();
        assert_eq!(options.workloads().collect::<Vec<_>>(), [Workload::Held, Workload::Redlock]);
    }

    #[test]
    fn mistakes_are_told() {
        assert!(parse("--only").is_err());
        assert!(parse("--only nothing").unwrap_err().contains("nothing"));
        assert!(parse("--fast").is_err());
        assert_eq!(parse("--help"), Ok(None));
    }
}
