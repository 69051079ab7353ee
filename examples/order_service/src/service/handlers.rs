//! Each route in a few lines: what is asked is read, and what comes of it is told.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::app::App;
use crate::error::Error;
use crate::idempotency::Answer;
use crate::pay::{self, Payment};
use crate::reconcile::{self, Report};
use crate::transfer::{self, Transfer};
use crate::{observe, stock};

type Shared = State<Arc<App>>;
type Told = Result<Json<Value>, Error>;
type Made = Result<(StatusCode, Json<Value>), Error>;

#[derive(Deserialize)]
pub(super) struct NewOrder {
    amount: i64,
}

#[derive(Serialize)]
pub(super) struct OrderView {
    id: String,
    amount: i64,
    status: &'static str,
    charge: Option<String>,
    fence: i64,
}

#[derive(Deserialize)]
pub(super) struct NewAccount {
    balance: i64,
}

#[derive(Deserialize)]
pub(super) struct NewTransfer {
    from: String,
    to: String,
    amount: i64,
}

#[derive(Deserialize)]
pub(super) struct NewStock {
    sku: String,
    count: i64,
}

#[derive(Deserialize)]
pub(super) struct Reservation {
    count: i64,
}

/// What may stand in the body of a payment.
#[derive(Deserialize)]
struct Agreed {
    amount: i64,
}

pub(super) async fn add_order(State(app): Shared, Json(order): Json<NewOrder>) -> Made {
    if order.amount <= 0 {
        return Err(Error::Invalid("an order has a positive amount"));
    }
    Ok((StatusCode::CREATED, Json(json!({ "id": app.store.add_order(order.amount).await? }))))
}

pub(super) async fn order(State(app): Shared, Path(id): Path<String>) -> Result<Json<OrderView>, Error> {
    let order = app.store.order(&id).await?;
    let status = if order.charge.is_some() { "paid" } else { "open" };
    Ok(Json(OrderView { id, amount: order.amount, status, charge: order.charge, fence: order.fence }))
}

pub(super) async fn pay(
    State(app): Shared,
    Path(order): Path<String>,
    headers: HeaderMap,
    body: String,
) -> Result<Answer, Error> {
    let key = idempotency_key(&headers)?.ok_or(Error::KeyMissing)?;
    let amount = match body.trim() {
        "" => None,
        body => {
            let agreed: Agreed = serde_json::from_str(body).map_err(|_| Error::Invalid("the body is no payment"))?;
            Some(agreed.amount)
        }
    };
    let request = format!("POST /orders/{order}/pay {body}");
    let payment = Payment { order, key, request, amount };
    // A customer who hangs up drops this handler. The payment goes on, or it would have to be settled later.
    let at_work = tokio::spawn(async move { pay::pay(&app, &payment).await });
    let outcome = at_work.await.unwrap_or(Err(Error::Stopped));
    observe::note_payment(&outcome);
    outcome
}

pub(super) async fn add_account(State(app): Shared, Json(account): Json<NewAccount>) -> Made {
    if account.balance < 0 {
        return Err(Error::Invalid("an account begins with no debt"));
    }
    Ok((StatusCode::CREATED, Json(json!({ "id": app.store.add_account(account.balance).await? }))))
}

pub(super) async fn account(State(app): Shared, Path(id): Path<String>) -> Told {
    let balance = app.store.balance(&id).await?;
    Ok(Json(json!({ "id": id, "balance": balance })))
}

pub(super) async fn transfer(
    State(app): Shared,
    headers: HeaderMap,
    Json(new): Json<NewTransfer>,
) -> Result<Answer, Error> {
    let key = idempotency_key(&headers)?;
    transfer::transfer(&app, &Transfer { from: new.from, to: new.to, amount: new.amount, key }).await
}

pub(super) async fn set_stock(State(app): Shared, Json(stock): Json<NewStock>) -> Made {
    stock::set(&app, &stock.sku, stock.count).await?;
    Ok((StatusCode::CREATED, Json(json!({ "sku": stock.sku, "count": stock.count }))))
}

pub(super) async fn stock(State(app): Shared, Path(sku): Path<String>) -> Told {
    let count = app.store.stock(&sku).await?;
    Ok(Json(json!({ "sku": sku, "count": count })))
}

pub(super) async fn reserve(State(app): Shared, Path(sku): Path<String>, Json(reservation): Json<Reservation>) -> Told {
    let left = stock::reserve(&app, &sku, reservation.count).await?;
    Ok(Json(json!({ "sku": sku, "left": left })))
}

/// The nightly job by hand, however long ago it was done.
pub(super) async fn reconcile(State(app): Shared) -> Result<Json<Report>, Error> {
    reconcile::reconcile(&app, Duration::ZERO).await.map(Json)
}

/// Of this instance and its database. The locks are not asked: reading goes on without them, and a restart brings none back.
pub(super) async fn health(State(app): Shared) -> Told {
    app.store.ping().await?;
    Ok(Json(json!({ "status": "ok" })))
}

/// One that can't be read is not as good as none: its sender relies on it.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Error> {
    let Some(key) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let key = key.to_str().ok().filter(|key| (1..=255).contains(&key.len()));
    key.map(|key| Some(key.to_owned())).ok_or(Error::Invalid("an idempotency key is 1 to 255 visible ASCII characters"))
}
