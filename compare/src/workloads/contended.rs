//! Many tasks that take turns on one key, as in the bench `contended`, whose parts these are.

use std::fmt;
use std::time::Duration;

use super::case;
use crate::Failure;
use crate::child::{Child, Setting};
use crate::commands::{Counts, Meter, Sent};
use crate::contender::{Contender, Workload};
use crate::figures::{Round, sent_by_name};
use crate::options::Plan;
use crate::report::{Case, Report, Row, Table, spread};
use crate::rounds::{Place, absence, interleave, prepare, start};
use crate::statistics::Spread;
use crate::turns::Turns;

/// Those who want the lock.
#[derive(Clone, Copy)]
struct Crowd {
    processes: usize,
    /// Of each process.
    tasks: usize,
}

const CROWDS: [Crowd; 3] =
    [Crowd { processes: 1, tasks: 16 }, Crowd { processes: 1, tasks: 64 }, Crowd { processes: 4, tasks: 4 }];

const HEAD: [&str; 10] = [
    "processes x tasks",
    "contender",
    "turns a second",
    "ratio to by hand",
    "of the mutex",
    "p50 ms",
    "p99 ms",
    "p99 / fair",
    "share of a task",
    "commands a turn",
];

pub(crate) fn run(plan: Plan) -> Result<Report, Failure> {
    let (mut table, mut cases) = (Table::new(&HEAD), Vec::new());
    for crowd in CROWDS {
        eprintln!("contended: {crowd} tasks");
        cases.push(add(&mut table, crowd, plan)?);
    }
    Ok(Report {
        workload: Workload::Contended,
        title: "Contended".to_owned(),
        about: about(plan),
        tables: vec![table],
        cases,
    })
}

fn add(table: &mut Table, crowd: Crowd, plan: Plan) -> Result<Case, Failure> {
    let mut children = gather(crowd)?;
    let mut sent = Vec::new();
    for (_, child) in &mut children {
        sent.push(sample_of(child, crowd)?);
    }
    let mut keys = 0;
    let measured = interleave(&mut children, plan.rounds, |child| {
        keys += 1;
        round(child, crowd, plan.round, keys)
    })?;
    let rounds_of = |wanted| {
        let found = measured.iter().find(|(contender, _)| *contender == wanted);
        found.and_then(|(_, rounds)| rounds.as_ref().ok()).map(Vec::as_slice).unwrap_or_default()
    };
    let (floor, ideal) = (rounds_of(Contender::Floor), rounds_of(Contender::Ideal));
    let mut ratios = Vec::new();
    for ((contender, rounds), sent) in measured.iter().zip(&sent) {
        let cells = vec![crowd.to_string(), contender.name().to_owned()];
        table.rows.push(match rounds {
            Ok(rounds) => Row::Figures([cells, figures(rounds, floor, ideal, sent)].concat()),
            Err(why) => Row::Absent(cells, why.clone()),
        });
        let rounds = rounds.as_deref().unwrap_or_default();
        ratios.push((*contender, ratio(rounds, floor)));
    }
    Ok(case(&crowd.to_string(), &ratios))
}

/// All processes of all contenders. A mutex in memory is one process's own.
fn gather(crowd: Crowd) -> Result<Vec<Place>, Failure> {
    let setting = Setting { threads: 2, ttl: Duration::from_secs(30), servers: 1, delay: None };
    let mut places = start(Workload::Contended, setting)?;
    prepare(&mut places, |child| {
        if child.contender == Contender::Ideal { Ok(()) } else { child.add_fellows(crowd.processes - 1, setting) }
    })?;
    Ok(places)
}

fn about(plan: Plan) -> String {
    format!(
        "Tasks of one process, or of four, want the same lock. Each keeps it for 1 ms, frees it, pauses for 1 ms, and asks again. distlock \
         stands in line (`wait`); the others poll, every millisecond where they can be told to. Medians of {} rounds of {} ms. A \
         ratio above 1 is more turns than by hand in the same round. \"Of the mutex\": the part of the turns that as many \
         tasks of one process reach on a mutex in memory. \"p99 / fair\": the p99 of the waits as a multiple of the wait in a queue of all others. The \
         share of a task is its turns through the mean of all tasks, the smallest and the largest. Commands are those that \
         clients sent.",
        plan.rounds,
        plan.round.as_millis()
    )
}

