//! The counting of answers: pure, without clock and I/O.

use std::fmt;
use std::time::Duration;

use super::ask::Tried;
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
    /// On which nodes the key is in use for something else. They are against it.
    foreign: Vec<(usize, BackendError)>,
    /// Which nodes failed, and how.
    failed: Vec<(usize, BackendError)>,
}

impl Count {
    pub(super) fn new(nodes: usize) -> Count {
        Count { nodes, yes: 0, no: 0, foreign: Vec::new(), failed: Vec::new() }
    }

    fn quorum(&self) -> usize {
        self.nodes / 2 + 1
    }

    pub(super) fn add(&mut self, node: usize, answer: Result<bool, BackendError>) {
        match answer {
            Ok(true) => self.yes += 1,
            Ok(false) => self.no += 1,
            Err(error) if error.is_foreign() => self.foreign.push((node, error)),
            Err(error) => self.failed.push((node, error)),
        }
    }

    fn against(&self) -> usize {
        self.no + self.foreign.len()
    }

    /// Whether so many nodes leave too few for a majority.
    fn rule_it_out(&self, nodes: usize) -> bool {
        nodes > self.nodes - self.quorum()
    }

    /// A server that was not asked, since it is known to be away.
    pub(super) fn spare(&mut self, node: usize) {
        self.failed.push((node, BackendError::passing("it is not connected or has not answered lately")));
    }

    pub(super) fn verdict(&self) -> Verdict {
        if self.yes >= self.quorum() {
            Verdict::Yes
        } else if self.rule_it_out(self.against() + self.failed.len()) {
            Verdict::No
        } else {
            Verdict::Open
        }
    }

    /// Whether more answers change nothing: a majority is for it or against it. That one is out of reach because nodes
    /// failed is no decision.
    pub(super) fn is_decided(&self) -> bool {
        self.yes >= self.quorum() || self.rule_it_out(self.against())
    }

    /// What the majority said, or that it can't be known.
    pub(super) fn outcome(self, nodes: &[impl fmt::Debug]) -> Result<bool, BackendError> {
        if self.is_decided() { Ok(self.yes >= self.quorum()) } else { Err(self.unanswered(nodes)) }
    }

    /// That it can't be known, and why. It stays so only if what stays rules out a majority by itself.
    pub(super) fn unanswered(&self, nodes: &[impl fmt::Debug]) -> BackendError {
        let mut reasons = Vec::with_capacity(1 + self.foreign.len() + self.failed.len());
        if self.no > 0 {
            reasons.push(format!("{} said no", self.no));
        }
        let name = |node: usize| nodes.get(node).map(|node| format!("{node:?}")).unwrap_or_default();
        let held = self.foreign.iter().map(|(node, found)| format!("{}: the key holds {found}", name(*node)));
        reasons.extend(held);
        reasons.extend(self.failed.iter().map(|(node, error)| format!("{}: {error}", name(*node))));
        let text = format!("of {} servers {} are needed, but {}", self.nodes, self.quorum(), reasons.join("; "));
        let lasting = self.failed.iter().filter(|(_, error)| !error.is_passing()).count();
        if self.rule_it_out(lasting + self.foreign.len()) {
            BackendError::lasting(text)
        } else {
            BackendError::unanswered(text)
        }
    }
}

/// The answers of the nodes to an attempt to acquire.
pub(super) struct Attempts {
    count: Count,
    pub(super) highest: Option<FencingToken>,
    /// Which entry somebody else holds on one of the nodes, who, and for how long at least.
    held: Option<(usize, String, Duration)>,
    /// Which entry's key is in use for something else.
    foreign: usize,
}

impl Attempts {
    pub(super) fn new(count: Count) -> Attempts {
        Attempts { count, highest: None, held: None, foreign: 0 }
    }

    /// Takes in what a node said, and about which entry if that was a refusal.
    pub(super) fn add(&mut self, node: usize, (index, answer): Tried) {
        let answer = match answer {
            Ok(Acquired::Granted(token)) => {
                self.highest = self.highest.max(token);
                Ok(true)
            }
            Ok(Acquired::Held { value, remaining }) => {
                // A majority becomes free when the last of the shorter leases ends; the shortest is a safe guess.
                if self.held.as_ref().is_none_or(|(_, _, known)| remaining < *known) {
                    self.held = Some((index, value, remaining));
                }
                Ok(false)
            }
            Err(error) => {
                if error.is_foreign() {
                    self.foreign = index;
                }
                Err(error)
            }
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

    /// Why the lock was not granted, and which entry: it is held, unless too many nodes failed for anybody to hold it. That its
    /// key is in use for something else on a few nodes keeps nobody from the lock.
    pub(super) fn refusal(mut self, nodes: &[impl fmt::Debug]) -> Tried {
        if self.count.rule_it_out(self.count.foreign.len())
            && let Some((_, foreign)) = self.count.foreign.pop()
        {
            return (self.foreign, Err(foreign));
        }
        let failed_too_many = self.count.rule_it_out(self.count.failed.len());
        match self.held {
            Some((index, value, remaining)) if !failed_too_many => (index, Ok(Acquired::Held { value, remaining })),
            // What may have been set is being freed, so nothing is left for the caller to undo.
            _ => (0, Err(self.count.unanswered(nodes).nothing_done())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Attempts, Count, Verdict};
    use crate::backend::{Acquired, BackendError};

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

    #[test]
    fn an_error_lasts_if_what_lasts_rules_out_a_majority() {
        let table = [("l??", true), ("ll?", true), ("lll", false), ("nnl?", true), ("nfl", true), ("ffl", false)];
        for (answers, passing) in table {
            let mut count = Count::new(5);
            for (node, answer) in answers.chars().enumerate() {
                count.add(
                    node,
                    match answer {
                        'n' => Ok(false),
                        'l' => Err(BackendError::lasting("no right")),
                        'f' => Err(BackendError::foreign("a list")),
                        _ => Err(BackendError::unanswered("late")),
                    },
                );
            }
            let error = count.unanswered(&[0; 5]);
            assert_eq!(error.is_passing(), passing, "{answers}: {error}");
            assert_eq!(error.to_string().contains("said no"), answers.contains('n'), "{answers}: {error}");
        }
    }

    #[test]
    fn what_is_refused_is_told_by_one_answer() {
        let held = |value: &str, remaining| {
            Ok(Acquired::Held { value: value.to_owned(), remaining: Duration::from_secs(remaining) })
        };
        let mut attempts = Attempts::new(Count::new(3));
        attempts.add(0, (1, held("of b", 50)));
        attempts.add(1, (0, held("of a", 10)));
        assert_eq!(attempts.refusal(&[0; 3]).1.unwrap(), held("of a", 10).unwrap());
        let mut attempts = Attempts::new(Count::new(3));
        attempts.add(0, (0, Err(BackendError::foreign("a list"))));
        attempts.add(1, (0, held("of a", 10)));
        assert!(attempts.refusal(&[0; 3]).1.is_ok(), "one node with something else leaves two");
        let mut attempts = Attempts::new(Count::new(3));
        attempts.add(0, (0, Err(BackendError::foreign("a list"))));
        attempts.add(1, (1, Err(BackendError::foreign("a list"))));
        let (index, refused) = attempts.refusal(&[0; 3]);
        assert!(index == 1 && refused.unwrap_err().is_foreign());
    }
}
