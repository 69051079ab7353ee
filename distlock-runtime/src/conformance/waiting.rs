//! The rules for the line of those who wait, for fencing tokens and for several locks at once.

use std::sync::{Arc, Mutex};

use super::{LONG_TTL, OURS, THEIRS, TIMEOUT, TTL, acquire, entry, release};
use crate::FencingToken;
use crate::backend::{Acquired, AcquiredAll, Attempt, Backend, Entry, Fencing, Listener, Released, Turn};

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const HOLDER: &str = "33333333-3333-4333-8333-333333333333/holder";

pub(super) async fn check(backend: &Arc<dyn Backend>) {
    tokens_rise_and_several_are_counted_as_given(&**backend).await;
    several_keys_are_taken_or_none(&**backend).await;
    the_first_in_line_gets_a_lock_that_is_released(backend).await;
    a_place_that_is_given_up_is_free(&**backend).await;
    a_lock_that_expires_is_the_first_ones(&**backend).await;
}

async fn wait(backend: &dyn Backend, entry: Entry<'_>) -> Turn {
    backend.wait(entry, &mut None).await.expect("a wait is answered")
}

fn is_first(turn: &Turn) -> Option<bool> {
    match turn {
        Turn::Waits { first, .. } => Some(*first),
        Turn::Come { .. } => None,
    }
}

async fn minted(backend: &dyn Backend, entry: Entry<'_>) -> FencingToken {
    match acquire(backend, entry).await {
        Acquired::Granted(token) => token.expect("a token that is asked for is minted"),
        Acquired::Held { .. } => panic!("a free key is granted"),
    }
}

async fn tokens_rise_and_several_are_counted_as_given(backend: &dyn Backend) {
    let key = "conformance:fence";
    let fenced = |fencing| entry(key, OURS).with_fencing(fencing);
    let first = minted(backend, fenced(Fencing::new(10, 0))).await;
    release(backend, entry(key, OURS)).await;
    let second = minted(backend, fenced(Fencing::ONE)).await;
    assert!(second.get() >= first.get() + 10, "{second} after ten from {first} on");
    let again = backend.acquire(fenced(Fencing::ONE), Attempt::Repeated, &mut None).await;
    assert!(
        matches!(again, Ok(Acquired::Granted(Some(token))) if token > second),
        "a repeated attempt mints: {again:?}"
    );
    release(backend, entry(key, OURS)).await;
    let above = second.get() + 1_000_000_000;
    let third = minted(backend, fenced(Fencing::new(1, above))).await;
    assert!(third.get() > above, "{third} is to be above {above}");
    release(backend, entry(key, OURS)).await;
}

async fn several_keys_are_taken_or_none(backend: &dyn Backend) {
    let keys = ["conformance:several:1", "conformance:several:2", "conformance:several:3"];
    let entries = keys.map(|key| entry(key, OURS).with_fencing(Fencing::ONE));
    acquire(backend, entry(keys[1], THEIRS)).await;
    let refused = backend.acquire_all(&entries, &mut None).await.expect("it is answered");
    assert!(matches!(&refused, AcquiredAll::Held { index: 1, value, .. } if value == THEIRS), "{refused:?}");
    for key in [keys[0], keys[2]] {
        assert_eq!(acquire(backend, entry(key, THEIRS)).await, Acquired::Granted(None), "none is taken");
        release(backend, entry(key, THEIRS)).await;
    }
    release(backend, entry(keys[1], THEIRS)).await;
    for attempt in ["a first", "a repeated"] {
        let granted = backend.acquire_all(&entries, &mut None).await.expect("it is answered");
        assert!(matches!(granted, AcquiredAll::Granted(Some(_))), "{attempt} attempt: {granted:?}");
    }
    for key in keys {
        assert_eq!(release(backend, entry(key, OURS)).await, Released::Freed, "all are taken");
    }
}

