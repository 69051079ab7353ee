//! The rules for the line in which readers, writers and those who ask for permits stand together.

use super::{ANOTHER, OURS, THEIRS, TIMEOUT, TTL, entry, free, granted, of, reader, refused, release, renew, short};
use crate::backend::{Backend, Entry, Kind, Renewed, Turn};

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const C: &str = "cccccccccccccccccccccccccccccccc";
const FOURTH: &str = "44444444-4444-4444-8444-444444444444/fourth";
const FIFTH: &str = "66666666-6666-4666-8666-666666666666/fifth";

pub(super) async fn check(backend: &dyn Backend) {
    those_who_share_come_together_and_in_their_order(backend).await;
    permits_come_one_after_the_other(backend).await;
    a_permit_that_expires_is_the_first_ones(backend).await;
}

async fn wait(backend: &dyn Backend, entry: Entry<'_>) -> Turn {
    backend.wait(entry, &mut None).await.expect("a wait is answered")
}

async fn waits(backend: &dyn Backend, entry: Entry<'_>) {
    let turn = wait(backend, entry).await;
    assert!(matches!(turn, Turn::Waits { .. }), "{:?} of {} waits: {turn:?}", entry.kind, entry.value);
}

async fn comes(backend: &dyn Backend, entry: Entry<'_>) {
    let turn = wait(backend, entry).await;
    assert!(matches!(turn, Turn::Come { .. }), "the turn of {:?} of {} has come: {turn:?}", entry.kind, entry.value);
}

async fn those_who_share_come_together_and_in_their_order(backend: &dyn Backend) {
    let key = "conformance:kinds:line";
    let holder = entry(key, FOURTH);
    let first = reader(key, OURS).with_waiter(A);
    let writer = entry(key, THEIRS).with_waiter(B);
    let last = reader(key, ANOTHER).with_waiter(C);

    granted(backend, holder).await;
    for waiter in [first, last] {
        waits(backend, waiter).await;
    }
    release(backend, holder).await;
    comes(backend, first).await;
    comes(backend, last).await;
    // The same when a writer comes between two readers.
    release(backend, last).await;
    waits(backend, writer).await;
    waits(backend, last).await;
    refused(backend, reader(key, FIFTH)).await;
    assert_eq!(renew(backend, first).await, Renewed::Extended, "who holds it may go on");
    release(backend, first).await;
    waits(backend, last).await;
    comes(backend, writer).await;
    waits(backend, last).await;
    release(backend, writer).await;
    comes(backend, last).await;
    release(backend, last).await;
    free(backend, key).await;
}

async fn permits_come_one_after_the_other(backend: &dyn Backend) {
    let key = "conformance:kinds:line:permits";
    let permit = |value| of(Kind::Permits(2), key, value);
    granted(backend, permit(OURS)).await;
    granted(backend, permit(THEIRS)).await;
    let (third, fourth) = (permit(FOURTH).with_waiter(A), permit(FIFTH).with_waiter(B));
    waits(backend, third).await;
    waits(backend, fourth).await;
    release(backend, permit(OURS)).await;
    waits(backend, fourth).await;
    refused(backend, permit(ANOTHER)).await;
    comes(backend, third).await;
    waits(backend, fourth).await;
    release(backend, third).await;
    comes(backend, fourth).await;
    release(backend, fourth).await;
    release(backend, permit(THEIRS)).await;
    free(backend, key).await;
}

async fn a_permit_that_expires_is_the_first_ones(backend: &dyn Backend) {
    let key = "conformance:kinds:line-expiry";
    let permit = |value| of(Kind::Permits(1), key, value);
    let (first, newcomer) = (permit(THEIRS).with_waiter(A), permit(ANOTHER));
    granted(backend, short(permit(OURS))).await;
    waits(backend, first).await;
    let turn = async {
        loop {
            // Whoever asks first when the permit is free, it is the first one's, who is alive.
            refused(backend, newcomer).await;
            if let Turn::Come { .. } = wait(backend, first).await {
                return;
            }
            tokio::time::sleep(TTL / 10).await;
        }
    };
    tokio::time::timeout(TIMEOUT, turn).await.expect("the first gets it");
    release(backend, first).await;
    free(backend, key).await;
}
