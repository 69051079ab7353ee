//! Contenders that take turns, round by round, so that the machine's moods hit all of them.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::child::{Absent, Child, Setting};
use crate::contender::{Contender, Workload};
use crate::options::Plan;

/// What there is of a contender, or why there is nothing.
pub(crate) type Of<T> = (Contender, Result<T, String>);

pub(crate) type Place = Of<Child>;

/// The rounds of all.
pub(crate) type Measured<T> = Vec<Of<Vec<T>>>;

/// Starts all that can take part, each with servers of its own; the others are told with the reason.
pub(crate) fn start(workload: Workload, setting: Setting) -> Result<Vec<Place>, Failure> {
    let mut all = Vec::new();
    for contender in Contender::of(workload) {
        let why = contender.absence(workload).or_else(|| not_installed(contender));
        let child = match why {
            Some(why) => Err(why.to_owned()),
            None => match Child::start(contender, setting) {
                Ok(child) => Ok(child),
                Err(why) => Err(absence(why)?),
            },
        };
        all.push((contender, child));
    }
    Ok(all)
}

pub(crate) fn not_installed(contender: Contender) -> Option<&'static str> {
    let script = contender.script()?;
    script.version().is_none().then_some("not installed")
}

/// Has each measure once in every round, in an order of its own: none always follows the same other.
pub(crate) fn interleave<T>(
    children: &mut [Place],
    rounds: usize,
    mut measure: impl FnMut(&mut Child) -> Result<T, Failure>,
) -> Result<Measured<T>, Failure> {
    let mut measured: Measured<T> = children.iter().map(|(contender, child)| (*contender, outcome(child))).collect();
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..rounds {
        let mut order: Vec<usize> = (0..children.len()).collect();
        random.shuffle(&mut order);
        for at in order {
            let Ok(child) = &mut children[at].1 else { continue };
            let Ok(values) = &mut measured[at].1 else { continue };
            match measure(child) {
                Ok(value) => values.push(value),
                Err(why) => measured[at].1 = Err(absence(why)?),
            }
        }
    }
    Ok(measured)
}

fn outcome<T>(child: &Result<Child, String>) -> Result<Vec<T>, String> {
    child.as_ref().map(|_| Vec::new()).map_err(Clone::clone)
}

/// What a contender can't do is a row of the table; all else ends the run.
pub(crate) fn absence(why: Failure) -> Result<String, Failure> {
    why.downcast::<Absent>().map(|absent| absent.0)
}

/// Has each get ready, and returns what that gave. Who can't is out.
pub(crate) fn prepare<T>(
    places: &mut [Place],
    mut prepare: impl FnMut(&mut Child) -> Result<T, Failure>,
) -> Result<Vec<(Contender, T)>, Failure> {
    let mut ready = Vec::new();
    for (contender, place) in places {
        let Ok(child) = place else { continue };
        match prepare(child) {
            Ok(value) => ready.push((*contender, value)),
            Err(why) => *place = Err(absence(why)?),
        }
    }
    Ok(ready)
}

/// How many cycles of each task fill a round. Finding that out warms everything up, too.
pub(crate) fn calibrate(child: &mut Child, verb: &str, tasks: usize, plan: Plan) -> Result<usize, Failure> {
    let mut cycles = 1;
    loop {
        let begin = Instant::now();
        child.ask(&format!("{verb} {tasks} {cycles}"))?;
        if let Some(enough) = enough(cycles, begin.elapsed(), plan.round) {
            return Ok(enough);
        }
        cycles *= 2;
    }
}

/// From a try that took at least a quarter of a round.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, not negative")]
fn enough(cycles: usize, took: Duration, round: Duration) -> Option<usize> {
    if took < round / 4 {
        return None;
    }
    let cycles = cycles as f64 * round.as_secs_f64() / took.as_secs_f64();
    Some((cycles as usize).max(1))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::enough;

    #[test]
    fn a_round_is_filled_by_what_a_try_took() {
        let millis = Duration::from_millis;
        assert_eq!(enough(8, millis(10), millis(100)), None);
        assert_eq!(enough(8, millis(50), millis(100)), Some(16));
        // Slower than a round: one cycle it is.
        assert_eq!(enough(1, millis(1_000), millis(100)), Some(1));
    }
}
