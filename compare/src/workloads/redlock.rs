//! A lock over five servers: all of them up, and one that is frozen.

use std::time::{Duration, Instant};

use super::{case, ratios};
use crate::Failure;
use crate::child::Setting;
use crate::contender::Workload;
use crate::options::Plan;
use crate::report::{Case, Report, Row, Table, spread};
use crate::rounds::{Measured, Place, calibrate, interleave, prepare, start};
use crate::statistics::{Spread, quantile, sorted};

const HEAD: [&str; 5] = ["servers, tasks", "contender", "median us", "p99 us", "ratio to by hand"];

pub(crate) fn run(plan: Plan) -> Result<Report, Failure> {
    let about = format!(
        "Each task takes and frees a lock of its own over five servers, with all of them up, and with one frozen (SIGSTOP) that still \
         takes connections and says nothing. By hand all are asked at once, and three are enough. The median is that of the rounds' \
         medians, of {} rounds, with quartiles; the p99 is of all calls. Where a call takes a second there are few of them.",
        plan.rounds
    );
    let (mut table, mut cases) = (Table::new(&HEAD), Vec::new());
    for (frozen, state) in [(false, "all up"), (true, "one frozen")] {
        for tasks in [1, 16] {
            let name = format!("{state}, {tasks}");
            eprintln!("redlock: {name} tasks");
            cases.push(add(&mut table, &name, &measure(frozen, tasks, plan)?));
        }
    }
    Ok(Report { workload: Workload::Redlock, title: "Over five servers".to_owned(), about, tables: vec![table], cases })
}

fn add(table: &mut Table, name: &str, measured: &Measured<Vec<f64>>) -> Case {
    let median = |round: &Vec<f64>| quantile(round, 0.5).unwrap_or_default();
    let medians = |rounds: &Vec<Vec<f64>>| rounds.iter().map(median).collect::<Vec<_>>();
    let medians: Measured<f64> = measured
        .iter()
        .map(|(contender, rounds)| (*contender, rounds.as_ref().map(medians).map_err(Clone::clone)))
        .collect();
    let ratios = ratios(&medians);
    for (((contender, rounds), (_, medians)), (_, ratio)) in measured.iter().zip(&medians).zip(&ratios) {
        let cells = vec![name.to_owned(), contender.name().to_owned()];
        table.rows.push(match (rounds, medians) {
            (Ok(rounds), Ok(medians)) => {
                let all = sorted(rounds.iter().flatten().copied());
                let p99 = quantile(&all, 0.99).unwrap_or_default();
                let median = spread(Spread::of(medians.iter().copied()), 0);
                Row::Figures([cells, vec![median, format!("{p99:.0}"), spread(*ratio, 3)]].concat())
            }
            (Err(why), _) | (_, Err(why)) => Row::Absent(cells, why.clone()),
        });
    }
    case(name, &ratios)
}

/// The microseconds of all calls of a round, sorted, round by round.
fn measure(frozen: bool, tasks: usize, plan: Plan) -> Result<Measured<Vec<f64>>, Failure> {
    let setting = Setting { threads: tasks.min(2), ttl: Duration::from_secs(30), servers: 5, delay: None };
    let mut children = start(Workload::Redlock, setting)?;
    if frozen {
        freeze(&mut children, tasks)?;
    }
    let cycles = prepare(&mut children, |child| calibrate(child, "latencies", tasks, plan))?;
    interleave(&mut children, plan.rounds, |child| {
        let found = cycles.iter().find(|(contender, _)| *contender == child.contender);
        let answer = child.ask(&format!("latencies {tasks} {}", found.map_or(1, |(_, cycles)| *cycles)))?;
        let latencies = answer.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        Ok(sorted(latencies))
    })
}

/// Lets the contenders meet the server before, and then for as long as it takes to notice: a command may take a second.
fn freeze(children: &mut [Place], tasks: usize) -> Result<(), Failure> {
    let call = format!("latencies {tasks} 1");
    prepare(children, |child| child.ask(&call).map(|_| child.servers[4].freeze()))?;
    let begin = Instant::now();
    for _ in 0..2 {
        prepare(children, |child| {
            child.ask(&call)?;
            while begin.elapsed() < Duration::from_secs(2) {
                child.ask(&call)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}
