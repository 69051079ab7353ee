//! The nightly reconciliation: on one of all instances, and the others skip it.

use std::collections::BTreeMap;
use std::time::Duration;

use distlock::{LockError, distributed_lock};
use serde::Serialize;

use crate::app::App;
use crate::error::Error;
use crate::pay;
use crate::store::{Store, millis};

const JOB: &str = "reconcile";

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
    fn skipped(why: &LockError) -> Report {
        tracing::info!(%why, "the reconciliation is skipped");
        Report::default()
    }
}

/// Compares what the orders say with what the provider says, unless that was done less than `every` ago.
///
/// # Errors
///
/// Those of the database and the provider. That the lock is not to be had is none: then it is skipped.
#[distributed_lock(
    key = "reconcile",
    global,
    ttl = app.config.ttl,
    or_else = |why| Ok(Report::skipped(&why)),
    manager = app.locks.clone()
)]
pub async fn reconcile(app: &App, every: Duration) -> Result<Report, Error> {
    // The lock keeps two from running it at once; that it is not run again right after needs a memory.
    if app.store.done_ago(JOB).await?.is_some_and(|ago| ago < every) {
        return Ok(Report::default());
    }
    let mut report = Report { ran: true, ..Report::default() };
    let mut charges: BTreeMap<String, usize> = BTreeMap::new();
    for charge in app.provider.charges().await? {
        *charges.entry(charge.order).or_default() += 1;
    }
    for order in app.store.orders_to_reconcile().await? {
        let count = charges.get(&order.id).copied().unwrap_or_default();
        if count > 1 {
            tracing::error!(order = order.id, count, "charged more than once");
            report.charged_twice.push(order.id.clone());
        }
        if order.charge.is_some() {
            if count == 0 {
                report.not_charged.push(order.id);
            }
            continue;
        }
        match pay::settle(app, &order.id).await {
            Ok(_) => report.settled += 1,
            Err(why) => {
                tracing::info!(order = order.id, error = %why, "not settled yet");
                report.unsettled += 1;
            }
        }
    }
    app.store.done(JOB).await?;
    Ok(report)
}

/// Runs it again and again, on one of all instances. Never returns.
pub async fn every(app: &App, period: Duration) {
    loop {
        tokio::time::sleep(period).await;
        // Half of it: clocks differ, and so do the times at which instances were started.
        let outcome = reconcile(app, period / 2).await;
        let result = match &outcome {
            Ok(report) if report.ran => "ran",
            Ok(_) => "skipped",
            Err(_) => "failed",
        };
        metrics::counter!("reconciliations_total", "result" => result).increment(1);
        match outcome {
            Ok(report) => tracing::info!(?report, "reconciled"),
            Err(why) => tracing::warn!(error = %why, "the reconciliation failed"),
        }
    }
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
