//! The counting of answers: pure, without clock and I/O.

use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::FencingToken;
use crate::backend::{Acquired, BackendError};

/// What the majority of the nodes says, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Open,
    Yes,
    No,
}

/// The answers of the nodes to one question.
pub(super) struct Count {
    nodes: usize,
    yes: usize,
    no: usize,
    /// Which nodes failed, and how.
    failed: Vec<(usize, BackendError)>,
}

impl Count {
    pub(super) fn new(nodes: usize) -> Count {
        Count { nodes, yes: 0, no: 0, failed: Vec::new() }
    }

    fn quorum(&self) -> usize {
        self.nodes / 2 + 1
    }

    pub(super) fn add(&mut self, node: usize, answer: Result<bool, BackendError>) {
        match answer {
            Ok(true) => self.yes += 1,
            Ok(false) => self.no += 1,
            Err(error) => self.failed.push((node, error)),
        }
    }

    /// A server that was not asked, since it is known to be away.
    pub(super) fn spare(&mut self, node: usize) {
        self.failed.push((node, BackendError::passing("it is not connected or has not answered lately")));
    }

    pub(super) fn verdict(&self) -> Verdict {
        if self.yes >= self.quorum() {
            Verdict::Yes
        } else if self.no + self.failed.len() > self.nodes - self.quorum() {
            Verdict::No
        } else {
            Verdict::Open
        }
    }

    /// Whether more answers change nothing: a majority is for it or against it. That one is out of reach because nodes
    /// failed is no decision.
    pub(super) fn is_decided(&self) -> bool {
        self.yes >= self.quorum() || self.no > self.nodes - self.quorum()
    }

    /// What the majority said, or that it can't be known.
    pub(super) fn outcome(self, nodes: &[impl fmt::Debug]) -> Result<bool, BackendError> {
        if self.is_decided() { Ok(self.yes >= self.quorum()) } else { Err(self.unanswered(nodes)) }
    }

    pub(super) fn unanswered(&self, nodes: &[impl fmt::Debug]) -> BackendError {
        let mut text = format!("of {} servers {} are needed, but", self.nodes, self.quorum());
        for (at, (node, error)) in self.failed.iter().enumerate() {
            let name = nodes.get(*node).map(|node| format!("{node:?}")).unwrap_or_default();
            text.push_str(if at == 0 { " " } else { "; " });
            // To write to a string can't fail.
            let _ = write!(text, "{name}: {error}");
        }
        if self.failed.iter().all(|(_, error)| error.is_passing()) {
            BackendError::unanswered(text)
        } else {
            BackendError::lasting(text)
        }
    }
}

/// The answers of the nodes to an attempt to acquire.
pub(super) struct Attempts {
    count: Count,
    pub(super) highest: Option<FencingToken>,
    /// Who holds the lock on one of the nodes, and for how long at least.
    held: Option<(String, Duration)>,
    foreign: Option<BackendError>,
}

impl Attempts {
    pub(super) fn new(count: Count) -> Attempts {
        Attempts { count, highest: None, held: None, foreign: None }
    }

    pub(super) fn add(&mut self, node: usize, answer: Result<Acquired, BackendError>) {
        let answer = match answer {
            Ok(Acquired::Granted(token)) => {
                self.highest = self.highest.max(token);
                Ok(true)
            }
            Ok(Acquired::Held { value, remaining }) => {
                // A majority becomes free when the last of the shorter leases ends; the shortest is a safe guess.
                if self.held.as_ref().is_none_or(|(_, known)| remaining < *known) {
                    self.held = Some((value, remaining));
                }
                Ok(false)
            }
            Err(error) if error.is_foreign() => {
                self.foreign = Some(error);
                Ok(false)
            }
            Err(error) => Err(error),
        };
        self.count.add(node, answer);
    }

    /// Whether servers that would take their time could still make a majority. Not where somebody else has a vote: then it
    /// is better to give back soon what was granted.
    pub(super) fn wants_more(&self) -> bool {
        self.count.verdict() == Verdict::Open && self.count.no == 0
    }

    pub(super) fn verdict(&self) -> Verdict {
        self.count.verdict()
    }

    /// This one was not asked.
    pub(super) fn spare(&mut self, node: usize) {
        self.count.spare(node);
    }

    /// Why the lock was not granted: it is held, unless too many nodes failed for anybody to hold it.
    pub(super) fn refusal(self, nodes: &[impl fmt::Debug]) -> Result<Acquired, BackendError> {
        if let Some(foreign) = self.foreign {
            return Err(foreign);
        }
        let failed_too_many = self.count.failed.len() > self.count.nodes - self.count.quorum();
        match self.held {
            Some((value, remaining)) if !failed_too_many => Ok(Acquired::Held { value, remaining }),
            // What may have been set is being freed, so nothing is left for the caller to undo.
            _ => Err(self.count.unanswered(nodes).nothing_done()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Count, Verdict};
    use crate::backend::BackendError;

    fn count(nodes: usize, answers: &str) -> Count {
        let mut count = Count::new(nodes);
        for (node, answer) in answers.chars().enumerate() {
            count.add(
                node,
                match answer {
                    'y' => Ok(true),
                    'n' => Ok(false),
                    _ => Err(BackendError::unanswered("late")),
                },
            );
        }
        count
    }

    #[test]
    fn a_majority_of_all_nodes_decides() {
        let table = [
            (3, "", Verdict::Open, false),
            (3, "yy", Verdict::Yes, true),
            (3, "yn", Verdict::Open, false),
            (3, "nn", Verdict::No, true),
            (3, "ny?", Verdict::No, false),
            (5, "yy??", Verdict::Open, false),
            (5, "yy???", Verdict::No, false),
            (5, "yyy", Verdict::Yes, true),
            (5, "nn?", Verdict::No, false),
            (5, "nnn", Verdict::No, true),
        ];
        for (nodes, answers, verdict, decided) in table {
            let count = count(nodes, answers);
            assert_eq!((count.verdict(), count.is_decided()), (verdict, decided), "{answers} of {nodes}");
        }
    }
}
