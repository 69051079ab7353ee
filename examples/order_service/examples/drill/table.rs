//! The table at the end.

use std::fmt::Write;

use crate::report::Report;

const HEAD: &str = "
                    orders charged             charges         with    gave      answers                    receipt after
lines of defence    never  once twice  more   all  most one  receipt    up   409   503 other  none      p50      p99
";

const NOTE: &str = "
Charges are the provider's. 409: busy or not settled yet, come back later. 503: the lock was lost, or Redis is away. None: no
answer within 3 s. Fencing tokens come from the lock, so that `fencing` alone is `none`. The lock alone has no memory of a payment
that was begun by somebody who died or lost the lock; the other two lines write it down first.

";

pub(crate) fn of(reports: &[Report]) -> String {
    reports.iter().fold(HEAD.to_owned(), |mut table, report| {
        // Writing to a string can't fail.
        let _ = writeln!(table, "{}", row(report));
        table
    }) + NOTE
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
