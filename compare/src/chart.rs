//! One picture for each workload: bars of the ratios to the floor, with whiskers from quartile to quartile.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::Failure;
use crate::contender::Contender;
use crate::report::{Case, Report};
use crate::statistics::Spread;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const FONT: &str = "sans-serif";
const WIDTH: i32 = 900;
/// Of a line, which holds a bar or the name of a case.
const LINE: i32 = 24;
/// Where the bars begin, and where the longest one ends; its figures stand behind it.
const LEFT: i32 = 190;
const RIGHT: i32 = 720;
/// Above the first line.
const HEAD: i32 = 64;

pub(crate) fn draw(path: &Path, report: &Report) -> Result<(), Failure> {
    let lines: usize = report.cases.iter().map(|case| case.bars.len() + 1).sum();
    let height = HEAD + LINE * i32::try_from(lines)? + 12;
    let area = SVGBackend::new(path, (u32::try_from(WIDTH)?, u32::try_from(height)?)).into_drawing_area();
    area.fill(&WHITE)?;
    text(&area, &report.title, (12, 20), 20.0, HPos::Left)?;
    let below = "times as fast as by hand (in `held`: as cheap); the whiskers go from quartile to quartile";
    text(&area, below, (12, 44), 13.0, HPos::Left)?;
    let scale = Scale::of(&report.cases);
    let mut top = HEAD;
    for case in &report.cases {
        text(&area, &case.name, (12, top + LINE / 2), 14.0, HPos::Left)?;
        top += LINE;
        for (contender, ratio) in &case.bars {
            bar(&area, &scale, top, *contender, *ratio)?;
            top += LINE;
        }
    }
    let one = scale.at(1.0);
    area.draw(&PathElement::new([(one, HEAD), (one, height - 12)], BLACK.mix(0.5)))?;
    area.present()?;
    Ok(())
}

/// From ratios to pixels.
struct Scale {
    longest: f64,
}

impl Scale {
    fn of(cases: &[Case]) -> Scale {
        let all = cases.iter().flat_map(|case| &case.bars).map(|(_, ratio)| ratio.high.max(ratio.median));
        Scale { longest: all.fold(1.0, f64::max) }
    }

    #[allow(clippy::cast_possible_truncation, reason = "a pixel")]
    fn at(&self, ratio: f64) -> i32 {
        LEFT + (f64::from(RIGHT - LEFT) * ratio / self.longest).round() as i32
    }
}

fn bar(area: &Area<'_>, scale: &Scale, top: i32, contender: Contender, ratio: Spread) -> Result<(), Failure> {
    let middle = top + LINE / 2;
    text(area, contender.name(), (LEFT - 8, middle), 13.0, HPos::Right)?;
    let end = scale.at(ratio.median);
    area.draw(&Rectangle::new([(LEFT, top + 4), (end, top + LINE - 4)], color(contender).filled()))?;
    let (low, high) = (scale.at(ratio.low), scale.at(ratio.high));
    area.draw(&PathElement::new([(low, middle), (high, middle)], BLACK))?;
    for whisker in [low, high] {
        area.draw(&PathElement::new([(whisker, middle - 4), (whisker, middle + 4)], BLACK))?;
    }
    let figures = format!("{:.3} ({:.3} to {:.3})", ratio.median, ratio.low, ratio.high);
    text(area, &figures, (end.max(high) + 8, middle), 12.0, HPos::Left)
}

/// Ours stands out, the floor is grey, and what has no server is lighter than that.
fn color(contender: Contender) -> RGBColor {
    match contender {
        Contender::Distlock => RGBColor(0, 114, 178),
        Contender::Floor => RGBColor(110, 110, 110),
        Contender::Ideal => RGBColor(200, 200, 200),
        _ => RGBColor(230, 159, 0),
    }
}

fn text(area: &Area<'_>, text: &str, at: (i32, i32), size: f64, from: HPos) -> Result<(), Failure> {
    let style = (FONT, size).into_font().color(&BLACK).pos(Pos::new(from, VPos::Center));
    area.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Scale, draw};
    use crate::contender::{Contender, Workload};
    use crate::report::{Case, Report};
    use crate::statistics::Spread;

    #[test]
    fn a_chart_names_cases_and_contenders() {
        let ratio = Spread { median: 0.5, low: 0.25, high: 0.75 };
        let cases = vec![Case { name: "64 tasks".to_owned(), bars: vec![(Contender::Rslock, ratio)] }];
        let report = Report {
            workload: Workload::Delayed,
            title: "Delayed".to_owned(),
            about: String::new(),
            tables: vec![],
            cases,
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chart.svg");
        draw(&path, &report).unwrap();
        let picture = std::fs::read_to_string(path).unwrap();
        for text in ["Delayed", "64 tasks", "rslock", "0.500 (0.250 to 0.750)"] {
            assert!(picture.contains(text), "{text} is missing");
        }
    }

    #[test]
    fn the_longest_whisker_ends_at_the_right() {
        let ratio = Spread { median: 2.0, low: 1.0, high: 4.0 };
        let scale = Scale::of(&[Case { name: String::new(), bars: vec![(Contender::Distlock, ratio)] }]);
        assert_eq!((scale.at(0.0), scale.at(4.0)), (super::LEFT, super::RIGHT));
    }
}
