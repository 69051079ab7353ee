//! Paying an order: charged once, however often it is asked for and whoever dies in the middle.
//!
//! The order of the steps is the point. Each is made so that the process may end after it:
//!
//! 1. The lock is taken: others wait in line, or are told when to come back.
//! 2. The idempotency key is claimed. A repeat of a payment that was answered ends here.
//! 3. The order is read *and its fence raised*, in one statement. What an earlier holder wrote is seen; what it would still
//!    write is refused.
//! 4. An intent without an outcome is somebody's who has died or lost the lock. It may still be charged, so nobody charges
//!    before the provider has told what became of it, and it can tell only when enough time has passed.
//! 5. The intent is recorded. From here on the order can't be charged by anybody who doesn't pass by 4.
//! 6. The lease and the clock are checked, and the provider is asked for the charge. It may take longer than the ttl: the lease is
//!    renewed.
//! 7. The outcome is recorded, and then the answer.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use axum::http::StatusCode;
use distlock::{FencingToken, Lease, distributed_lock};
use serde_json::json;

use crate::app::App;
use crate::config::SENDING_MARGIN;
use crate::error::Error;
use crate::idempotency::{self, Answer, Claim, Claimed};
use crate::provider::Charged;
use crate::store::Order;

/// What a customer sends.
#[derive(Clone, Debug)]
pub struct Payment {
    /// The order.
    pub order: String,
    /// The header `Idempotency-Key`: the customer's name for this payment.
    pub key: String,
    /// All that makes it the same request when it comes again: path and body.
    pub request: String,
    /// What the customer agreed to pay, if that was said.
    pub amount: Option<i64>,
}

/// That an order is paid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The order.
    pub order: String,
    /// The provider's name for the charge.
    pub charge: String,
}

impl Receipt {
    fn into_answer(self) -> Answer {
        let body = json!({ "order": self.order, "charge": self.charge });
        Answer { status: StatusCode::OK.as_u16(), body, is_repeated: false }
    }
}

/// What a body under the lock has of it.
struct Held {
    lease: Lease,
    token: FencingToken,
}

/// The claim of a payment's idempotency key. It is kept outside of the body, which a loss of the lock stops where it awaits.
#[derive(Default)]
struct OurClaim(Mutex<Option<Claimed>>);

impl OurClaim {
    fn set(&self, claim: Option<Claimed>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = claim;
    }

    fn get(&self) -> Option<Claimed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Without an answer for good a repeat may try again. What the customer should hear is why, not what becomes of the key.
    async fn give_back(&self, app: &App) {
        let Some(claim) = self.get() else { return };
        match tokio::time::timeout(app.store.patience(), claim.give_back(&app.store)).await {
            Ok(Ok(())) => self.set(None),
            Ok(Err(error)) => tracing::warn!(%error, "an idempotency key stays claimed"),
            Err(_) => tracing::warn!("an idempotency key stays claimed: the database hangs"),
        }
    }
}

/// Pays an order.
///
/// # Errors
///
/// See the table in the README: after most of them, the same request may be sent again.
///
/// # Cancel safety
///
/// Nothing is charged twice if the future is dropped, but the order is then settled only after a while. So the service runs
/// it in a task, which a customer who hangs up does not end.
pub async fn pay(app: &App, payment: &Payment) -> Result<Answer, Error> {
    let claim = OurClaim::default();
    let outcome = app.in_time(pay_in_line(app, payment, &claim)).await;
    if outcome.is_err() {
        // The body could not, if a loss or the time-out has stopped it. Nobody is at this payment any more.
        claim.give_back(app).await;
    }
    outcome
}

async fn pay_in_line(app: &App, payment: &Payment, claim: &OurClaim) -> Result<Answer, Error> {
    // Repeats of an answered request need no lock.
    if app.config.idempotency.is_on()
        && let Some(answer) = idempotency::answered(&app.store, &payment.key, &payment.request).await?
    {
        return Ok(answer);
    }
    if app.config.lock.is_on() {
        pay_locked(app, payment, claim).await
    } else {
        pay_claimed(app, payment, claim, None).await
    }
}

/// The first line of defence: one payment of an order at a time. The ttl is shorter than the provider may take; what it
/// bounds is how long others wait after a crash.
#[distributed_lock(
    key = "order:<payment.order>",
    ttl = app.config.ttl,
    wait = app.config.wait,
    max_hold = app.max_hold(),
    lease = lease,
    fencing_token = token,
    manager = app.locks.clone()
)]
async fn pay_locked(app: &App, payment: &Payment, claim: &OurClaim) -> Result<Answer, Error> {
    pay_claimed(app, payment, claim, Some(Held { lease, token })).await
}

/// The second line: one request for each key, and one answer.
async fn pay_claimed(app: &App, payment: &Payment, ours: &OurClaim, held: Option<Held>) -> Result<Answer, Error> {
    if !app.config.idempotency.is_on() {
        return pay_once(app, payment, held).await.map(Receipt::into_answer);
    }
    let stale = app.config.settle_after();
    let claim = match idempotency::claim(&app.store, &payment.key, &payment.request, stale).await? {
        Claim::Answered(answer) => return Ok(answer),
        Claim::Ours(claim) => claim,
    };
    ours.set(Some(claim.clone()));
    match pay_once(app, payment, held).await {
        Ok(receipt) => {
            let answer = receipt.into_answer();
            claim.answer(&app.store, &answer).await?;
            Ok(answer)
        }
        Err(why) => {
            // Before the lock is free: who stands in line may have the same key.
            ours.give_back(app).await;
            Err(why)
        }
    }
}

