//! The figures of the table, and the table.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::commands::{Counts, Sent};
use crate::turns::Turns;

pub(crate) const LEGEND: &str = "\
Columns:
  ratio    acquisitions per second, as a part of what as many tasks of one process reach on a tokio Mutex without a server
  per s    acquisitions per second
  p50 ..   waits in ms, from asking to having; a wait under way at the end of its round counts as long as it had lasted
  p99/fair the p99 as a multiple of (tasks - 1) x (length of the round / acquisitions), the wait in a queue of all others
  share    the smallest and the largest share of a task: its acquisitions / the mean of all tasks
  sent     commands per acquisition that clients sent, then which: of EVALSHA and the like the call, not what the script ran
  run      commands per acquisition that the server ran, those in scripts included: INFO commandstats, without INFO";

pub(crate) const HEAD: &str = concat!(
    "                        ratio   per s      p50      p99  longest  p99/fair  share",
    "            sent     run  of those sent"
);

/// One contender's round.
pub(crate) struct Round {
    pub(crate) turns: Vec<Turns>,
    pub(crate) length: Duration,
    /// What the server ran meanwhile.
    pub(crate) run: Counts,
}

impl Round {
    pub(crate) fn acquisitions(&self) -> f64 {
        let acquisitions: usize = self.turns.iter().map(|turns| turns.waits.len()).sum();
        // Nothing at all would be shown as one.
        acquisitions.max(1) as f64
    }

    pub(crate) fn rate(&self) -> f64 {
        self.acquisitions() / self.length.as_secs_f64()
    }

    /// The wait that this part of the waits doesn't exceed, in milliseconds.
    pub(crate) fn wait(&self, part: f64) -> f64 {
        let waits = self.turns.iter().flat_map(|turns| turns.waits.iter().chain(&turns.cut));
        let mut waits: Vec<f64> = waits.map(|wait| wait.as_secs_f64() * 1e3).collect();
        waits.sort_by(f64::total_cmp);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index, rounded")]
        let at = ((waits.len() - 1) as f64 * part).round() as usize;
        waits[at]
    }

    /// The wait of somebody whom all others are served before, once each, in milliseconds.
    pub(crate) fn fair_wait(&self) -> f64 {
        (self.turns.len() - 1) as f64 * 1e3 / self.rate()
    }

    pub(crate) fn shares(&self) -> impl Iterator<Item = f64> {
        let mean = self.acquisitions() / self.turns.len() as f64;
        self.turns.iter().map(move |turns| turns.waits.len() as f64 / mean)
    }
}

/// The row of a contender, from all its rounds, which stand beside the rounds of the ideal.
pub(crate) fn row(name: &str, rounds: &[(&Round, &Round)], sent: &Sent) -> String {
    let of = |figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(|(round, _)| figure(round)));
    let ratio = median(rounds.iter().map(|(round, ideal)| round.rate() / ideal.rate()));
    let (rate, p99) = (of(&Round::rate), of(&|round| round.wait(0.99)));
    let (p50, longest) = (of(&|round| round.wait(0.5)), of(&|round| round.wait(1.0)));
    let late = of(&|round| round.wait(0.99) / round.fair_wait());
    let least = of(&|round| round.shares().fold(f64::MAX, f64::min));
    let most = of(&|round| round.shares().fold(0.0, f64::max));
    let run = of(&|round| round.run.values().sum::<u64>() as f64 / round.acquisitions());
    let by_name = sent_by_name(rounds, sent);
    let total: f64 = by_name.values().sum();
    let seen = by_name.iter().filter(|(_, count)| **count >= 0.005);
    let list: Vec<String> = seen.map(|(name, count)| format!("{name} {count:.2}")).collect();
    let list = list.join(", ");
    format!(
        "{name:<24} {ratio:>5.3} {rate:>7.1} {p50:>8.2} {p99:>8.1} {longest:>8.1} {late:>9.2}   {least:>4.2} to {most:<5.2} \
         {total:>6.2} {run:>7.2}  {list}"
    )
}

pub(crate) fn sent_by_name(rounds: &[(&Round, &Round)], sent: &Sent) -> BTreeMap<String, f64> {
    let mut names: Vec<&String> = rounds.iter().flat_map(|(round, _)| round.run.keys()).collect();
    names.sort();
    names.dedup();
    let per_turn = |name: &String, round: &Round| {
        let run = round.run.get(name).copied().unwrap_or_default() as f64 / round.acquisitions();
        // What the sample has not seen, no script is known to run.
        run * sent.get(name).copied().unwrap_or(1.0)
    };
    let median_of = |name: &String| median(rounds.iter().map(|(round, _)| per_turn(name, round)));
    names.into_iter().map(|name| (name.clone(), median_of(name))).collect()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