impl fmt::Display for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.processes, self.tasks)
    }
}

/// Which commands clients send and which scripts run: see [`crate::commands`].
fn sample_of(child: &mut Result<Child, String>, crowd: Crowd) -> Result<Sent, Failure> {
    let Ok(child) = child else { return Ok(Sent::new()) };
    let mut meter = Meter::connect(&child.servers[0].url);
    let watched = meter.watch();
    let turns = turns(child, crowd, Duration::from_millis(300), "contended:sample");
    let sent = meter.finish(watched);
    // What can't take turns says so again in the first round.
    turns.map(drop).or_else(|why| absence(why).map(drop))?;
    Ok(sent)
}

/// Each round has a key of its own, since a try that time cuts short may still take it.
fn round(child: &mut Child, crowd: Crowd, length: Duration, key: usize) -> Result<Round, Failure> {
    let mut meter = Meter::connect(&child.servers[0].url);
    let before = meter.counts();
    let turns = turns(child, crowd, length, &format!("contended:{key}"))?;
    let run = since(&before, meter.counts());
    Ok(Round { turns, length, run })
}

pub(crate) fn since(before: &Counts, mut after: Counts) -> Counts {
    for (name, count) in &mut after {
        *count -= before.get(name).copied().unwrap_or_default();
    }
    after
}

fn turns(child: &mut Child, crowd: Crowd, length: Duration, key: &str) -> Result<Vec<Turns>, Failure> {
    let tasks = if child.contender == Contender::Ideal { crowd.processes * crowd.tasks } else { crowd.tasks };
    let answers = child.ask_all(&format!("turns {tasks} {} {key}", length.as_millis()))?;
    Ok(answers.iter().flat_map(|answer| answer.split(';')).map(Turns::from_line).collect())
}

fn ratio(rounds: &[Round], to: &[Round]) -> Option<Spread> {
    let rates = |rounds: &[Round]| rounds.iter().map(Round::rate).collect::<Vec<_>>();
    Spread::of_ratios(&rates(rounds), &rates(to))
}

fn figures(rounds: &[Round], floor: &[Round], ideal: &[Round], sent: &Sent) -> Vec<String> {
    let of = |figure: &dyn Fn(&Round) -> f64| Spread::of(rounds.iter().map(figure));
    let median = |figure: &dyn Fn(&Round) -> f64| of(figure).map_or(0.0, |spread| spread.median);
    let least = median(&|round| round.shares().fold(f64::MAX, f64::min));
    let most = median(&|round| round.shares().fold(0.0, f64::max));
    let pairs: Vec<_> = rounds.iter().map(|round| (round, round)).collect();
    let commands: f64 = sent_by_name(&pairs, sent).values().sum();
    vec![
        spread(of(&Round::rate), 0),
        spread(ratio(rounds, floor), 2),
        spread(ratio(rounds, ideal), 2),
        format!("{:.1}", median(&|round| round.wait(0.5))),
        format!("{:.1}", median(&|round| round.wait(0.99))),
        format!("{:.2}", median(&|round| round.wait(0.99) / round.fair_wait())),
        format!("{least:.2} to {most:.2}"),
        format!("{commands:.2}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::since;
    use crate::commands::{Counts, command};

    #[test]
    fn a_line_of_info_names_a_command_and_counts_its_calls() {
        let line = "cmdstat_evalsha:calls=12,usec=345,usec_per_call=28.75,rejected_calls=0,failed_calls=0";
        assert_eq!(command(line), Some(("evalsha", 12)));
    }

    #[test]
    fn the_parts_of_a_command_have_its_name() {
        assert_eq!(command("cmdstat_script|load:calls=2,usec=25,usec_per_call=12.50"), Some(("script", 2)));
    }

    #[test]
    fn other_lines_count_nothing() {
        for line in
            ["# Commandstats", "", "cmdstat_get:usec=1", "errorstat_NOSCRIPT:count=1", "cmdstat_get:calls=x,usec=1"]
        {
            assert_eq!(command(line), None, "{line}");
        }
    }

    #[test]
    fn what_was_there_before_is_not_counted() {
        let counts = |evalsha, set| -> Counts { [("evalsha".to_owned(), evalsha), ("set".to_owned(), set)].into() };
        assert_eq!(since(&counts(10, 0), counts(12, 3)), counts(2, 3));
    }
}