/// The third line: every `UPDATE` compares the fencing token.
async fn pay_once(app: &App, payment: &Payment, held: Option<Held>) -> Result<Receipt, Error> {
    let fence = held.as_ref().map(|held| held.token).filter(|_| app.config.fencing.is_on());
    let key = app.config.idempotency.is_on().then_some(&*payment.key);

    let order = app.store.enter_order(&payment.order, fence).await?;
    if payment.amount.is_some_and(|amount| amount != order.amount) {
        return Err(Error::Invalid("the amount is not the order's"));
    }
    if let Some(charge) = settled(app, &order, fence).await? {
        let is_ours = key.is_some() && key == order.asked_with.as_deref();
        let receipt = Receipt { order: order.id, charge };
        return if is_ours { Ok(receipt) } else { Err(Error::AlreadyPaid(receipt)) };
    }

    let begin = Instant::now();
    // What the second and the third line go by. The lock alone has no memory: of a holder that died, or was late, nothing is left.
    if key.is_some() || fence.is_some() {
        app.store.record_intent(&order.id, fence, key).await?;
    }
    // The last thing before the request: whoever settles the intent counts from its record, and not from when it was sent.
    if let Some(held) = &held {
        held.lease.ensure_held()?;
    }
    if begin.elapsed() > SENDING_MARGIN {
        return Err(delayed(app, &order, fence).await);
    }
    charge(app, order, fence).await
}

async fn delayed(app: &App, order: &Order, fence: Option<FencingToken>) -> Error {
    // Without a token it may be the intent of somebody who came later, so it stays and is settled.
    if fence.is_some()
        && let Err(why) = app.store.withdraw_intent(&order.id, fence).await
    {
        return why;
    }
    Error::Delayed
}

async fn charge(app: &App, order: Order, fence: Option<FencingToken>) -> Result<Receipt, Error> {
    let asked = Instant::now();
    match app.provider.charge(&order.id, order.amount).await {
        Charged::Yes(charge) => {
            app.store.record_charge(&order.id, fence, &charge).await?;
            Ok(Receipt { order: order.id, charge })
        }
        Charged::No(why) => {
            app.store.withdraw_intent(&order.id, fence).await?;
            Err(Error::NotCharged(why))
        }
        // The intent stays: whoever comes next settles it.
        Charged::Unknown(why) => {
            Err(Error::NoAnswer { why, remaining: app.config.settle_after().saturating_sub(asked.elapsed()) })
        }
    }
}

/// The charge of an order that is paid, or none if it is certain that there is none.
///
/// An intent without an outcome is settled by asking the provider for the charges of the order. Before the time that a
/// request may take there, its list proves nothing, and the caller has to come back.
async fn settled(app: &App, order: &Order, fence: Option<FencingToken>) -> Result<Option<String>, Error> {
    if let Some(charge) = &order.charge {
        return Ok(Some(charge.clone()));
    }
    let Some(asked_ago) = order.asked_ago else {
        return Ok(None);
    };
    let remaining = app.config.settle_after().saturating_sub(asked_ago);
    if !remaining.is_zero() {
        return Err(Error::Unsettled { remaining });
    }
    let charges = app.provider.charges_for(&order.id).await?;
    metrics::counter!("payments_settled_total", "charged" => if charges.is_empty() { "no" } else { "yes" })
        .increment(1);
    let Some(first) = charges.into_iter().next() else {
        app.store.withdraw_intent(&order.id, fence).await?;
        return Ok(None);
    };
    tracing::warn!(order = order.id, charge = first.charge, "found the charge of a payment without an outcome");
    app.store.record_charge(&order.id, fence, &first.charge).await?;
    Ok(Some(first.charge))
}

/// Settles an order whose payment has no outcome, for the reconciliation. Says whether it was, and is, settled.
///
/// # Errors
///
/// [`Error::Unsettled`] while it is too early, and those of the lock, the database and the provider.
#[distributed_lock(
    key = "order:<id>",
    ttl = app.config.ttl,
    wait = app.config.wait,
    max_hold = app.max_hold(),
    fencing_token = token,
    manager = app.locks.clone()
)]
pub async fn settle(app: &App, id: &str) -> Result<bool, Error> {
    let fence = Some(token).filter(|_| app.config.fencing.is_on());
    let order = app.store.enter_order(id, fence).await?;
    settled(app, &order, fence).await?;
    Ok(order.asked_ago.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library judges the lease before every poll of a body; this is about what comes after, in the same poll.
    #[tokio::test]
    async fn nothing_is_sent_under_a_lease_that_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let app = App::in_folder(&folder).await;
        let order = app.store.add_order(1_200).await.unwrap();
        let guard = app.locks.lock("over").fencing_token(true).acquire().await.unwrap();
        let held = Held { lease: guard.lease().clone(), token: guard.lease().fencing_token().unwrap() };
        guard.release().await.unwrap();

        let payment = Payment { order, key: "key".to_owned(), request: String::new(), amount: None };
        // Whoever sends is told that there is no provider.
        let outcome = pay_once(&app, &payment, Some(held)).await;
        assert!(matches!(outcome, Err(Error::Lock(_))), "{outcome:?}");
    }

    #[tokio::test]
    async fn who_settles_makes_earlier_holders_late() {
        let folder = tempfile::tempdir().unwrap();
        let app = App::in_folder(&folder).await;
        let order = app.store.add_order(1_200).await.unwrap();
        assert!(!settle(&app, &order).await.unwrap(), "there was nothing to settle");
        let late = app.store.enter_order(&order, FencingToken::new(1)).await;
        assert!(matches!(late, Err(Error::Late)), "{late:?}");
    }
}
