//! What is told beside the log: to a listener, to meters, and in the spans of traces.

pub(crate) mod broken;
mod exported;
mod metered;

use std::fmt::{Debug, Write as _};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::calls::subscribers_are_asked;
use distlock::{LockError, LockEvent, LockEventKind, LockManager, LostReason, Mode, distributed_lock};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Metadata, Subscriber};

const FOR_EVER: Duration = Duration::from_secs(600);

/// A manager in memory, and what its listener hears.
async fn heard() -> (LockManager, Receiver<LockEvent>) {
    let (told, heard) = channel();
    let listener = move |event: &LockEvent| drop(told.send(event.clone()));
    (LockManager::builder().url("memory://").listener(listener).build().await.unwrap(), heard)
}

/// The next event about a lock, with its name.
fn next(heard: &Receiver<LockEvent>) -> (String, LockEvent) {
    let event = heard.recv_timeout(Duration::from_secs(60)).unwrap();
    let name = format!("{:?}", event.kind);
    (name.split([' ', '{']).next().unwrap_or_default().to_owned(), event)
}

fn names(heard: &Receiver<LockEvent>, count: usize) -> Vec<String> {
    (0..count).map(|_| next(heard).0).collect()
}

#[distributed_lock(key = "listened:<id>", mode = read)]
async fn listened(id: u32) -> Result<u32, LockError> {
    Ok(id)
}

#[tokio::test]
async fn a_listener_hears_the_life_of_a_lock() {
    let (locks, heard) = heard().await;
    locks.scope(listened(7)).await.unwrap();
    let (name, event) = next(&heard);
    assert_eq!((name.as_str(), event.key.as_str(), event.attempt), ("Acquired", "listened:7", 1));
    assert!(event.function.unwrap().ends_with("observing::listened"), "{event:?}");
    assert_eq!((event.mode, event.permits, event.missed), (Some(Mode::Read), None, 0));
    assert_eq!(names(&heard, 1), ["Ended"]);
}

