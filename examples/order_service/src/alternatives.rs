//! The same reservation of stock without a lock, three times and once more. When to prefer which stands in the README.
//!
//! Each returns how many pieces are left, or [`Error::NotEnough`].

use redis::Script;
use redis::aio::MultiplexedConnection;
use sqlx::Row;

use crate::error::Error;
use crate::store::Store;

/// Optimistic: nobody waits, and who finds that somebody was faster begins again.
///
/// # Errors
///
/// [`Error::NotEnough`], [`Error::NotFound`] and those of the database.
pub async fn by_version(store: &Store, sku: &str, count: i64) -> Result<i64, Error> {
    loop {
        let read = sqlx::query("SELECT count, version FROM stock WHERE sku = $1").bind(sku);
        let row = read.fetch_optional(&store.pool).await?.ok_or(Error::NotFound("stock"))?;
        let (there, version): (i64, i64) = (row.try_get("count")?, row.try_get("version")?);
        if there < count {
            return Err(Error::NotEnough("stock"));
        }
        let update = "UPDATE stock SET count = $3, version = version + 1 WHERE sku = $1 AND version = $2";
        let update = sqlx::query(update).bind(sku).bind(version).bind(there - count);
        if update.execute(&store.pool).await?.rows_affected() == 1 {
            return Ok(there - count);
        }
    }
}

/// Pessimistic, in the database: the row is locked until the transaction ends.
///
/// # Errors
///
/// [`Error::NotEnough`], [`Error::NotFound`] and those of the database.
pub async fn by_row_lock(store: &Store, sku: &str, count: i64) -> Result<i64, Error> {
    let mut transaction = store.begin().await?;
    let select = format!("SELECT count FROM stock WHERE sku = $1 {}", store.for_update());
    let there: Option<i64> = sqlx::query_scalar(&select).bind(sku).fetch_optional(&mut *transaction).await?;
    let left = there.ok_or(Error::NotFound("stock"))? - count;
    if left < 0 {
        return Err(Error::NotEnough("stock"));
    }
    let update = sqlx::query("UPDATE stock SET count = $2 WHERE sku = $1").bind(sku).bind(left);
    update.execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(left)
}

/// One statement that checks and writes: where it can be said so, nothing is simpler.
///
/// # Errors
///
/// [`Error::NotEnough`], [`Error::NotFound`] and those of the database.
pub async fn by_statement(store: &Store, sku: &str, count: i64) -> Result<i64, Error> {
    let update = "UPDATE stock SET count = count - $2 WHERE sku = $1 AND count >= $2 RETURNING count";
    let rows = sqlx::query(update).bind(sku).bind(count).fetch_all(&store.pool).await?;
    match rows.first() {
        Some(row) => Ok(row.try_get(0)?),
        None => store.stock(sku).await.and(Err(Error::NotEnough("stock"))),
    }
}

/// Redis runs a script alone: it checks and decrements in one step, where the stock itself is kept there.
const TAKE: &str = r"
-- KEYS[1]: how many pieces there are. ARGV[1]: how many to take. Returns how many are left, or -1 where there are fewer.
if tonumber(redis.call('GET', KEYS[1]) or 0) < tonumber(ARGV[1]) then return -1 end
return redis.call('DECRBY', KEYS[1], ARGV[1])";

/// One script on Redis that checks and decrements.
///
/// # Errors
///
/// [`Error::NotEnough`] and those of Redis.
pub async fn by_script(redis: &MultiplexedConnection, sku: &str, count: i64) -> Result<i64, Error> {
    let script = Script::new(TAKE);
    let left: i64 = script.key(stock_key(sku)).arg(count).invoke_async(&mut redis.clone()).await?;
    if left < 0 { Err(Error::NotEnough("stock")) } else { Ok(left) }
}

/// The key on Redis under which [`by_script`] finds the stock.
pub fn stock_key(sku: &str) -> String {
    format!("stock-count:{sku}")
}
