//! What is written with fencing tokens is linearizable: there is one order of all writes and reads, in which each comes between its
//! request and its answer, and says what a register that looks at tokens would say. And no token that was taken falls. A key has a new
//! register each second, so that histories are short, and all of them look at the same last token.

use std::collections::BTreeMap;

use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

use super::{Promise, Violation};
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
    /// Not taken, for a higher token that was written to another register of the key.
    Outdone,
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

    fn is_valid_step(&mut self, asked: &Asked, answered: &Answered) -> bool {
        *answered == Answered::Outdone || self.invoke(asked) == *answered
    }
}

/// Checks each register for itself, and the tokens of each key. Returns how many writes and reads there were, and what is wrong.
pub(super) fn check(events: &[Event]) -> (usize, Vec<Violation>) {
    let mut testers: BTreeMap<&str, (LinearizabilityTester<usize, Register>, u64)> = BTreeMap::new();
    // By worker: what it has asked, and as whom.
    let mut asking: BTreeMap<&str, Asking<'_>> = BTreeMap::new();
    let mut tokens = Tokens::default();
    let (mut count, mut violations) = (0, Vec::new());
    for event in events {
        let (register, asked) = match &event.what {
            What::Write { register, fence, value } => {
                tokens.asked(register, *fence);
                (register, Asked::Write { fence: *fence, value: *value })
            }
            What::Read { register } => (register, Asked::Read),
            What::Wrote(_) | What::Was(_) => {
                let Some(asking) = asking.remove(&*event.who) else { continue };
                violations.extend(tokens.answered(event, &asking));
                if let Some((tester, _)) = testers.get_mut(asking.register) {
                    tester.on_return(asking.number, tokens.answer(event, &asking)).expect("it has asked");
                }
                continue;
            }
            _ => continue,
        };
        // Each asks as somebody new: a body that was stopped hears no answer, and its worker goes on.
        let (tester, _) = testers.entry(register).or_insert_with(|| (LinearizabilityTester::default(), event.at));
        let fence = if let Asked::Write { fence, .. } = asked { fence } else { 0 };
        let taken = tokens.taken.get(key_of(register)).copied().unwrap_or_default();
        asking.insert(&event.who, Asking { register, number: count, fence, taken });
        tester.on_invoke(count, asked).expect("nobody has asked under this number");
        count += 1;
    }
    let unserializable = testers.iter().filter(|(_, (tester, _))| !tester.is_consistent());
    violations.extend(unserializable.map(|(register, (_, at))| Violation {
        promise: Promise::Registers,
        what: format!("what was written to the register `{register}` is not linearizable"),
        key: key_of(register).to_owned(),
        at: *at,
    }));
    (count, violations)
}

/// A write or a read that has no answer yet.
struct Asking<'a> {
    register: &'a str,
    number: usize,
    fence: u64,
    /// The highest token of the key that was known to be taken when this was sent.
    taken: u64,
}

/// The tokens of each key, over all of its registers.
#[derive(Default)]
struct Tokens<'a> {
    taken: BTreeMap<&'a str, u64>,
    /// The highest that may have been written, by register.
    sent: BTreeMap<&'a str, BTreeMap<&'a str, u64>>,
}

impl<'a> Tokens<'a> {
    fn asked(&mut self, register: &'a str, fence: u64) {
        let sent = self.sent.entry(key_of(register)).or_default().entry(register).or_default();
        *sent = fence.max(*sent);
    }

    /// A token that was taken has to be no lower than those that were taken before it was sent.
    fn answered(&mut self, event: &Event, asking: &Asking<'a>) -> Option<Violation> {
        if event.what != What::Wrote(true) {
            return None;
        }
        let key = key_of(asking.register);
        let taken = self.taken.entry(key).or_default();
        *taken = asking.fence.max(*taken);
        let what =
            format!("a write to `{key}` with the token {} was taken after one with {}", asking.fence, asking.taken);
        let violation = Violation { promise: Promise::Registers, what, key: key.to_owned(), at: event.at };
        (asking.fence < asking.taken).then_some(violation)
    }

    fn answer(&self, event: &Event, asking: &Asking<'a>) -> Answered {
        match event.what {
            What::Was(value) => Answered::Was(value),
            What::Wrote(true) => Answered::Wrote(true),
            _ => {
                let sent = self.sent.get(key_of(asking.register)).into_iter().flatten();
                let mut others = sent.filter(|(register, _)| **register != asking.register);
                if others.any(|(_, fence)| *fence > asking.fence) { Answered::Outdone } else { Answered::Wrote(false) }
            }
        }
    }
}

fn key_of(register: &str) -> &str {
    register.split('@').next().unwrap_or_default()
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

    /// Each second has a register of its own, and they have one last token.
    #[test]
    fn a_late_writer_is_late_in_the_next_second_too() {
        assert!(is_wrong("1 a write k@1 6 10\n2 a wrote 1\n5 b write k@2 5 11\n6 b wrote 1\n"));
        assert!(!is_wrong("1 a write k@1 6 10\n2 a wrote 1\n5 b write k@2 5 11\n6 b wrote 0\n"));
        assert!(!is_wrong("1 a write k@1 6 10\n5 b write k@2 5 11\n6 b wrote 1\n7 a wrote 1\n"));
        assert!(is_wrong("1 a write k@1 4 10\n2 a wrote 1\n5 b write k@2 5 11\n6 b wrote 0\n"));
    }
}
