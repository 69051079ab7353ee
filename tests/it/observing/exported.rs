//! Traces as `tracing-opentelemetry` exports them, set up as `OBSERVABILITY.md` says.

use std::time::Duration;

use distlock::{LockError, LockManager, distributed_lock};
use opentelemetry::Value;
use opentelemetry::trace::{SpanId, Status, TracerProvider as _};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing::{Instrument as _, info_span};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::prelude::*;

use crate::calls::subscribers_are_asked;

const KEY: &str = "exported:4711";

#[distributed_lock(key = "exported:<id>", wait = "60s")]
async fn exported(id: u32) -> Result<u32, LockError> {
    async { tokio::task::yield_now().await }.instrument(info_span!("work")).await;
    Ok(id)
}

/// Calls the function within a span, while somebody else holds its lock at first; returns what was exported.
fn spans_of_a_call(without_keys: bool) -> Vec<SpanData> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    subscribers_are_asked();
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let filter = filter_fn(move |metadata| !without_keys || metadata.is_span() || metadata.target() != "distlock");
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("it")).with_filter(filter);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || runtime.block_on(call()));
    provider.force_flush().unwrap();
    exporter.get_finished_spans().unwrap()
}

async fn call() {
    let locks = LockManager::in_memory();
    let guard = locks.lock(KEY).acquire().await.unwrap();
    let call = tokio::spawn(locks.scope(exported(4_711)).instrument(info_span!("request")));
    // So long the call waits at least, which its trace has to show.
    tokio::time::sleep(WAITED).await;
    drop(guard);
    assert_eq!(call.await.unwrap().unwrap(), 4_711);
}

const WAITED: Duration = Duration::from_millis(50);

fn one<'a>(spans: &'a [SpanData], name: &str, parent: SpanId) -> &'a SpanData {
    let mut found = spans.iter().filter(|span| span.name == name && span.parent_span_id == parent);
    match (found.next(), found.next()) {
        (Some(span), None) => span,
        _ => panic!("not one `{name}` below {parent}: {spans:#?}"),
    }
}

#[test]
fn a_trace_has_the_call_in_its_request_and_the_body_in_what_is_held() {
    let spans = spans_of_a_call(true);
    let request = one(&spans, "request", SpanId::INVALID);
    let call = one(&spans, "distributed_lock", request.span_context.span_id());
    let acquire = one(&spans, "acquire", call.span_context.span_id());
    let hold = one(&spans, "hold", call.span_context.span_id());
    let work = one(&spans, "work", hold.span_context.span_id());

    let lasted = |span: &SpanData| span.end_time.duration_since(span.start_time).unwrap();
    assert!(lasted(acquire) >= WAITED, "the call waited for longer than its trace says: {acquire:#?}");
    assert!(acquire.end_time <= hold.start_time, "it held before it had: {acquire:#?} {hold:#?}");
    assert!(hold.start_time <= work.start_time && work.end_time <= hold.end_time, "{hold:#?} {work:#?}");
    let function = call.attributes.iter().find(|attribute| attribute.key.as_str() == "function").unwrap();
    assert_eq!(function.value, Value::from("it::observing::exported::exported"));
    assert_eq!(call.status, Status::Unset);
}

#[test]
fn no_argument_is_exported_where_events_are_left_out() {
    let without = format!("{:?}", spans_of_a_call(true));
    assert!(!without.contains(KEY), "{without}");
    // Else the assertion above would prove nothing.
    let with = format!("{:?}", spans_of_a_call(false));
    assert!(with.contains(KEY), "the events of the call are missing: {with}");
}
