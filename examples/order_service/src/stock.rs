//! Stock that is reserved under a lock. How else it can be done stands in [`alternatives`](crate::alternatives).

use distlock::{FencingToken, distributed_lock};
use sqlx::Row;

use crate::app::App;
use crate::error::Error;
use crate::store::{NOT_LATE, RAISE_FENCE, Store, number, taken};

/// Takes `count` pieces out of the stock, and says how many are left.
///
/// # Errors
///
/// [`Error::NotEnough`] where there are fewer, [`Error::NotFound`], those of the lock and of the database.
pub async fn reserve(app: &App, sku: &str, count: i64) -> Result<i64, Error> {
    if count <= 0 {
        return Err(Error::Invalid("one piece is the least to reserve"));
    }
    if app.config.lock.is_on() { reserve_locked(app, sku, count).await } else { take(app, sku, count, None).await }
}

#[distributed_lock(
    key = "stock:<sku>",
    ttl = app.config.ttl,
    wait = app.config.wait,
    max_hold = app.max_hold(),
    fencing_token = token,
    manager = app.locks.clone()
)]
async fn reserve_locked(app: &App, sku: &str, count: i64) -> Result<i64, Error> {
    take(app, sku, count, Some(token).filter(|_| app.config.fencing.is_on())).await
}

async fn take(app: &App, sku: &str, count: i64, fence: Option<FencingToken>) -> Result<i64, Error> {
    let left = app.store.enter_stock(sku, fence).await? - count;
    if left < 0 {
        return Err(Error::NotEnough("stock"));
    }
    app.store.write_stock(sku, left, fence).await?;
    Ok(left)
}

/// Says how many pieces there are of something, which may be new.
///
/// Under the same lock: between what a reservation reads and what it writes, a new number would be lost.
///
/// # Errors
///
/// Those of the lock and of the database.
pub async fn set(app: &App, sku: &str, count: i64) -> Result<(), Error> {
    if count < 0 {
        return Err(Error::Invalid("there are no fewer than no pieces"));
    }
    if app.config.lock.is_on() {
        set_locked(app, sku, count).await
    } else {
        app.store.set_stock(sku, count, None).await
    }
}

#[distributed_lock(
    key = "stock:<sku>",
    ttl = app.config.ttl,
    wait = app.config.wait,
    max_hold = app.max_hold(),
    fencing_token = token,
    manager = app.locks.clone()
)]
async fn set_locked(app: &App, sku: &str, count: i64) -> Result<(), Error> {
    app.store.set_stock(sku, count, Some(token).filter(|_| app.config.fencing.is_on())).await
}

impl Store {
    /// Says how many pieces there are, and raises the fence: a reservation that is late must not undo it.
    ///
    /// # Errors
    ///
    /// [`Error::Late`] where a later holder has been here.
    pub async fn set_stock(&self, sku: &str, count: i64, fence: Option<FencingToken>) -> Result<(), Error> {
        let upsert = "INSERT INTO stock (sku, fence, count) VALUES ($1, $2, $3)
                      ON CONFLICT (sku) DO UPDATE SET count = excluded.count, version = stock.version + 1,
                      fence = CASE WHEN $2 = 0 THEN stock.fence ELSE $2 END WHERE $2 = 0 OR stock.fence <= $2";
        let upsert = sqlx::query(upsert).bind(sku).bind(number(fence)).bind(count);
        taken(upsert.execute(&self.pool).await?.rows_affected())
    }

    /// How many pieces there are, without saying who looks.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] where there is no such thing.
    pub async fn stock(&self, sku: &str) -> Result<i64, Error> {
        let select = sqlx::query_scalar("SELECT count FROM stock WHERE sku = $1").bind(sku);
        select.fetch_optional(&self.pool).await?.ok_or(Error::NotFound("stock"))
    }

    /// The same for the holder of its lock: see [`Store::enter_order`].
    ///
    /// # Errors
    ///
    /// [`Error::Late`] where a later holder has been here, [`Error::NotFound`] where there is no such thing.
    pub async fn enter_stock(&self, sku: &str, fence: Option<FencingToken>) -> Result<i64, Error> {
        let update = format!("UPDATE stock SET {RAISE_FENCE} WHERE sku = $1 AND {NOT_LATE} RETURNING count");
        let rows = sqlx::query(&update).bind(sku).bind(number(fence)).fetch_all(&self.pool).await?;
        match rows.first() {
            Some(row) => Ok(row.try_get(0)?),
            None => self.stock(sku).await.and(Err(Error::Late)),
        }
    }

    /// Writes what is left after a reservation.
    ///
    /// # Errors
    ///
    /// [`Error::Late`] where a later holder has been here.
    pub async fn write_stock(&self, sku: &str, count: i64, fence: Option<FencingToken>) -> Result<(), Error> {
        let update = format!("UPDATE stock SET count = $3 WHERE sku = $1 AND {NOT_LATE}");
        let update = sqlx::query(&update).bind(sku).bind(number(fence)).bind(count);
        taken(update.execute(&self.pool).await?.rows_affected())
    }
}
