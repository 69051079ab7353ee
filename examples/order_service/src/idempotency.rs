//! The second line of defence: each payment has a key of its customer's choice, a unique index lets one request have it, and
//! its repeats get the first answer.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use sqlx::{Any, Row, Transaction};

use crate::error::Error;
use crate::store::{Store, millis};

/// What a request was answered, for good.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Value,
    /// Whether it was stored, and is now repeated.
    pub is_repeated: bool,
}

/// Who a key belongs to.
#[derive(Debug)]
pub enum Claim {
    /// The caller, who answers or gives it back.
    Ours(Claimed),
    /// A request that was answered.
    Answered(Answer),
}

/// A key that is ours until it is answered or given back. If the process dies it stays claimed for a while.
#[derive(Debug)]
pub struct Claimed {
    key: String,
    at: i64,
}

/// Looks for the answer to an earlier request, without claiming the key.
///
/// # Errors
///
/// [`Error::KeyReused`] if the earlier request was another one.
pub async fn answered(store: &Store, key: &str, request: &str) -> Result<Option<Answer>, Error> {
    Ok(find(store, key, request).await?.and_then(|(_, answer)| answer))
}

/// Claims a key for a request. One that was claimed longer ago than `stale` and has no answer belonged to somebody who
/// has died, and is taken over.
///
/// # Errors
///
/// [`Error::KeyReused`] if the key was used for another request, [`Error::InProgress`] while somebody else has it.
pub async fn claim(store: &Store, key: &str, request: &str, stale: Duration) -> Result<Claim, Error> {
    let now = store.now();
    let insert = format!(
        "INSERT INTO idempotency (key, request, claimed_at) VALUES ($1, $2, {now})
         ON CONFLICT (key) DO NOTHING RETURNING claimed_at"
    );
    let rows = sqlx::query(&insert).bind(key).bind(request).fetch_all(&store.pool).await?;
    if let Some(row) = rows.first() {
        return Ok(Claim::Ours(Claimed { key: key.to_owned(), at: row.try_get(0)? }));
    }
    match find(store, key, request).await? {
        Some((_, Some(answer))) => Ok(Claim::Answered(answer)),
        Some((since, None)) if since.ago >= stale => take_over(store, key, since.at).await,
        // Also if it was given back between the two statements: the caller may come again.
        _ => Err(Error::InProgress),
    }
}

/// Stores an answer together with what it is the answer to, in one transaction: there is nothing to claim before, and nothing
/// to settle after. Says whether the key was free; if not, the transaction must not be committed.
///
/// # Errors
///
/// Those of the database.
pub async fn answer_with(
    transaction: &mut Transaction<'_, Any>,
    now: &str,
    (key, request): (&str, &str),
    answer: &Answer,
) -> sqlx::Result<bool> {
    let insert = format!(
        "INSERT INTO idempotency (key, request, claimed_at, status, answer) VALUES ($1, $2, {now}, $3, $4)
         ON CONFLICT (key) DO NOTHING"
    );
    let insert = sqlx::query(&insert).bind(key).bind(request);
    let insert = insert.bind(i64::from(answer.status)).bind(answer.body.to_string());
    Ok(insert.execute(&mut **transaction).await?.rows_affected() == 1)
}

struct Since {
    at: i64,
    ago: Duration,
}

async fn find(store: &Store, key: &str, request: &str) -> Result<Option<(Since, Option<Answer>)>, Error> {
    let now = store.now();
    let select = format!(
        "SELECT request, claimed_at, {now} - claimed_at AS ago, status, answer FROM idempotency WHERE key = $1"
    );
    let Some(row) = sqlx::query(&select).bind(key).fetch_optional(&store.pool).await? else {
        return Ok(None);
    };
    if row.try_get::<String, _>("request")? != request {
        return Err(Error::KeyReused);
    }
    let since = Since { at: row.try_get("claimed_at")?, ago: millis(row.try_get("ago")?) };
    let (status, body): (Option<i64>, Option<String>) = (row.try_get("status")?, row.try_get("answer")?);
    let answer = status.zip(body).map(|(status, body)| Answer {
        status: u16::try_from(status).unwrap_or(500),
        body: serde_json::from_str(&body).unwrap_or_default(),
        is_repeated: true,
    });
    Ok(Some((since, answer)))
}

/// Compares with what was read, so that of two who find it stale one gets it.
async fn take_over(store: &Store, key: &str, stale: i64) -> Result<Claim, Error> {
    let now = store.now();
    let update = format!(
        "UPDATE idempotency SET claimed_at = {now} WHERE key = $1 AND claimed_at = $2 AND answer IS NULL
         RETURNING claimed_at"
    );
    let rows = sqlx::query(&update).bind(key).bind(stale).fetch_all(&store.pool).await?;
    let row = rows.first().ok_or(Error::InProgress)?;
    tracing::warn!(key, "took over a payment whose first request has died");
    Ok(Claim::Ours(Claimed { key: key.to_owned(), at: row.try_get(0)? }))
}

impl Claimed {
    /// Stores the answer, for all repeats.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub async fn answer(self, store: &Store, answer: &Answer) -> sqlx::Result<()> {
        let update = "UPDATE idempotency SET status = $3, answer = $4
                      WHERE key = $1 AND claimed_at = $2 AND answer IS NULL";
        let update = sqlx::query(update).bind(self.key).bind(self.at);
        let update = update.bind(i64::from(answer.status)).bind(answer.body.to_string());
        update.execute(&store.pool).await.map(drop)
    }

    /// Gives the key back, when the request has come to nothing that counts: a repeat may try again.
    ///
    /// # Errors
    ///
    /// Those of the database; the key is then free when it is stale.
    pub async fn give_back(self, store: &Store) -> sqlx::Result<()> {
        let delete = "DELETE FROM idempotency WHERE key = $1 AND claimed_at = $2 AND answer IS NULL";
        sqlx::query(delete).bind(self.key).bind(self.at).execute(&store.pool).await.map(drop)
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.body)).into_response();
        if self.is_repeated {
            response.headers_mut().insert("idempotency-replayed", axum::http::HeaderValue::from_static("true"));
        }
        response
    }
}
