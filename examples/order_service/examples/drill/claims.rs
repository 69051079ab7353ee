//! What the drill is there to show.

use crate::modes::Claim;
use crate::report::{Bill, Report};

/// The claims that were not kept, in words.
pub(crate) fn broken(reports: &[Report]) -> Vec<String> {
    reports.iter().flat_map(broken_by).collect()
}

/// The claims that were kept, in words.
pub(crate) fn kept(reports: &[Report]) -> Vec<String> {
    let kept = reports.iter().filter(|report| broken_by(report).is_empty());
    kept.filter_map(|report| {
        let (mode, orders) = (report.mode.name, report.bills.len());
        let more_than_once: usize = report.by_charges().into_iter().skip(2).sum();
        Some(match report.mode.claim? {
            Claim::Once => format!(
                "{mode}: each of {orders} orders was charged exactly once, with a receipt, and is stored as paid"
            ),
            Claim::Harm => {
                format!("{mode}: the faults did harm, {more_than_once} of {orders} orders were charged more than once")
            }
        })
    })
    .collect()
}

fn broken_by(report: &Report) -> Vec<String> {
    let mode = report.mode.name;
    match report.mode.claim {
        Some(Claim::Once) => {
            let broken = report.bills.iter().filter_map(|bill| Some((bill, wrong_with(bill)?)));
            broken.map(|(bill, why)| format!("{mode}: order {} {why}", bill.order)).collect()
        }
        Some(Claim::Harm) if report.most() < 2 => {
            vec![format!("{mode}: the faults did no harm, so that this run proves nothing; try another seed")]
        }
        Some(Claim::Harm) | None => Vec::new(),
    }
}

/// An order is to be charged once, and the customer and the store are to know.
fn wrong_with(bill: &Bill) -> Option<String> {
    match bill {
        Bill { charges: 1, has_receipt: true, is_stored: true, .. } => None,
        Bill { charges: 2.., .. } => Some(format!("was charged {} times", bill.charges)),
        Bill { charges: 0, has_receipt: true, .. } => Some("was not charged, though there is a receipt".to_owned()),
        Bill { charges: 0, .. } => Some("was never charged".to_owned()),
        Bill { has_receipt: false, .. } => Some("was charged, and no customer got a receipt".to_owned()),
        Bill { .. } => Some("was charged, and is not paid in the store".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::customers::Answers;
    use crate::modes::MODES;

    fn report(mode: &str, charges: &[usize]) -> Report {
        let mode = *MODES.iter().find(|found| found.name == mode).expect("a mode");
        let bill =
            |charges: &usize| Bill { order: "7".to_owned(), charges: *charges, has_receipt: true, is_stored: true };
        let bills = charges.iter().map(bill).collect();
        Report { mode, bills, waits: Vec::new(), gave_up: 0, answers: Answers::default() }
    }

    #[test]
    fn with_all_on_each_order_is_charged_once() {
        assert!(broken(&[report("all", &[1, 1, 1])]).is_empty());
        assert_eq!(broken(&[report("all", &[1, 2, 0])]).len(), 2);
    }

    #[test]
    fn what_was_kept_is_told_of_each_claim_of_the_run() {
        let told = kept(&[report("none", &[1, 3]), report("lock+fencing", &[1, 1]), report("all", &[1])]);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("none: the faults did harm, 1 of 2 orders"), "{told:?}");
        assert!(kept(&[report("all", &[2])]).is_empty());
    }

    #[test]
    fn a_charge_that_nobody_knows_of_is_no_payment() {
        let mut report = report("all", &[1]);
        report.bills[0].has_receipt = false;
        assert_eq!(broken(&[report]), ["all: order 7 was charged, and no customer got a receipt"]);
    }

    #[test]
    fn without_defences_the_faults_must_do_harm() {
        assert!(broken(&[report("none", &[1, 3]), report("lock", &[1, 2])]).is_empty());
        assert_eq!(broken(&[report("none", &[1, 1]), report("lock", &[1, 1])]).len(), 2);
    }
}
