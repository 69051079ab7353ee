//! A transfer between two accounts: two locks, all or none, in one order for everybody.
//!
//! Within one database a transaction that locks both rows would do; the locks are what is left if the two accounts were
//! in two stores.

use distlock::{FencingToken, Lease, distributed_lock};
use sqlx::Row;

use crate::app::App;
use crate::error::Error;
use crate::store::{NOT_LATE, RAISE_FENCE, Store, number};

/// Who gives how much to whom.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The account that pays.
    pub from: String,
    /// The account that gets it.
    pub to: String,
    /// In cents.
    pub amount: i64,
}

/// Moves money. Nothing is moved where there is an error, except that after [`Error::Lock`] with a lost lock one has to look.
///
/// # Errors
///
/// [`Error::NotEnough`], [`Error::NotFound`], those of the lock and of the database.
pub async fn transfer(app: &App, transfer: &Transfer) -> Result<(), Error> {
    if transfer.from == transfer.to || transfer.amount <= 0 {
        return Err(Error::Invalid("a transfer has two accounts and a positive amount"));
    }
    if app.config.lock.is_on() { transfer_locked(app, transfer).await } else { book(app, transfer, None).await }
}

#[distributed_lock(
    keys = ["account:<transfer.from>", "account:<transfer.to>"],
    ttl = app.config.ttl,
    wait = app.config.wait,
    lease = lease,
    fencing_token = token,
    manager = app.locks.clone()
)]
async fn transfer_locked(app: &App, transfer: &Transfer) -> Result<(), Error> {
    book(app, transfer, Some((lease, token))).await
}

async fn book(app: &App, transfer: &Transfer, held: Option<(Lease, FencingToken)>) -> Result<(), Error> {
    let Transfer { from, to, amount } = transfer;
    let fence = held.as_ref().map(|(_, token)| *token).filter(|_| app.config.fencing.is_on());
    let from_balance = app.store.enter_account(from, fence).await?;
    let to_balance = app.store.enter_account(to, fence).await?;
    let left = from_balance.checked_sub(*amount).filter(|left| *left >= 0).ok_or(Error::NotEnough("money"))?;
    let sum = to_balance.checked_add(*amount).ok_or(Error::Invalid("no account holds so much"))?;

    let mut transaction = app.store.pool.begin().await?;
    for (account, balance) in [(from, left), (to, sum)] {
        let update = format!("UPDATE accounts SET balance = $3 WHERE id = $1 AND {NOT_LATE}");
        let update = sqlx::query(&update).bind(account).bind(number(fence)).bind(balance);
        if update.execute(&mut *transaction).await?.rows_affected() == 0 {
            return Err(Error::Late);
        }
    }
    if let Some((lease, _)) = &held {
        lease.ensure_held()?;
    }
    Ok(transaction.commit().await?)
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
    async fn enter_account(&self, id: &str, fence: Option<FencingToken>) -> Result<i64, Error> {
        let update = format!("UPDATE accounts SET {RAISE_FENCE} WHERE id = $1 AND {NOT_LATE} RETURNING balance");
        let rows = sqlx::query(&update).bind(id).bind(number(fence)).fetch_all(&self.pool).await?;
        match rows.first() {
            Some(row) => Ok(row.try_get(0)?),
            None => self.balance(id).await.and(Err(Error::Late)),
        }
    }
}
