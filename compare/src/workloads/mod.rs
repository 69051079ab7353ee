//! What is measured.

pub(crate) mod cycles;
pub(crate) mod contended;
pub(crate) mod held;
pub(crate) mod redlock;

use crate::Failure;
use crate::contender::{Contender, Workload};
use crate::options::Options;
use crate::report::{Case, Report};
use crate::rounds::Measured;
use crate::statistics::Spread;

pub(crate) fn run(workload: Workload, options: &Options) -> Result<Report, Failure> {
    match workload {
        Workload::Uncontended => cycles::uncontended(options.plan(workload)),
        Workload::Delayed => cycles::delayed(options.plan(workload)),
        Workload::Contended => contended::run(options.plan(workload)),
        Workload::Held => held::run(options.held()),
        Workload::Redlock => redlock::run(options.plan(workload)),
    }
}

/// The ratio of each contender to the floor in the same round, from what costs: below 1 a contender costs more.
fn ratios(measured: &Measured<f64>) -> Vec<(Contender, Option<Spread>)> {
    let floor = measured.iter().find(|(contender, _)| *contender == Contender::Floor);
    let floor = floor.and_then(|(_, values)| values.clone().ok()).unwrap_or_default();
    let ratio = |values: &Vec<f64>| Spread::of_ratios(&floor, values);
    measured.iter().map(|(contender, values)| (*contender, values.as_ref().ok().and_then(ratio))).collect()
}

fn case(name: &str, ratios: &[(Contender, Option<Spread>)]) -> Case {
    let bars = ratios.iter().filter_map(|(contender, ratio)| Some((*contender, (*ratio)?)));
    Case { name: name.to_owned(), bars: bars.collect() }
}

#[cfg(test)]
mod tests {
    use super::ratios;
    use crate::contender::Contender;

    #[test]
    fn who_takes_twice_as_long_as_the_floor_is_at_a_half() {
        let measured = vec![
            (Contender::Floor, Ok(vec![1.0, 2.0])),
            (Contender::Rslock, Ok(vec![2.0, 4.0])),
            (Contender::Distkit, Err("has none".to_owned())),
        ];
        let medians = ratios(&measured).into_iter().map(|(_, ratio)| ratio.map(|ratio| ratio.median));
        assert_eq!(medians.collect::<Vec<_>>(), [Some(1.0), Some(0.5), None]);
    }
}
