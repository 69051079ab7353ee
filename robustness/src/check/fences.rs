//! The fencing tokens of a key rise from holder to holder.

use std::collections::BTreeMap;

use harness::holders::{Hold, Kind};

use super::Violation;
use crate::history::{Event, What};

/// Compares the token of each holder with those of all that had ended when its call began to hold.
pub(super) fn check(holds: &[Hold], events: &[Event]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut last: BTreeMap<&str, Vec<(u64, u64, &str)>> = BTreeMap::new();
    let tokens = tokens(events);
    for hold in holds.iter().filter(|hold| hold.kind == Kind::Exclusive) {
        let Some(&token) = tokens.get(&*hold.token) else { continue };
        let before = last.entry(&hold.key).or_default();
        // A call that passes under another has its token.
        let wrong = before
            .iter()
            .find(|(to, fence, who)| *to < hold.from && (*fence > token || *fence == token && *who != worker(hold)));
        if let Some((_, fence, who)) = wrong {
            let what = format!(
                "{} has the fencing token {token} for `{}`, and {who} had {fence} before it",
                worker(hold),
                hold.key
            );
            violations.push(Violation { what, key: hold.key.clone(), at: hold.from });
        }
        before.push((hold.to, token, worker(hold)));
    }
    violations
}

/// The token of each holder that has one.
fn tokens(events: &[Event]) -> BTreeMap<&str, u64> {
    let granted = events.iter().filter_map(|event| match &event.what {
        What::Grant { holder, fence: Some(fence) } => Some((&**holder, *fence)),
        _ => None,
    });
    granted.collect()
}

fn worker(hold: &Hold) -> &str {
    hold.token.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use harness::holders::{Until, holds};

    use super::*;
    use crate::history::read;

    fn count(second: u64) -> usize {
        let log = "10 start 0.1/1 x k\n20 end 0.1/1 x k\n30 start 0.2/2 x k\n40 step 0.2/2 x k\n";
        let journal = format!("11 0.1 grant 0.1/1 7\n31 0.2 grant 0.2/2 {second}\n");
        check(&holds(log, Until::LastStep), &read(&journal)).len()
    }

    #[test]
    fn tokens_rise() {
        assert_eq!([count(8), count(7), count(6)], [0, 1, 1]);
    }
}
