//! The picture: how often orders were charged, and how long customers waited.

use std::path::Path;

use order_service::Failure;
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::report::Report;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const SIZE: (u32, u32) = (1_360, 520);
const FONT: &str = "sans-serif";
/// Never, once, twice, more often.
const CHARGED: [(&str, RGBColor); 4] = [
    ("never", RGBColor(160, 160, 160)),
    ("once", RGBColor(64, 145, 90)),
    ("twice", RGBColor(235, 150, 50)),
    ("more often", RGBColor(200, 50, 50)),
];

/// One for each mode, after Okabe and Ito, for those who see colours in other ways, too.
const LINES: [RGBColor; 7] = [
    RGBColor(0, 0, 0),
    RGBColor(150, 150, 150),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
];

pub(crate) fn draw(path: &Path, reports: &[Report], seed: u64) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let area = area.titled(&format!("The drill: lines of defence under faults (seed {seed})"), (FONT, 22))?;
    let (left, right) = area.split_horizontally(SIZE.0 / 2);
    draw_charges(&left, reports)?;
    draw_waits(&right, reports)?;
    area.present()?;
    Ok(())
}

/// A bar for each mode, of as many boxes as there are orders.
fn draw_charges(area: &Area<'_>, reports: &[Report]) -> Result<(), Failure> {
    let orders = reports.iter().map(|report| report.bills.len()).max().unwrap_or(0);
    let name = |at: &SegmentValue<usize>| match at {
        SegmentValue::CenterOf(at) => reports.get(*at).map_or("", |report| report.mode.name).to_owned(),
        _ => String::new(),
    };
    // Room above the bars for what the colours mean.
    let mut chart = ChartBuilder::on(area)
        .caption("Orders by how often they were charged", (FONT, 17))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(45)
        .build_cartesian_2d((0..reports.len().saturating_sub(1)).into_segmented(), 0..orders + orders / 4 + 1)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(reports.len())
        .x_label_formatter(&name)
        .x_desc("lines of defence that are on")
        .y_desc("orders")
        .draw()?;
    for (class, (label, color)) in CHARGED.into_iter().enumerate() {
        let bars = reports.iter().enumerate().map(|(at, report)| {
            let counts = report.by_charges();
            let below: usize = counts.iter().take(class).sum();
            let count = counts.get(class).copied().unwrap_or(0);
            let corners = [(SegmentValue::Exact(at), below), (SegmentValue::Exact(at + 1), below + count)];
            let mut bar = Rectangle::new(corners, color.filled());
            bar.set_margin(0, 0, 12, 12);
            bar
        });
        chart.draw_series(bars)?.label(label).legend(move |at| square(at, color));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .border_style(BLACK.mix(0.3))
        .background_style(WHITE.mix(0.8))
        .draw()?;
    Ok(())
}

/// A line for each mode: how many of a hundred devices had their receipt after how many seconds.
fn draw_waits(area: &Area<'_>, reports: &[Report]) -> Result<(), Failure> {
    let longest =
        reports.iter().filter_map(|report| report.waits.last()).max().map_or(1.0, std::time::Duration::as_secs_f64);
    let mut chart = ChartBuilder::on(area)
        .caption("How long customers waited for their receipt", (FONT, 17))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(45)
        .build_cartesian_2d(0.0..longest * 1.05, 0.0..100.0)?;
    chart
        .configure_mesh()
        .x_desc("seconds from the first tap")
        .y_desc("% of the devices that have it")
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (number, report) in reports.iter().enumerate() {
        let color = LINES.get(number % LINES.len()).copied().unwrap_or(BLACK);
        chart
            .draw_series(LineSeries::new(steps(report), color.stroke_width(2)))?
            .label(report.mode.name)
            .legend(move |at| square(at, color));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .border_style(BLACK.mix(0.3))
        .background_style(WHITE.mix(0.8))
        .draw()?;
    Ok(())
}

/// A step up for each receipt.
#[allow(clippy::cast_precision_loss, reason = "there are a few dozen")]
fn steps(report: &Report) -> Vec<(f64, f64)> {
    let devices = (report.waits.len() + report.gave_up).max(1) as f64;
    let percent = |receipts: usize| receipts as f64 * 100.0 / devices;
    let steps = report.waits.iter().enumerate().flat_map(|(before, wait)| {
        let wait = wait.as_secs_f64();
        [(wait, percent(before)), (wait, percent(before + 1))]
    });
    std::iter::once((0.0, 0.0)).chain(steps).collect()
}

fn square<C: Color>((x, y): (i32, i32), color: C) -> Rectangle<(i32, i32)> {
    Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled())
}
