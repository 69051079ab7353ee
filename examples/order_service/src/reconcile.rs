//! The nightly reconciliation: on one of all instances, and the others skip it.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::{LockError, distributed_lock};
use serde::Serialize;

use crate::app::App;
use crate::error::Error;
use crate::pay;
use crate::store::{Order, Store, millis};

const JOB: &str = "reconcile";

/// Long enough for a day's payments. Where it hangs, another instance may try.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// Before one looks again at a job that somebody else is at, or that has failed.
const PAUSE: Duration = Duration::from_secs(60);

/// What the reconciliation has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether it ran here. If not, another instance is at it, or has just done it.
    pub ran: bool,
    /// Payments without an outcome that have one now.
    pub settled: usize,
    /// Those that are too young, or could not be settled.
    pub unsettled: usize,
    /// Orders that were charged more than once: somebody has to give money back.
    pub charged_twice: Vec<String>,
    /// Orders that are paid, but not charged.
    pub not_charged: Vec<String>,
}

impl Report {
    /// Only where somebody else is at it: that the locks can't be asked, or this one was lost, leaves the job undone.
    fn skipped_if_busy(why: LockError) -> Result<Report, Error> {
        if !matches!(why, LockError::Busy { .. }) {
            return Err(why.into());
        }
        tracing::info!(%why, "the reconciliation is skipped");
        Ok(Report::default())
    }
}

/// Compares what the orders say with what the provider says, unless that was done less than `every` ago.
///
/// # Errors
///
/// Those of the lock, the database and the provider. That somebody else has the lock is none: then it is skipped.
#[distributed_lock(
    key = "reconcile",
    global,
    ttl = app.config.ttl,
    max_hold = LONGEST.max(app.config.ttl),
    or_else = Report::skipped_if_busy,
    manager = app.locks.clone()
)]
pub async fn reconcile(app: &App, every: Duration) -> Result<Report, Error> {
    // The lock keeps two from running it at once; that it is not run again right after needs a memory.
    if app.store.done_ago(JOB).await?.is_some_and(|ago| ago < every) {
        return Ok(Report::default());
    }
    let mut report = Report { ran: true, ..Report::default() };
    // Before the charges are listed: an order that is paid in between would have none on the list.
    let orders = app.store.orders_to_reconcile().await?;
    let mut charges: BTreeMap<String, usize> = BTreeMap::new();
    for charge in app.provider.charges().await? {
        *charges.entry(charge.order).or_default() += 1;
    }
    for order in orders {
        let count = charges.get(&order.id).copied().unwrap_or_default();
        report.note(app, order, count).await;
    }
    app.store.done(JOB).await?;
    Ok(report)
}

impl Report {
    async fn note(&mut self, app: &App, order: Order, charges: usize) {
        if charges > 1 {
            tracing::error!(order = order.id, charges, "charged more than once");
            self.charged_twice.push(order.id.clone());
        }
        if order.charge.is_some() {
            if charges == 0 {
                tracing::error!(order = order.id, "paid, and not charged");
                self.not_charged.push(order.id);
            }
            return;
        }
        match pay::settle(app, &order.id).await {
            Ok(true) => self.settled += 1,
            Ok(false) => tracing::debug!(order = order.id, "somebody else has settled it meanwhile"),
            Err(why) => {
                tracing::info!(order = order.id, error = %why, "not settled yet");
                self.unsettled += 1;
            }
        }
    }
}

/// Runs it again and again, on one of all instances. Never returns.
pub async fn every(app: &App, period: Duration) {
    loop {
        let outcome = when_due(app, period).await;
        let result = match &outcome {
            Ok(report) if report.ran => "ran",
            Ok(_) => "skipped",
            Err(_) => "failed",
        };
        metrics::counter!("reconciliations_total", "result" => result).increment(1);
        match outcome {
            Ok(report) if report.ran => tracing::info!(?report, "reconciled"),
            // Where somebody else is at it, that was told.
            Ok(_) => tracing::debug!("the reconciliation was done by another instance"),
            Err(why) => tracing::warn!(error = %why, "the reconciliation failed"),
        }
        if result != "ran" {
            tokio::time::sleep(PAUSE.min(period)).await;
        }
    }
}

/// Counts from when it was last done, and not from when this process began: one that is restarted every day would never come to it.
async fn when_due(app: &App, period: Duration) -> Result<Report, Error> {
    let done_ago = app.in_time(async { Ok(app.store.done_ago(JOB).await?) });
    if let Some(ago) = done_ago.await? {
        tokio::time::sleep(period.saturating_sub(ago)).await;
    }
    reconcile(app, period).await
}

impl Store {
    /// How long ago a job was done.
    async fn done_ago(&self, name: &str) -> sqlx::Result<Option<Duration>> {
        let select = format!("SELECT {} - done_at FROM jobs WHERE name = $1", self.now());
        let ago: Option<i64> = sqlx::query_scalar(&select).bind(name).fetch_optional(&self.pool).await?;
        Ok(ago.map(millis))
    }

    async fn done(&self, name: &str) -> sqlx::Result<()> {
        let now = self.now();
        let upsert = format!(
            "INSERT INTO jobs (name, done_at) VALUES ($1, {now})
             ON CONFLICT (name) DO UPDATE SET done_at = excluded.done_at"
        );
        sqlx::query(&upsert).bind(name).execute(&self.pool).await.map(drop)
    }
}
