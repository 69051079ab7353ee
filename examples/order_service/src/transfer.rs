//! A transfer between two accounts: two locks, all or none, in one order for everybody.
//!
//! Within one database a transaction that locks both rows would do; the locks are what is left if the two accounts were
//! in two stores.

use distlock::{FencingToken, Lease, distributed_lock};
use serde_json::json;
use sqlx::{AnyConnection, Row};

use crate::app::App;
use crate::error::Error;
use crate::idempotency::{self, Answer};
use crate::store::{NOT_LATE, RAISE_FENCE, Store, number, taken};

/// Who gives how much to whom.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The account that pays.
    pub from: String,
    /// The account that gets it.
    pub to: String,
    /// In cents.
    pub amount: i64,
    /// The header `Idempotency-Key`, if there is one: what is sent again with it is not moved again.
    pub key: Option<String>,
}

impl Transfer {
    fn answer(&self) -> Answer {
        let body = json!({ "from": self.from, "to": self.to, "amount": self.amount });
        Answer { status: 200, body, is_repeated: false }
    }

    /// The key, and all that makes it the same request when it comes again.
    fn identity(&self, app: &App) -> Option<(&str, String)> {
        let key = self.key.as_deref().filter(|_| app.config.idempotency.is_on())?;
        Some((key, format!("POST /transfers {}", self.answer().body)))
    }
}

/// Moves money. Nothing is moved where there is an error, except that after [`Error::Lock`] with a lost lock one has to look, or
/// to send it again with the same key.
///
/// # Errors
///
/// [`Error::NotEnough`], [`Error::NotFound`], [`Error::KeyReused`], those of the lock and of the database.
pub async fn transfer(app: &App, transfer: &Transfer) -> Result<Answer, Error> {
    if transfer.from == transfer.to || transfer.amount <= 0 {
        return Err(Error::Invalid("a transfer has two accounts and a positive amount"));
    }
    if app.config.lock.is_on() { transfer_locked(app, transfer).await } else { book(app, transfer, None).await }
}

#[distributed_lock(
    keys = ["account:<transfer.from>", "account:<transfer.to>"],
    ttl = app.config.ttl,
    wait = app.config.wait,
    max_hold = app.max_hold(),
    lease = lease,
    fencing_token = token,
    manager = app.locks.clone()
)]
async fn transfer_locked(app: &App, transfer: &Transfer) -> Result<Answer, Error> {
    book(app, transfer, Some((lease, token))).await
}

/// The money and the answer are stored in one transaction, so that a transfer is never half done: unlike a payment, which happens
/// elsewhere, it leaves nothing to settle.
async fn book(app: &App, transfer: &Transfer, held: Option<(Lease, FencingToken)>) -> Result<Answer, Error> {
    let identity = transfer.identity(app);
    if let Some((key, request)) = &identity
        && let Some(answer) = idempotency::answered(&app.store, key, request).await?
    {
        return Ok(answer);
    }
    let Transfer { from, to, amount, .. } = transfer;
    let fence = held.as_ref().map(|(_, token)| *token).filter(|_| app.config.fencing.is_on());
    let from_balance = app.store.enter_account(from, fence).await?;
    let to_balance = app.store.enter_account(to, fence).await?;
    let left = from_balance.checked_sub(*amount).filter(|left| *left >= 0).ok_or(Error::NotEnough("money"))?;
    let sum = to_balance.checked_add(*amount).ok_or(Error::Invalid("no account holds so much"))?;

    let answer = transfer.answer();
    let mut transaction = app.store.pool.begin().await?;
    for (account, balance) in [(from, left), (to, sum)] {
        write_balance(&mut transaction, account, balance, fence).await?;
    }
    if let Some((key, request)) = &identity
        && !idempotency::answer_with(&mut transaction, app.store.now(), (key, request), &answer).await?
    {
        return Err(Error::InProgress);
    }
    if let Some((lease, _)) = &held {
        lease.ensure_held()?;
    }
    transaction.commit().await?;
    Ok(answer)
}

/// Writes a balance that was read by who holds the lock.
///
/// # Errors
///
/// [`Error::Late`] where a later holder has been here.
pub async fn write_balance(
    connection: &mut AnyConnection,
    account: &str,
    balance: i64,
    fence: Option<FencingToken>,
) -> Result<(), Error> {
    let update = format!("UPDATE accounts SET balance = $3 WHERE id = $1 AND {NOT_LATE}");
    let update = sqlx::query(&update).bind(account).bind(number(fence)).bind(balance);
    taken(update.execute(connection).await?.rows_affected())
}

impl Store {
    /// Adds an account, and returns its name.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub async fn add_account(&self, balance: i64) -> sqlx::Result<String> {
        let id = uuid::Uuid::new_v4().to_string();
        let insert = sqlx::query("INSERT INTO accounts (id, balance) VALUES ($1, $2)").bind(&id).bind(balance);
        insert.execute(&self.pool).await?;
        Ok(id)
    }

    /// An account's balance, without saying who reads.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] where there is none.
    pub async fn balance(&self, id: &str) -> Result<i64, Error> {
        let select = sqlx::query_scalar("SELECT balance FROM accounts WHERE id = $1").bind(id);
        select.fetch_optional(&self.pool).await?.ok_or(Error::NotFound("account"))
    }

    /// An account's balance, for the holder of its lock: see [`Store::enter_order`].
    ///
    /// # Errors
    ///
    /// [`Error::Late`] where a later holder has been here, [`Error::NotFound`] where there is none.
    pub async fn enter_account(&self, id: &str, fence: Option<FencingToken>) -> Result<i64, Error> {
        let update = format!("UPDATE accounts SET {RAISE_FENCE} WHERE id = $1 AND {NOT_LATE} RETURNING balance");
        let rows = sqlx::query(&update).bind(id).bind(number(fence)).fetch_all(&self.pool).await?;
        match rows.first() {
            Some(row) => Ok(row.try_get(0)?),
            None => self.balance(id).await.and(Err(Error::Late)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library judges the lease before every poll of a body; this is about what comes after, in the same poll.
    #[tokio::test]
    async fn money_is_not_moved_under_a_lease_that_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let app = App::in_folder(&folder).await;
        let (from, to) = (app.store.add_account(10).await.unwrap(), app.store.add_account(0).await.unwrap());
        let guard = app.locks.lock("over").fencing_token(true).acquire().await.unwrap();
        let (lease, token) = (guard.lease().clone(), guard.lease().fencing_token().unwrap());
        guard.release().await.unwrap();

        let transfer = Transfer { from, to, amount: 1, key: None };
        let outcome = book(&app, &transfer, Some((lease, token))).await;
        assert!(matches!(outcome, Err(Error::Lock(_))), "{outcome:?}");
        assert_eq!(app.store.balance(&transfer.to).await.unwrap(), 0);
    }
}