#[tokio::test]
async fn a_listener_hears_of_refusals_and_of_who_gives_up() {
    let (locks, heard) = heard().await;
    let guard = locks.lock("k").permits(1).acquire().await.unwrap();
    assert!(locks.lock("k").permits(1).retry(1).acquire().await.unwrap_err().is_busy());
    assert_eq!(names(&heard, 3), ["Acquired", "Refused", "Refused"]);
    let (_, event) = next(&heard);
    assert_eq!((event.permits, event.mode, event.attempt), (Some(1), None, 2));
    match event.kind {
        LockEventKind::GaveUp { reason, error, .. } => {
            assert_eq!(reason, "busy");
            assert!(error.contains("gave up after 2 attempts"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    drop(guard);
    let mut last = names(&heard, 2);
    last.sort();
    assert_eq!(last, ["Ended", "Reclaimed"], "what is dropped is freed by the watchdog");
}

#[tokio::test]
async fn a_listener_hears_of_renewals_and_losses() {
    let (locks, heard) = heard().await;
    let guard = locks.lock("k").ttl(Duration::from_millis(900)).acquire().await.unwrap();
    assert_eq!(names(&heard, 2), ["Acquired", "Renewed"]);
    locks.shutdown(Duration::ZERO).await;
    let lost = std::iter::repeat_with(|| next(&heard).1.kind).find_map(|kind| match kind {
        LockEventKind::Lost { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(lost, Some(LostReason::Shutdown));
    drop(guard);
}

#[tokio::test]
async fn a_listener_hears_of_calls_that_are_dropped_while_they_wait() {
    let (locks, heard) = heard().await;
    let guard = locks.lock("k").acquire().await.unwrap();
    assert_eq!(names(&heard, 1), ["Acquired"]);
    let call = locks.lock("k").wait(FOR_EVER).acquire();
    // So long it waits at least.
    let waits = Duration::from_millis(20);
    assert!(tokio::time::timeout(waits, call).await.is_err());
    let cancelled = std::iter::repeat_with(|| next(&heard).1.kind).find_map(|kind| match kind {
        LockEventKind::Cancelled { waited, .. } => Some(waited),
        _ => None,
    });
    assert!(cancelled.unwrap() >= waits, "{cancelled:?}");
    drop(guard);
}

/// What a listener panics with, and what panics when that is dropped.
struct Worse;

impl Drop for Worse {
    fn drop(&mut self) {
        std::panic::panic_any(Bad);
    }
}

struct Bad;

impl Drop for Bad {
    fn drop(&mut self) {
        panic!("as it should");
    }
}

#[tokio::test]
async fn a_listener_that_panics_with_what_panics_hears_of_the_next_event() {
    let (told, heard) = channel();
    let listener = move |event: &LockEvent| {
        drop(told.send(event.clone()));
        std::panic::panic_any(Worse);
    };
    let locks = LockManager::builder().url("memory://").listener(listener).build().await.unwrap();
    for _ in 0..3 {
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
        assert_eq!(names(&heard, 2), ["Acquired", "Ended"]);
    }
}

#[tokio::test]
async fn a_listener_that_panics_or_blocks_harms_nothing() {
    let (end, over) = channel::<()>();
    let over = Mutex::new(over);
    let listener = move |event: &LockEvent| {
        assert!(event.key != "panic", "as it should");
        // Until the test is over.
        let _ = over.lock().unwrap().recv();
    };
    let locks = LockManager::builder().url("memory://").listener(listener).build().await.unwrap();
    locks.lock("panic").acquire().await.unwrap().release().await.unwrap();
    // Far more than can wait.
    for _ in 0..5_000 {
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    }
    drop(end);
}

#[tokio::test]
async fn a_listener_is_told_how_many_events_it_has_missed() {
    let (told, heard) = channel();
    let (end, over) = channel::<()>();
    let (over, first) = (Mutex::new(over), Mutex::new(true));
    let listener = move |event: &LockEvent| {
        if std::mem::replace(&mut *first.lock().unwrap(), false) {
            let _ = over.lock().unwrap().recv();
        }
        drop(told.send(event.clone()));
    };
    let locks = LockManager::builder().url("memory://").listener(listener).build().await.unwrap();
    for _ in 0..5_000 {
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    }
    drop(end);
    let mut missed = 0;
    while missed <= 5_000 {
        // The next one that there is room for tells of those that there was none for.
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
        missed += heard.try_iter().map(|event| event.missed).sum::<u64>();
    }
}

/// Keeps the spans that are made on this thread, with their fields.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == "distlock"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut spans = self.0.lock().unwrap();
        let mut text = span.metadata().name().to_owned();
        if let Some(parent) = span.parent() {
            write!(text, " in {}", parent.into_u64()).unwrap();
        }
        span.record(&mut Fields(&mut text));
        spans.push(text);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[distributed_lock(key = "traced:<id>")]
async fn traced(id: u32) -> Result<u32, LockError> {
    Ok(id)
}

fn spans_of(keys_in_spans: bool) -> Vec<String> {
    let spans = Spans::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let call = async {
        let builder = LockManager::builder().url("memory://").keys_in_spans(keys_in_spans).ttl(FOR_EVER);
        let locks = builder.build().await.unwrap();
        locks.scope(traced(42)).await.unwrap();
    };
    subscribers_are_asked();
    with_default(spans.clone(), || runtime.block_on(call));
    let spans = spans.0.lock().unwrap();
    spans.clone()
}

#[test]
fn a_trace_shows_waiting_and_holding_apart_and_no_arguments() {
    let function = "function=\"it::observing::traced\"";
    let plain = [format!("distributed_lock {function}"), "acquire in 1".to_owned(), "hold in 1".to_owned()];
    assert_eq!(spans_of(false), plain);
    assert_eq!(spans_of(true)[0], format!("distributed_lock {function} key=\"traced:42\""));
}
