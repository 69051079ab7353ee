//! Many locks that are held for long: what their renewal costs, and whether any is lost.

use std::time::{Duration, Instant};

use redis::{Connection, cmd};

use super::contended::since;
use super::{case, ratios};
use crate::Failure;
use crate::child::{Child, Setting};
use crate::commands::{Counts, Meter, Sent};
use crate::contender::{Contender, Workload};
use crate::options::HeldPlan;
use crate::report::{Case, Report, Row, Table, spread};
use crate::rounds::{Measured, Of, Place, absence, prepare, start};
use crate::statistics::Spread;

const TTL: Duration = Duration::from_secs(3);
const SETTING: Setting = Setting { threads: 2, ttl: TTL, servers: 1, delay: None };
/// How many locks show which commands a contender sends, and for how long: until all have renewed.
const SAMPLE: (usize, Duration) = (200, Duration::from_millis(3_200));

const HEAD: [&str; 9] = [
    "case",
    "contender",
    "% of a core",
    "ratio to by hand",
    "commands/s",
    "scripts/s",
    "renewals/s",
    "renewals a command",
    "lost: told, gone",
];

/// What was seen of one contender.
struct Seen {
    /// Of one core, in percent, slice by slice.
    cpu: Vec<f64>,
    run: Counts,
    seconds: f64,
    told: usize,
    gone: usize,
}

pub(crate) fn run(plan: HeldPlan) -> Result<Report, Failure> {
    let (mut table, mut cases) = (Table::new(&HEAD), Vec::new());
    let samples = samples()?;
    for (pause, slices, name) in [(false, plan.slices, "held"), (true, plan.paused_slices, "held, with a pause")] {
        let mut all = Vec::new();
        for (contender, sent) in &samples {
            eprintln!("{name}: {}", contender.name());
            let seen = match sent {
                Ok(sent) => match measure(*contender, HeldPlan { slices, ..plan }, pause) {
                    Ok(seen) => Ok((seen, sent)),
                    Err(why) => Err(absence(why)?),
                },
                Err(why) => Err(why.clone()),
            };
            all.push((*contender, seen));
        }
        cases.push(add(&mut table, name, &all));
    }
    eprintln!("held: an idle manager");
    let idle = measure(Contender::Distlock, HeldPlan { locks: 0, slices: plan.paused_slices.max(2), ..plan }, false)?;
    let cells = vec!["nothing held".to_owned(), "distlock".to_owned()];
    table.rows.push(Row::Figures([cells, idle.figures(&Sent::new(), None)].concat()));
    let title = format!("{} locks held", plan.locks);
    Ok(Report { workload: Workload::Held, title, about: about(plan), tables: vec![table], cases })
}

fn add(table: &mut Table, name: &str, all: &[Of<(Seen, &Sent)>]) -> Case {
    let cpu = |seen: &(Seen, &Sent)| seen.0.cpu.clone();
    let cpu: Measured<f64> =
        all.iter().map(|(contender, seen)| (*contender, seen.as_ref().map(cpu).map_err(Clone::clone))).collect();
    let ratios = ratios(&cpu);
    for ((contender, seen), (_, ratio)) in all.iter().zip(&ratios) {
        let cells = vec![name.to_owned(), contender.name().to_owned()];
        table.rows.push(match seen {
            Ok((seen, sent)) => Row::Figures([cells, seen.figures(sent, *ratio)].concat()),
            Err(why) => Row::Absent(cells, why.clone()),
        });
    }
    case(name, &ratios)
}

fn about(plan: HeldPlan) -> String {
    format!(
        "{} locks with a ttl of {} s are taken, a hundred every 10 ms, and held with renewal for {} s; then the same for {} s, with a \
         `CLIENT PAUSE` of 500 ms in the middle. The processor time is that of the client's process, in slices of {} s, with \
         quartiles; a ratio above 1 is less time than a batched renewal by hand takes. Contenders are measured one after another here. \
         Commands are those that clients sent, scripts those among them that run Lua. Lost: those that the contender told of, and those \
         that were gone from the server at the end.",
        plan.locks,
        TTL.as_secs(),
        (plan.slice * plan.slices).as_secs(),
        (plan.slice * plan.paused_slices).as_secs(),
        plan.slice.as_secs_f64()
    )
}

