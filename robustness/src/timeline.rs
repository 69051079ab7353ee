//! A violation, told and drawn: who held the key when, what failed meanwhile.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use harness::holders::Hold;
use plotters::prelude::*;

use crate::check::{Checked, Violation};
use crate::history::{Event, What};
use crate::loss::Loss;

/// So much before and after is shown.
const AROUND: u64 = 800_000_000;

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// What there is to be seen around a violation.
struct Scene<'a> {
    from: u64,
    to: u64,
    holds: Vec<&'a Hold>,
    events: Vec<&'a Event>,
}

impl<'a> Scene<'a> {
    fn of(violation: &Violation, checked: &'a Checked) -> Scene<'a> {
        let (from, to) = (violation.at.saturating_sub(AROUND), violation.at.saturating_add(AROUND));
        let holds = checked.holds.iter().filter(|hold| hold.key == violation.key && hold.to >= from && hold.from <= to);
        let holds: Vec<&Hold> = holds.collect();
        let is_part = |event: &&Event| match &event.what {
            What::Fault(_) | What::Lost(_) => true,
            What::Late { key, .. } => *key == violation.key,
            What::Grant { holder, .. } => holds.iter().any(|hold| hold.token == *holder),
            _ => false,
        };
        let shown = checked.events.iter().filter(|event| (from..=to).contains(&event.at)).filter(is_part);
        Scene { from, to, events: shown.collect(), holds }
    }

    fn seconds(&self, at: u64) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a few seconds in nanoseconds")]
        let nanos = at.clamp(self.from, self.to).saturating_sub(self.from) as f64;
        nanos / 1e9
    }
}

/// As text: one line for each beginning and end of a holder, and for each thing that failed.
pub(crate) fn told(violation: &Violation, checked: &Checked) -> String {
    let scene = Scene::of(violation, checked);
    let mut lines: Vec<(u64, String)> = Vec::new();
    for hold in &scene.holds {
        lines.push((hold.from, format!("{} holds `{}` ({})", hold.token, hold.key, hold.kind)));
        lines.push((hold.to, format!("{} has done its last step", hold.token)));
    }
    lines.extend(scene.events.iter().filter_map(|event| Some((event.at, line(event)?))));
    lines.sort();
    let mut text = format!("VIOLATION: {}\n", violation.what);
    for (at, line) in lines {
        let mark = if at == violation.at { ">" } else { " " };
        // Writing to a string can't fail.
        let _ = writeln!(text, "{mark} {:>7.3} s  {line}", scene.seconds(at));
    }
    text
}

fn line(event: &Event) -> Option<String> {
    Some(match &event.what {
        What::Fault(what) => format!("fault: {what}"),
        What::Lost(Loss { why, from, to, .. }) => {
            let within = Duration::from_nanos(to - from);
            format!("a server has forgotten what it granted, now or within {within:?}: {why}")
        }
        What::Grant { holder, fence: Some(fence) } => format!("{holder} has the fencing token {fence}"),
        What::Late { by, .. } => format!("{} is {by:?} late", event.who),
        _ => return None,
    })
}

/// As a picture: one row for each holder, and a line for each thing that failed.
pub(crate) fn draw(violation: &Violation, checked: &Checked, path: &Path) -> Drawn {
    let scene = Scene::of(violation, checked);
    let faults: Vec<_> =
        scene.events.iter().filter(|event| matches!(event.what, What::Fault(_) | What::Lost(_))).collect();
    let rows = i32::try_from(scene.holds.len() + faults.len()).unwrap_or(i32::MAX);
    let root = SVGBackend::new(path, (1_100, 90 + 18 * rows.unsigned_abs())).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(&violation.what, ("sans-serif", 13))
        .margin(10)
        .x_label_area_size(30)
        .build_cartesian_2d(0.0..scene.seconds(scene.to), 0..rows)?;
    chart.configure_mesh().disable_y_mesh().disable_y_axis().x_desc("seconds").draw()?;
    for (row, hold) in (0..).zip(&scene.holds) {
        let (from, to) = (scene.seconds(hold.from), scene.seconds(hold.to));
        let bar = Rectangle::new([(from, row), (to.max(from + 0.003), row + 1)], BLUE.mix(0.5).filled());
        chart.draw_series([bar])?;
        let name = format!("{} ({})", hold.token, hold.kind);
        chart.draw_series([Text::new(name, (from, row + 1), ("sans-serif", 11))])?;
    }
    let first = i32::try_from(scene.holds.len()).unwrap_or(i32::MAX);
    for (row, event) in (first..).zip(faults) {
        let at = scene.seconds(event.at);
        chart.draw_series([PathElement::new(vec![(at, 0), (at, rows)], RED.mix(0.6))])?;
        let what = match &event.what {
            What::Fault(what) | What::Lost(Loss { why: what, .. }) => what.clone(),
            _ => String::new(),
        };
        chart.draw_series([Text::new(what, (at, row + 1), ("sans-serif", 11).into_font().color(&RED))])?;
    }
    let at = scene.seconds(violation.at);
    chart.draw_series([PathElement::new(vec![(at, 0), (at, rows)], BLACK.stroke_width(2))])?;
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;

    #[test]
    fn a_violation_is_told_and_drawn_with_what_failed() {
        let journal = "200000000 - fault Stop of 1 for 900 ms\n100000001 0.1 grant 0.1/1/k -\n";
        let holders = "100000000 start 0.1/1/k x k\n300000000 start 0.2/2/k x k\n400000000 step 0.1/1/k x k\n";
        let checked = check(journal, holders);
        let violation = checked.violations.first().expect("an overlap");
        let text = told(violation, &checked);
        for part in ["VIOLATION: 0.2/2/k (x) held `k` beside 0.1/1/k (x)", "0.100 s  0.1/1/k holds", "Stop of 1"] {
            assert!(text.contains(part), "there is no {part} in {text}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("violation.svg");
        draw(violation, &checked, &path).expect("a picture");
        let picture = std::fs::read_to_string(path).expect("a picture");
        assert!(picture.contains("Stop of 1") && picture.contains("0.1/1/k"), "{picture}");
    }
}
