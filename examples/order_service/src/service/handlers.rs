//! Each route in a few lines: what is asked is read, and what comes of it is told.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::read::{Body, Id, Name, Text, idempotency_key};
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
    from: Name,
    to: Name,
    amount: i64,
}

#[derive(Deserialize)]
pub(super) struct NewStock {
    sku: Name,
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

pub(super) async fn add_order(State(app): Shared, Body(order): Body<NewOrder>) -> Made {
    if order.amount <= 0 {
        return Err(Error::Invalid("an order has a positive amount"));
    }
    Ok((StatusCode::CREATED, Json(json!({ "id": app.store.add_order(order.amount).await? }))))
}

pub(super) async fn order(State(app): Shared, Id(id): Id) -> Result<Json<OrderView>, Error> {
    let order = app.store.order(&id).await?;
    let status = if order.charge.is_some() { "paid" } else { "open" };
    Ok(Json(OrderView { id, amount: order.amount, status, charge: order.charge, fence: order.fence }))
}

pub(super) async fn pay(
    State(app): Shared,
    Id(order): Id,
    headers: HeaderMap,
    Text(body): Text,
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
    // A customer who hangs up drops this handler. The payment goes on and is counted, or it would have to be settled later.
    let at_work = tokio::spawn(async move {
        let outcome = pay::pay(&app, &payment).await;
        observe::note_payment(&outcome);
        outcome
    });
    at_work.await.unwrap_or_else(|_| {
        let outcome = Err(Error::Stopped);
        observe::note_payment(&outcome);
        outcome
    })
}

pub(super) async fn add_account(State(app): Shared, Body(account): Body<NewAccount>) -> Made {
    if account.balance < 0 {
        return Err(Error::Invalid("an account begins with no debt"));
    }
    Ok((StatusCode::CREATED, Json(json!({ "id": app.store.add_account(account.balance).await? }))))
}

pub(super) async fn account(State(app): Shared, Id(id): Id) -> Told {
    let balance = app.store.balance(&id).await?;
    Ok(Json(json!({ "id": id, "balance": balance })))
}

pub(super) async fn transfer(
    State(app): Shared,
    headers: HeaderMap,
    Body(new): Body<NewTransfer>,
) -> Result<Answer, Error> {
    let key = idempotency_key(&headers)?;
    transfer::transfer(&app, &Transfer { from: new.from.0, to: new.to.0, amount: new.amount, key }).await
}

pub(super) async fn set_stock(State(app): Shared, Body(stock): Body<NewStock>) -> Made {
    let NewStock { sku: Name(sku), count } = stock;
    stock::set(&app, &sku, count).await?;
    Ok((StatusCode::CREATED, Json(json!({ "sku": sku, "count": count }))))
}

pub(super) async fn stock(State(app): Shared, Id(sku): Id) -> Told {
    let count = app.store.stock(&sku).await?;
    Ok(Json(json!({ "sku": sku, "count": count })))
}

pub(super) async fn reserve(State(app): Shared, Id(sku): Id, Body(reservation): Body<Reservation>) -> Told {
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
