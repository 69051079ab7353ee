//! Logs on stderr, and metrics for Prometheus.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use metrics::{counter, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::error::Error;
use crate::idempotency::Answer;

/// For all that lasts: locks that are waited for and held, and requests.
const BUCKETS: &[f64] = &[0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

static METRICS: OnceLock<PrometheusHandle> = OnceLock::new();

/// Starts both, for the whole process; a second call does nothing.
pub fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn"));
    // Somebody else may have set one up.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
    let builder = PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), BUCKETS);
    match builder.and_then(PrometheusBuilder::install_recorder) {
        Ok(handle) => {
            tokio::spawn(keep_up(METRICS.get_or_init(|| handle)));
        }
        Err(why) => tracing::debug!(%why, "metrics are recorded already"),
    }
}

/// Puts what was recorded into the buckets, also where nobody scrapes.
async fn keep_up(handle: &'static PrometheusHandle) {
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        handle.run_upkeep();
    }
}

/// `GET /metrics`: those of the service and, from its feature `metrics`, those of distlock.
pub async fn metrics() -> impl IntoResponse {
    let text = METRICS.get().map(PrometheusHandle::render).unwrap_or_default();
    ([("content-type", "text/plain; version=0.0.4")], text)
}

/// Counts requests by route and status. By route, not by path: there would be one for each order.
pub async fn count(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let method = request.method().to_string();
    let begin = Instant::now();
    let response = next.run(request).await;
    let labels = [("route", route), ("method", method), ("status", response.status().as_u16().to_string())];
    counter!("http_requests_total", &labels).increment(1);
    histogram!("http_request_seconds", &labels).record(begin.elapsed().as_secs_f64());
    response
}

/// Counts payments by what became of them.
pub fn note_payment(outcome: &Result<Answer, Error>) {
    let result = match outcome {
        Ok(answer) if answer.is_repeated => "repeated",
        Ok(_) => "paid",
        Err(why) => why.kind(),
    };
    counter!("payments_total", "result" => result).increment(1);
}