/// Which commands clients send and which scripts run, of a few locks: `MONITOR` would slow down many. All at the same time, since
/// nothing is timed here.
fn samples() -> Result<Vec<Of<Sent>>, Failure> {
    eprintln!("held: which commands are sent");
    let mut places = start(Workload::Held, SETTING)?;
    let watched = prepare(&mut places, |child| {
        child.ask(&format!("hold {}", SAMPLE.0))?;
        let meter = Meter::connect(&child.servers[0].url);
        let watched = meter.watch();
        Ok((meter, watched))
    })?;
    std::thread::sleep(SAMPLE.1);
    let mut sent: Vec<_> =
        watched.into_iter().map(|(who, (mut meter, watched))| (who, meter.finish(watched))).collect();
    let sent_of = |(contender, place): Place| {
        let found = sent.iter_mut().find(|(who, _)| *who == contender);
        (contender, place.map(|_| found.map(|(_, sent)| std::mem::take(sent)).unwrap_or_default()))
    };
    Ok(places.into_iter().map(sent_of).collect())
}

fn measure(contender: Contender, plan: HeldPlan, pause: bool) -> Result<Seen, Failure> {
    watch(&mut Child::start(contender, SETTING)?, plan, pause)
}

fn watch(child: &mut Child, plan: HeldPlan, pause: bool) -> Result<Seen, Failure> {
    let held: usize = child.ask(&format!("hold {}", plan.locks))?.parse()?;
    if held < plan.locks {
        eprintln!("  only {held} of {} could be taken", plan.locks);
    }
    let mut connection = child.servers[0].connection()?;
    let mut meter = Meter::connect(&child.servers[0].url);
    let (begin, before) = (Instant::now(), meter.counts());
    let mut cpu = Vec::new();
    for slice in 0..plan.slices {
        if pause && slice == plan.slices / 2 {
            cmd("CLIENT").arg("PAUSE").arg(500).exec(&mut connection)?;
        }
        cpu.push(slice_of(child, plan.slice)?);
    }
    let (run, seconds) = (since(&before, meter.counts()), begin.elapsed().as_secs_f64());
    let gone = plan.locks.saturating_sub(keys(&mut connection)?);
    eprintln!("  {}, {gone} gone", spread(Spread::of(cpu.iter().copied()), 2));
    Ok(Seen { cpu, run, seconds, told: child.ask("drop")?.parse()?, gone })
}

fn slice_of(child: &mut Child, length: Duration) -> Result<f64, Failure> {
    let (begin, before) = (Instant::now(), child.ask("cpu")?.parse::<f64>()?);
    std::thread::sleep(length);
    let used = child.ask("cpu")?.parse::<f64>()? - before;
    Ok(used * 100.0 / begin.elapsed().as_secs_f64())
}

/// Those that have not expired; `DBSIZE` counts them until they are cleared away.
fn keys(connection: &mut Connection) -> Result<usize, Failure> {
    Ok(cmd("EVAL").arg("return #redis.call('KEYS', '*')").arg(0).query(connection)?)
}

impl Seen {
    fn figures(&self, sent: &Sent, ratio: Option<Spread>) -> Vec<String> {
        let (commands, scripts) = (commands(&self.run, sent), scripts(&self.run));
        let renewals = renewals(&self.run) as f64;
        let per_command = if commands > 0.0 { format!("{:.1}", renewals / commands) } else { "-".to_owned() };
        let rate = |count: f64| format!("{:.1}", count / self.seconds);
        vec![
            spread(Spread::of(self.cpu.iter().copied()), 2),
            spread(ratio, 3),
            rate(commands),
            rate(scripts as f64),
            rate(renewals),
            per_command,
            format!("{}, {}", self.told, self.gone),
        ]
    }
}

/// Those that clients sent. What the sample has not seen, no script is known to run; `CLIENT` is ours.
fn commands(run: &Counts, sent: &Sent) -> f64 {
    let others = run.iter().filter(|(name, _)| *name != "client");
    others.map(|(name, count)| *count as f64 * sent.get(name).copied().unwrap_or(1.0)).sum()
}

fn scripts(run: &Counts) -> u64 {
    ["eval", "evalsha", "fcall"].iter().filter_map(|name| run.get(*name)).sum()
}

/// Each renewal sets a new expiry, by the one or the other command.
fn renewals(run: &Counts) -> u64 {
    ["pexpire", "set"].iter().filter_map(|name| run.get(*name)).sum()
}

#[cfg(test)]
mod tests {
    use super::{commands, renewals, scripts};
    use crate::commands::{Counts, Sent};

    #[test]
    fn what_scripts_run_was_not_sent() {
        let run: Counts = [("evalsha", 10), ("get", 500), ("pexpire", 500), ("client", 1), ("ping", 2)]
            .map(|(name, count)| (name.to_owned(), count))
            .into();
        let sent: Sent =
            [("evalsha", 1.0), ("get", 0.0), ("pexpire", 0.0)].map(|(name, part)| (name.to_owned(), part)).into();
        assert_eq!((commands(&run, &sent), scripts(&run), renewals(&run)), (12.0, 10, 500));
    }
}