/// Hears calls and keeps them.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>, tokio::sync::Notify);

impl Listener for Heard {
    fn connected(&self) {
        self.1.notify_one();
    }

    fn handed_over(&self, token: &str) {
        self.0.lock().expect("nobody panics with it").push(token.to_owned());
        self.1.notify_one();
    }
}

async fn the_first_in_line_gets_a_lock_that_is_released(backend: &Arc<dyn Backend>) {
    let key = "conformance:line";
    let (heard, listens) = (Arc::new(Heard::default()), backend.clone());
    let ear = heard.clone();
    let listening = tokio::spawn(async move { listens.listen(A, &*ear).await });
    tokio::time::timeout(TIMEOUT, heard.1.notified()).await.expect("a backend with a line can be listened to");
    let (ours, theirs) = (entry(key, OURS).with_waiter(A), entry(key, THEIRS).with_waiter(B));

    acquire(&**backend, entry(key, HOLDER)).await;
    assert_eq!(is_first(&wait(&**backend, ours).await), Some(true), "who comes first is first");
    assert_eq!(is_first(&wait(&**backend, theirs).await), Some(false), "who comes later is not");
    release(&**backend, entry(key, HOLDER)).await;
    let told = async {
        // A backend may also tell, any number of times, that it listens anew.
        while heard.0.lock().expect("nobody panics with it").is_empty() {
            heard.1.notified().await;
        }
    };
    tokio::time::timeout(TIMEOUT, told).await.expect("a lock that is handed over is told of");
    assert_eq!(*heard.0.lock().expect("nobody panics with it"), [OURS.split('/').next().unwrap_or_default()]);
    assert_eq!(is_first(&wait(&**backend, theirs).await), Some(false), "it is not the second's");
    assert!(matches!(acquire(&**backend, entry(key, HOLDER)).await, Acquired::Held { .. }), "nor anybody else's");
    let turn = wait(&**backend, ours).await;
    assert!(matches!(turn, Turn::Come { others: true, .. }), "the first claims it: {turn:?}");

    release(&**backend, ours).await;
    let turn = wait(&**backend, theirs).await;
    assert!(matches!(turn, Turn::Come { others: false, .. }), "then it is the second's: {turn:?}");
    release(&**backend, theirs).await;
    listening.abort();
}

async fn a_place_that_is_given_up_is_free(backend: &dyn Backend) {
    let key = "conformance:given-up";
    let (ours, theirs) = (entry(key, OURS).with_waiter(A), entry(key, THEIRS).with_waiter(B));
    acquire(backend, entry(key, HOLDER)).await;
    wait(backend, ours).await;
    wait(backend, theirs).await;
    assert_eq!(release(backend, ours).await, Released::Left, "a place can be given up");
    assert_eq!(release(backend, ours).await, Released::NotHeld, "and only once");
    release(backend, entry(key, HOLDER)).await;
    assert!(matches!(wait(backend, theirs).await, Turn::Come { .. }), "the next one moves up");
    release(backend, theirs).await;
}

async fn a_lock_that_expires_is_the_first_ones(backend: &dyn Backend) {
    let key = "conformance:line-expiry";
    let (ours, theirs) = (entry(key, OURS).with_waiter(A), entry(key, THEIRS).with_waiter(B));
    acquire(backend, Entry::new(key, HOLDER, TTL, TIMEOUT)).await;
    wait(backend, ours).await;
    let second = async {
        loop {
            // Signs of life of both; whoever asks first when the lock is free, it is the first one's.
            assert!(is_first(&wait(backend, theirs).await).is_some(), "the second got it before the first");
            if let Turn::Come { .. } = wait(backend, ours).await {
                return;
            }
            tokio::time::sleep(TTL / 10).await;
        }
    };
    tokio::time::timeout(LONG_TTL, second).await.expect("the first gets it");
    release(backend, ours).await;
    release(backend, theirs).await;
}
