//! The table at the end.

use std::fmt::Write;

use crate::report::Report;

const HEAD: &str = "
                    orders charged             charges         with    gave      answers                    receipt after
lines of defence    never  once twice  more   all  most one  receipt    up   409   503 other  none      p50      p99
";

const COLUMNS: &str = "
orders charged: how many orders the provider charged never, once, twice, and more often.
charges: of all orders together, and the most for one order.
with receipt: orders for which a customer heard that they are paid.
gave up: devices that have no receipt after 25 s.
answers: how many taps got 409 (busy or not settled yet, come back later), 503 (the lock was lost, or Redis is away), other ones
  (the provider refused, 502, or did not answer, 504), and none within 3 s.
receipt after: from the first tap of a device to its receipt; half of the devices had it by p50, 99 of 100 by p99.
";

const FENCING_ALONE: &str = "fencing: its tokens come from the lock, so that alone it is none.\n";

const LOCK_ALONE: &str = "lock: alone it has no memory of a payment that was begun by somebody who died or lost the lock; \
    the other two lines\n  write it down first.\n";

pub(crate) fn of(reports: &[Report]) -> String {
    let table = reports.iter().fold(HEAD.to_owned(), |mut table, report| {
        // Writing to a string can't fail.
        let _ = writeln!(table, "{}", row(report));
        table
    });
    table + &legend(reports) + "\n"
}

/// Of what the run has.
fn legend(reports: &[Report]) -> String {
    let has = |name| reports.iter().any(|report| report.mode.name == name);
    let of = |name, note: &'static str| if has(name) { note } else { "" };
    [COLUMNS, of("fencing", FENCING_ALONE), of("lock", LOCK_ALONE)].concat()
}

fn row(report: &Report) -> String {
    let [never, once, twice, more] = report.by_charges();
    let answers = report.answers;
    let (all, most, receipts, gave_up) = (report.charges(), report.most(), report.receipts(), report.gave_up);
    let [p50, p99] = [50, 99].map(|percent| report.percentile(percent).as_secs_f64());
    format!(
        "{:<18} {never:>6} {once:>5} {twice:>5} {more:>5} {all:>5} {most:>9} {receipts:>8} {gave_up:>5} {:>5} {:>5} {:>5} {:>5} {p50:>6.1} s {p99:>6.1} s",
        report.mode.name, answers.busy, answers.unavailable, answers.other, answers.none
    )
}
