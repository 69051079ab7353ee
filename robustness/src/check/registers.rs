//! What is written with fencing tokens is linearizable: there is one order of all writes and reads, in which each comes between its
//! request and its answer, and says what a register that looks at tokens would say.

use std::collections::BTreeMap;

use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

use super::Violation;
use crate::history::{Event, What};

/// A register as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Register {
    fence: u64,
    value: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    Write { fence: u64, value: u64 },
    Read,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Answered {
    Wrote(bool),
    Was(u64),
}

impl SequentialSpec for Register {
    type Op = Asked;
    type Ret = Answered;

    fn invoke(&mut self, asked: &Asked) -> Answered {
        match *asked {
            Asked::Write { fence, .. } if fence < self.fence => Answered::Wrote(false),
            Asked::Write { fence, value } => {
                *self = Register { fence, value };
                Answered::Wrote(true)
            }
            Asked::Read => Answered::Was(self.value),
        }
    }
}

/// Checks each register for itself. Returns how many writes and reads there were, and what is wrong.
pub(super) fn check(events: &[Event]) -> (usize, Vec<Violation>) {
    let mut testers: BTreeMap<&str, (LinearizabilityTester<usize, Register>, u64)> = BTreeMap::new();
    // By worker: what it has asked, and as whom.
    let mut asking: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    let mut count = 0;
    for event in events {
        let (asked, answered) = match &event.what {
            What::Write { register, fence, value } => {
                (Some((register, Asked::Write { fence: *fence, value: *value })), None)
            }
            What::Read { register } => (Some((register, Asked::Read)), None),
            What::Wrote(set) => (None, Some(Answered::Wrote(*set))),
            What::Was(value) => (None, Some(Answered::Was(*value))),
            _ => continue,
        };
        if let Some((register, asked)) = asked {
            // Each asks as somebody new: a body that was stopped hears no answer, and its worker goes on.
            let (tester, _) = testers.entry(register).or_insert_with(|| (LinearizabilityTester::default(), event.at));
            asking.insert(&event.who, (register, count));
            tester.on_invoke(count, asked).expect("nobody has asked under this number");
            count += 1;
        }
        if let Some(answered) = answered
            && let Some((register, number)) = asking.remove(&*event.who)
            && let Some((tester, _)) = testers.get_mut(register)
        {
            tester.on_return(number, answered).expect("it has asked");
        }
    }
    let unserializable = testers.iter().filter(|(_, (tester, _))| !tester.is_consistent());
    let violations = unserializable.map(|(register, (_, at))| Violation {
        what: format!("what was written to the register `{register}` is not linearizable"),
        key: register.split('@').next().unwrap_or_default().to_owned(),
        at: *at,
    });
    (count, violations.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::read;

    fn is_wrong(journal: &str) -> bool {
        let (count, violations) = check(&read(journal));
        assert!(count > 0);
        !violations.is_empty()
    }

    #[test]
    fn what_a_register_would_do_is_right() {
        assert!(!is_wrong(
            "1 a write k@1 5 10\n2 a wrote 1\n3 b read k@1\n4 b was 10\n5 b write k@1 4 11\n6 b wrote 0\n"
        ));
    }

    #[test]
    fn a_late_writer_whose_write_is_taken_is_wrong() {
        assert!(is_wrong("1 a write k@1 5 10\n2 a wrote 1\n5 b write k@1 4 11\n6 b wrote 1\n"));
    }

    #[test]
    fn a_read_of_what_was_overwritten_before_is_wrong() {
        assert!(is_wrong(
            "1 a write k@1 5 10\n2 a wrote 1\n3 a write k@1 6 12\n4 a wrote 1\n5 b read k@1\n6 b was 10\n"
        ));
    }

    #[test]
    fn a_write_without_an_answer_may_have_been_made_or_not() {
        assert!(!is_wrong("1 a write k@1 5 10\n3 b read k@1\n4 b was 10\n"));
        assert!(!is_wrong("1 a write k@1 5 10\n3 b read k@1\n4 b was 0\n"));
    }
}
