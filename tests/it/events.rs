//! What the log gets to know: each event with its level, its fields, and the span of its call.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use distlock::{LockManager, LostReason, distributed_lock};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

use crate::calls::{Body, Call, FOR_EVER, Failure, brisk, connect, redis_key};
use harness::eventually::{eventually, soon};
use harness::proxy::{Proxy, Trip};
use harness::server::Server;

pub(crate) type Fields = HashMap<&'static str, String>;

/// An event of ours, with the fields of the span that it happened in.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) level: Level,
    pub(crate) fields: Fields,
    span: Fields,
}

/// What every password in `secrets` has in it, percent-encoded or not.
pub(crate) const SECRET: &str = "s3cr3t";

/// Fields with a secret in them, of whatever target and level.
static LEAKS: Mutex<Vec<String>> = Mutex::new(Vec::new());

static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());

/// The watchdog has a thread of its own, so what it says can only be heard by the whole process.
static LISTENING: LazyLock<()> = LazyLock::new(|| {
    tracing::subscriber::set_global_default(Registry::default().with(Ear)).unwrap();
});

struct Ear;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Ear {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Reader::default();
        attributes.record(&mut fields);
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Reader::default();
        event.record(&mut fields);
        if event.metadata().target() != "distlock" {
            return;
        }
        let span = context.event_span(event).and_then(|span| Some(span.extensions().get::<Reader>()?.0.clone()));
        let seen = Seen { level: *event.metadata().level(), fields: fields.0, span: span.unwrap_or_default() };
        SEEN.lock().unwrap().push(seen);
    }
}

/// From now on, what is told is kept.
pub(crate) fn listen() {
    LazyLock::force(&LISTENING);
}

/// What was told at this level with this text in one of the fields, each with all its fields.
pub(crate) fn seen_with(level: Level, text: &str) -> Vec<String> {
    let seen = SEEN.lock().unwrap();
    let about = |seen: &&Seen| seen.level == level && seen.fields.values().any(|field| field.contains(text));
    seen.iter().filter(about).map(|seen| format!("{:?}", seen.fields)).collect()
}

pub(crate) fn leaks() -> Vec<String> {
    LEAKS.lock().unwrap().clone()
}

#[derive(Default)]
struct Reader(Fields);

impl Visit for Reader {
    fn record_str(&mut self, field: &Field, value: &str) {
        if value.contains(SECRET) {
            LEAKS.lock().unwrap().push(format!("{field}: {value}"));
        }
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

/// The events about a key with this result, so far.
pub(crate) fn told(key: &str, result: &str) -> Vec<Seen> {
    let seen = SEEN.lock().unwrap();
    // What is said about a server has no key.
    let is = |seen: &Seen, name: &str, value: &str| seen.fields.get(name).is_some_and(|field| field == value);
    let about = |seen: &&Seen| is(seen, "key", key) && is(seen, "result", result);
    seen.iter().filter(about).cloned().collect()
}

/// Waits for an event, and requires its level and what every event has.
pub(crate) async fn tells(key: &str, result: &str, level: Level) -> Seen {
    eventually(&format!("the event `{result}` about `{key}`"), async || !told(key, result).is_empty()).await;
    let seen = told(key, result).remove(0);
    assert_eq!(seen.level, level, "{seen:?}");
    assert_eq!(seen.fields["token"].len(), 36, "{seen:?}");
    assert!(seen.fields.contains_key("ttl") && seen.fields.contains_key("attempt"), "{seen:?}");
    // Keys are made of arguments, and spans go where those may be nobody's business.
    assert!(!seen.span.contains_key("key"), "{seen:?}");
    seen
}

#[distributed_lock(key = "events:<id>", ttl = "900ms")]
async fn watched(id: &str, body: Body) -> Result<(), Failure> {
    body.future(Ok(())).await
}

#[tokio::test]
async fn a_call_is_told_from_its_acquire_to_its_release_under_the_functions_name() {
    LazyLock::force(&LISTENING);
    let server = Server::start().await;
    let (manager, body) = (connect(&server.url()).await, Body::default());
    let call = tokio::spawn(manager.scope(watched("whole", body.clone())));
    let acquired = tells("events:whole", "acquired", Level::DEBUG).await;
    assert_eq!(acquired.fields["attempt"], "1");
    assert!(acquired.span["function"].ends_with("events::watched"), "{acquired:?}");
    let renewed = tells("events:whole", "renewed", Level::DEBUG).await;
    assert!(renewed.span["function"].ends_with("events::watched"), "also from the watchdog's thread: {renewed:?}");
    body.finish();
    soon("the call to end", call).await.unwrap().unwrap();
    let released = tells("events:whole", "released", Level::DEBUG).await;
    assert_eq!(released.fields["token"], acquired.fields["token"]);
}

#[tokio::test]
async fn an_even_number_of_servers_is_one_warning() {
    LazyLock::force(&LISTENING);
    // Nobody listens there, and that is found out after the number.
    let urls = (1..=6).map(|port| format!("redis://127.0.0.1:{port}"));
    LockManager::builder().redlock(urls).build().await.unwrap_err();
    let seen = SEEN.lock().unwrap();
    let told: Vec<_> = seen.iter().filter(|seen| seen.fields.get("servers").is_some_and(|n| n == "6")).collect();
    assert!(told.len() == 1 && told[0].level == Level::WARN, "{told:?}");
}

#[tokio::test]
async fn each_refusal_is_told_and_the_last_one_is_a_warning() {
    LazyLock::force(&LISTENING);
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    server.set_for(&redis_key("events:held"), "another/holder", FOR_EVER).await;
    let request = manager.lock("events:held").retry(2).backoff(brisk());
    request.acquire().await.unwrap_err();
    let refused = told("events:held", "refused");
    let levels: Vec<_> = refused.iter().map(|seen| (seen.fields["attempt"].as_str(), seen.level)).collect();
    assert_eq!(levels, [("1", Level::DEBUG), ("2", Level::DEBUG), ("3", Level::WARN)]);
    assert!(refused.iter().all(|seen| seen.fields["holder"] == "another/holder"), "{refused:?}");
}

#[tokio::test]
async fn an_outage_is_one_warning_for_a_lock_however_often_its_renewal_is_tried() {
    LazyLock::force(&LISTENING);
    let server = Server::start().await;
    let manager = connect(&server.url()).await;
    let call = Call::holding(&manager, "events:outage", Duration::from_secs(3)).await;
    server.kill();
    assert_eq!(call.ended().await.unwrap_err().lost(), LostReason::Expired);
    let (warnings, repeats): (Vec<_>, Vec<_>) =
        told("events:outage", "unknown").into_iter().partition(|seen| seen.level == Level::WARN);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(!repeats.is_empty(), "there was nothing to repeat");
}

#[tokio::test]
async fn a_renewal_without_an_answer_is_a_warning_and_a_loss_is_an_error() {
    LazyLock::force(&LISTENING);
    let server = Server::start().await;
    let link = Proxy::start(&server).await;
    let manager = connect(&link.url()).await;
    let call = Call::holding(&manager, "events:lost", Duration::from_secs(3)).await;
    link.arm("eval", 0, Trip::Reset);
    tells("events:lost", "unknown", Level::WARN).await;
    server.del(&redis_key("events:lost")).await;
    let lost = tells("events:lost", "lost", Level::ERROR).await;
    assert_eq!(lost.fields["reason"], "Gone");
    assert_eq!(call.ended().await.unwrap_err().lost(), LostReason::Gone);
    assert_eq!(told("events:lost", "lost").len(), 1, "a loss is told once");
}
