//! Locks that nobody else wants: taken and freed, on loopback and over a network with a delay.

use std::time::Duration;

use super::{case, ratios};
use crate::Failure;
use crate::child::{Child, Server, Setting};
use crate::contender::{Contender, Workload};
use crate::delay;
use crate::options::Plan;
use crate::report::{Report, Row, Table, spread};
use crate::rounds::{Measured, calibrate, interleave, prepare, start};
use crate::statistics::Spread;

/// Each way.
const DELAY: Duration = Duration::from_micros(500);
const TTL: Duration = Duration::from_secs(30);

const HEAD: [&str; 4] = ["tasks", "contender", "us a call", "ratio to by hand"];

pub(crate) fn uncontended(plan: Plan) -> Result<Report, Failure> {
    let about = format!(
        "Each task takes and frees a lock of its own, over loopback. The time is that of all calls, divided by their number; \
         medians of {} rounds, with quartiles. One task and its server have a processor each. The ratio is the time by hand in the same round through the contender's: above 1 \
         the contender is faster.",
        plan.rounds
    );
    let mut report = measure(Workload::Uncontended, "Uncontended", about, plan, None, &[1, 64])?;
    report.tables.push(allocations()?);
    Ok(report)
}

pub(crate) fn delayed(plan: Plan) -> Result<Report, Failure> {
    let server = Server::start()?;
    let round_trip = delay::round_trip(&delay::before(&server.url, DELAY)?)?;
    let about = format!(
        "The same over a proxy that delays each packet by 0.5 ms each way, in a queue, so that no throughput is lost. A PING \
         through it took {} us on this machine. Medians of {} rounds, with quartiles.",
        spread(round_trip, 0),
        plan.rounds
    );
    measure(
        Workload::Delayed,
        "Uncontended, with a delay of 0.5 ms each way",
        about,
        plan,
        Some(DELAY),
        &[1, 4, 16, 64],
    )
}

fn measure(
    workload: Workload,
    title: &str,
    about: String,
    plan: Plan,
    delay: Option<Duration>,
    crowds: &[usize],
) -> Result<Report, Failure> {
    let (mut table, mut cases) = (Table::new(&HEAD), Vec::new());
    for tasks in crowds {
        eprintln!("{}: {tasks} tasks", workload.name());
        let measured = measure_tasks(workload, *tasks, plan, delay)?;
        let ratios = ratios(&measured);
        for ((contender, times), (_, ratio)) in measured.iter().zip(&ratios) {
            table.rows.push(row(*tasks, *contender, times, *ratio));
        }
        cases.push(case(&format!("{tasks} tasks"), &ratios));
    }
    Ok(Report { workload, title: title.to_owned(), about, tables: vec![table], cases })
}

fn row(tasks: usize, contender: Contender, times: &Result<Vec<f64>, String>, ratio: Option<Spread>) -> Row {
    let mut cells = vec![tasks.to_string(), contender.name().to_owned()];
    match times {
        Ok(times) => {
            cells.extend([spread(Spread::of(times.iter().copied()), 1), spread(ratio, 3)]);
            Row::Figures(cells)
        }
        Err(why) => Row::Absent(cells, why.clone()),
    }
}

/// The microseconds for a call, round by round.
fn measure_tasks(
    workload: Workload,
    tasks: usize,
    plan: Plan,
    delay: Option<Duration>,
) -> Result<Measured<f64>, Failure> {
    let setting = Setting { threads: tasks.min(2), ttl: TTL, servers: 1, delay };
    let mut children = start(workload, setting)?;
    let cycles = prepare(&mut children, |child| calibrate(child, "cycles", tasks, plan))?;
    interleave(&mut children, plan.rounds, |child| {
        let found = cycles.iter().find(|(contender, _)| *contender == child.contender);
        let cycles = found.map_or(1, |(_, cycles)| *cycles);
        let nanos: f64 = child.ask(&format!("cycles {tasks} {cycles}"))?.parse()?;
        Ok(nanos / 1e3 / (tasks * cycles) as f64)
    })
}

fn allocations() -> Result<Table, Failure> {
    const CYCLES: usize = 1_000;
    let mut table = Table::new(&["tasks", "contender", "allocations a call", "bytes"]);
    for contender in [Contender::Floor, Contender::Distlock] {
        let mut child = Child::start(contender, Setting { threads: 1, ttl: TTL, servers: 1, delay: None })?;
        // The first calls grow what the others find.
        child.ask(&format!("cycles 1 {CYCLES}"))?;
        let answer = child.ask(&format!("allocations {CYCLES}"))?;
        let (count, bytes) = answer.split_once(' ').ok_or("two numbers")?;
        table.rows.push(Row::Figures([&"1", &contender.name(), &count, &bytes].map(ToString::to_string).to_vec()));
    }
    Ok(table)
}
