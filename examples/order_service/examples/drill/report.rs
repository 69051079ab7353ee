//! What came of a mode.

use std::time::Duration;

use crate::customers::Answers;
use crate::modes::Mode;

pub(crate) struct Report {
    pub(crate) mode: Mode,
    pub(crate) bills: Vec<Bill>,
    /// How long each device waited for its receipt, the shortest first.
    pub(crate) waits: Vec<Duration>,
    /// How many devices gave up.
    pub(crate) gave_up: usize,
    pub(crate) answers: Answers,
}

/// What an order has cost.
pub(crate) struct Bill {
    pub(crate) order: String,
    pub(crate) charges: usize,
    /// Whether a customer was told that it is paid.
    pub(crate) has_receipt: bool,
    /// Whether it is paid as the service remembers it.
    pub(crate) is_stored: bool,
}

impl Report {
    /// How many orders were charged never, once, twice, and more often.
    pub(crate) fn by_charges(&self) -> [usize; 4] {
        let with = |is: fn(usize) -> bool| self.bills.iter().filter(|bill| is(bill.charges)).count();
        [with(|n| n == 0), with(|n| n == 1), with(|n| n == 2), with(|n| n > 2)]
    }

    pub(crate) fn charges(&self) -> usize {
        self.bills.iter().map(|bill| bill.charges).sum()
    }

    pub(crate) fn most(&self) -> usize {
        self.bills.iter().map(|bill| bill.charges).max().unwrap_or(0)
    }

    pub(crate) fn receipts(&self) -> usize {
        self.bills.iter().filter(|bill| bill.has_receipt).count()
    }

    /// The waiting time that so many of a hundred devices did not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let at = (self.waits.len() * percent).div_ceil(100).saturating_sub(1);
        self.waits.get(at).copied().unwrap_or_default()
    }
}
