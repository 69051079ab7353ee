//! The database: `SQLite` in a file, or Postgres.

mod orders;

use std::time::Duration;

use distlock::FencingToken;
use sqlx::any::AnyPoolOptions;
use sqlx::{AnyPool, Executor};

use crate::error::Error;

pub use orders::Order;

/// The condition of every `UPDATE` that is made under a lock, where `$2` is the fencing token, or 0 without one: no later
/// holder has been here.
pub(crate) const NOT_LATE: &str = "($2 = 0 OR fence <= $2)";

/// What follows `SET` where a holder makes itself known: from then on, holders before it are late.
pub(crate) const RAISE_FENCE: &str = "fence = CASE WHEN $2 = 0 THEN fence ELSE $2 END";

/// The tables, and how to reach them.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) pool: AnyPool,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sqlite,
    Postgres,
}

impl Kind {
    /// How long a statement may wait for its turn: on `SQLite` long enough for a hundred requests that write into one file. Elsewhere
    /// nobody has to wait long, and who does had better be told that the database is away.
    fn patience(self) -> Duration {
        Duration::from_secs(match self {
            Kind::Sqlite => 30,
            Kind::Postgres => 5,
        })
    }
}

impl Store {
    /// Connects, and makes the tables where they are missing.
    ///
    /// # Errors
    ///
    /// Where the database is not to be had.
    pub async fn open(url: &str) -> sqlx::Result<Store> {
        sqlx::any::install_default_drivers();
        let kind = if url.starts_with("sqlite:") { Kind::Sqlite } else { Kind::Postgres };
        let url = match kind {
            // Makes the file if it is missing.
            Kind::Sqlite if !url.contains('?') => format!("{url}?mode=rwc"),
            _ => url.to_owned(),
        };
        let options = AnyPoolOptions::new().max_connections(8).acquire_timeout(kind.patience());
        let options = options.after_connect(move |connection, _| {
            Box::pin(async move {
                if kind == Kind::Sqlite {
                    let patience = format!("PRAGMA busy_timeout = {}", kind.patience().as_millis());
                    connection.execute(sqlx::raw_sql(&patience)).await?;
                }
                Ok(())
            })
        });
        let store = Store { pool: options.connect(&url).await?, kind };
        store.make_tables().await?;
        Ok(store)
    }

    /// One instance after the other, since several may start at once.
    async fn make_tables(&self) -> sqlx::Result<()> {
        let mut transaction = match self.kind {
            Kind::Sqlite => {
                // Readers don't hold up the writer then. It can't be set inside of a transaction.
                sqlx::raw_sql("PRAGMA journal_mode = WAL").execute(&self.pool).await?;
                self.pool.begin_with("BEGIN IMMEDIATE").await?
            }
            Kind::Postgres => {
                let mut transaction = self.pool.begin().await?;
                sqlx::raw_sql("SELECT pg_advisory_xact_lock(7203)").execute(&mut *transaction).await?;
                transaction
            }
        };
        sqlx::raw_sql(include_str!("schema.sql")).execute(&mut *transaction).await?;
        transaction.commit().await
    }

    /// Begins a transaction that reads and then writes: on `SQLite` it has to say so from the start, or it would find at its
    /// first write that somebody else was faster.
    pub(crate) async fn begin(&self) -> sqlx::Result<sqlx::Transaction<'static, sqlx::Any>> {
        match self.kind {
            Kind::Sqlite => self.pool.begin_with("BEGIN IMMEDIATE").await,
            Kind::Postgres => self.pool.begin().await,
        }
    }

    /// What locks the rows of a `SELECT` until the transaction ends. On `SQLite` the transaction has locked all of them.
    pub(crate) fn for_update(&self) -> &'static str {
        match self.kind {
            Kind::Sqlite => "",
            Kind::Postgres => "FOR UPDATE",
        }
    }

    /// The database's time in milliseconds, as SQL.
    pub(crate) fn now(&self) -> &'static str {
        match self.kind {
            Kind::Sqlite => "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
            Kind::Postgres => "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
        }
    }

    /// How long a statement may wait for its turn.
    pub(crate) fn patience(&self) -> Duration {
        self.kind.patience()
    }

    /// Asks for a sign of life.
    ///
    /// # Errors
    ///
    /// Where there is none soon.
    pub async fn ping(&self) -> sqlx::Result<()> {
        let ping = sqlx::query("SELECT 1").execute(&self.pool);
        tokio::time::timeout(Duration::from_secs(2), ping).await.map_err(|_| sqlx::Error::PoolTimedOut)?.map(drop)
    }
}

/// The token as a column has it: 0, which is below all of them, where there is none.
pub(crate) fn number(fence: Option<FencingToken>) -> i64 {
    i64::from(fence.unwrap_or(FencingToken::MIN))
}

/// A time that SQL has counted.
pub(crate) fn millis(count: i64) -> Duration {
    Duration::from_millis(u64::try_from(count).unwrap_or_default())
}

/// Whether the store has taken an `UPDATE` of a row that is known to be there.
pub(crate) fn taken(rows: u64) -> Result<(), Error> {
    if rows == 0 { Err(Error::Late) } else { Ok(()) }
}

/// Whether the database is away or too busy, so that the same statement may do better in a while.
pub(crate) fn is_away(why: &sqlx::Error) -> bool {
    use sqlx::Error::{Database, Io, PoolClosed, PoolTimedOut, Tls, WorkerCrashed};
    match why {
        Io(_) | Tls(_) | PoolClosed | PoolTimedOut | WorkerCrashed => true,
        Database(why) => why.code().is_some_and(|code| says_away(&code)),
        _ => false,
    }
}

/// Postgres has codes of five characters, by class: 08 for connections that failed, 40 for what was rolled back for the sake of
/// others, 53 for too little of something, 57 for an operator who ends it. `SQLite` has numbers: in the lowest byte, 5 is busy and 6
/// is locked.
fn says_away(code: &str) -> bool {
    match code.len() {
        5 => ["08", "40", "53", "57"].iter().any(|class| code.starts_with(class)),
        _ => code.parse::<u32>().is_ok_and(|code| matches!(code & 0xff, 5 | 6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_do_better_in_a_while_is_told_from_what_may_not() {
        let shutdown_crash_start_connection_too_many_and_deadlock =
            ["57P01", "57P02", "57P03", "08006", "53300", "40P01"];
        let busy_busy_snapshot_and_locked = ["5", "517", "6"];
        for code in shutdown_crash_start_connection_too_many_and_deadlock.iter().chain(&busy_busy_snapshot_and_locked) {
            assert!(says_away(code), "{code}");
        }
        for code in ["23505", "22021", "42P01", "1", "19", "2067"] {
            assert!(!says_away(code), "{code}");
        }
    }
}
