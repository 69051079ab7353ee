//! Orders, and what is known of their payment.

use std::time::Duration;

use distlock::FencingToken;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::{NOT_LATE, RAISE_FENCE, Store, millis, number, taken};
use crate::error::Error;

/// An order, as it was read.
#[derive(Clone, Debug)]
pub struct Order {
    /// Its name.
    pub id: String,
    /// What is to be paid, in cents.
    pub amount: i64,
    /// The charge that has paid it.
    pub charge: Option<String>,
    /// Since when the provider is asked for a charge, without an outcome.
    pub asked_ago: Option<Duration>,
    /// The idempotency key of the payment that asked.
    pub asked_with: Option<String>,
    /// The fencing token of the last holder of the order's lock.
    pub fence: i64,
}

impl Store {
    /// Adds an order, and returns its name.
    ///
    /// # Errors
    ///
    /// Those of the database, as everywhere here.
    pub async fn add_order(&self, amount: i64) -> sqlx::Result<String> {
        let id = uuid::Uuid::new_v4().to_string();
        let insert = sqlx::query("INSERT INTO orders (id, amount) VALUES ($1, $2)").bind(&id).bind(amount);
        insert.execute(&self.pool).await?;
        Ok(id)
    }

    /// Reads an order, without saying who does.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] where there is none.
    pub async fn order(&self, id: &str) -> Result<Order, Error> {
        let select = format!("SELECT {} FROM orders WHERE id = $1", self.columns());
        let row = sqlx::query(&select).bind(id).fetch_optional(&self.pool).await?;
        Ok(order(&row.ok_or(Error::NotFound("order"))?)?)
    }

    /// Reads an order as the holder of its lock, and raises its fence: what holders before this one have written is in what is
    /// read, and what they would write from now on is refused. Reading alone would leave a gap between the two.
    ///
    /// # Errors
    ///
    /// [`Error::Late`] where a later holder has been here.
    pub async fn enter_order(&self, id: &str, fence: Option<FencingToken>) -> Result<Order, Error> {
        let columns = self.columns();
        let update = format!("UPDATE orders SET {RAISE_FENCE} WHERE id = $1 AND {NOT_LATE} RETURNING {columns}");
        // `fetch_all`, since a statement that is left at its first row may not be committed yet.
        let rows = sqlx::query(&update).bind(id).bind(number(fence)).fetch_all(&self.pool).await?;
        match rows.first() {
            Some(row) => Ok(order(row)?),
            None => self.order(id).await.and(Err(Error::Late)),
        }
    }

    /// Writes down that the provider is going to be asked, before it is.
    ///
    /// # Errors
    ///
    /// [`Error::Late`] where a later holder has been here.
    pub async fn record_intent(&self, id: &str, fence: Option<FencingToken>, key: Option<&str>) -> Result<(), Error> {
        let now = self.now();
        let update = format!("UPDATE orders SET asked_at = {now}, asked_with = $3 WHERE id = $1 AND {NOT_LATE}");
        let update = sqlx::query(&update).bind(id).bind(number(fence)).bind(key.unwrap_or_default());
        taken(update.execute(&self.pool).await?.rows_affected())
    }

    /// Writes down that the order is paid.
    ///
    /// # Errors
    ///
    /// [`Error::Late`] where a later holder has been here.
    pub async fn record_charge(&self, id: &str, fence: Option<FencingToken>, charge: &str) -> Result<(), Error> {
        let update =
            format!("UPDATE orders SET status = 'paid', charge = $3, asked_at = NULL WHERE id = $1 AND {NOT_LATE}");
        let update = sqlx::query(&update).bind(id).bind(number(fence)).bind(charge);
        taken(update.execute(&self.pool).await?.rows_affected())
    }

    /// Takes the intent back, when it is certain that there is no charge.
    ///
    /// # Errors
    ///
    /// [`Error::Late`] where a later holder has been here.
    pub async fn withdraw_intent(&self, id: &str, fence: Option<FencingToken>) -> Result<(), Error> {
        let update = format!("UPDATE orders SET asked_at = NULL, asked_with = NULL WHERE id = $1 AND {NOT_LATE}");
        let update = sqlx::query(&update).bind(id).bind(number(fence));
        taken(update.execute(&self.pool).await?.rows_affected())
    }

    /// All orders that have been paid or may have been: what the reconciliation looks at.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub async fn orders_to_reconcile(&self) -> sqlx::Result<Vec<Order>> {
        let columns = self.columns();
        let select = format!("SELECT {columns} FROM orders WHERE asked_at IS NOT NULL OR status = 'paid'");
        sqlx::query(&select).fetch_all(&self.pool).await?.iter().map(order).collect()
    }

    fn columns(&self) -> String {
        format!("id, amount, charge, {} - asked_at AS asked_ago, asked_with, fence", self.now())
    }
}

fn order(row: &AnyRow) -> sqlx::Result<Order> {
    let asked_ago: Option<i64> = row.try_get("asked_ago")?;
    Ok(Order {
        id: row.try_get("id")?,
        amount: row.try_get("amount")?,
        charge: row.try_get("charge")?,
        asked_ago: asked_ago.map(millis),
        asked_with: row.try_get("asked_with")?,
        fence: row.try_get("fence")?,
    })
}
