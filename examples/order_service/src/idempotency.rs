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

/// Whose a key is.
#[derive(Debug)]
pub enum Claim {
    /// The caller, who answers or gives it back.
    Ours(Claimed),
    /// A request that was answered.
    Answered(Answer),
}

/// A key that is ours until it is answered or given back. If the process dies it stays claimed for a while.
#[derive(Clone, Debug)]
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

/// When a key was claimed that nobody has at the moment. It stays with its request, which may have reached the provider.
const GIVEN_BACK: i64 = 0;

/// Claims a key for a request. One without an answer is taken over if it was given back; or if it was claimed longer ago than
/// `stale`, by somebody who has died.
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
        Some((since, None)) if since.at == GIVEN_BACK || since.ago >= stale => take_over(store, key, since.at).await,
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
    if stale != GIVEN_BACK {
        tracing::warn!(key, "took over a payment whose first request has died");
    }
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

    /// Gives the key back, when the request has come to nothing that counts: a repeat may try again at once, and another request
    /// never gets it. Without an answer the customer may have been charged, and this key's answer is to say so at last.
    ///
    /// # Errors
    ///
    /// Those of the database; a repeat may then try again when the claim is stale.
    pub async fn give_back(self, store: &Store) -> sqlx::Result<()> {
        let update = "UPDATE idempotency SET claimed_at = $3 WHERE key = $1 AND claimed_at = $2 AND answer IS NULL";
        let update = sqlx::query(update).bind(self.key).bind(self.at).bind(GIVEN_BACK);
        update.execute(&store.pool).await.map(drop)
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

#[cfg(test)]
mod tests {
    use super::*;

    const AT: i64 = 7;

    /// Two can have the same claim only where it is stale within its own millisecond. The answer that was told stands even then.
    #[tokio::test]
    async fn an_answer_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&format!("sqlite:{}", folder.path().join("orders.db").display())).await.unwrap();
        let insert = sqlx::query("INSERT INTO idempotency (key, request, claimed_at) VALUES ('key', 'request', $1)");
        insert.bind(AT).execute(&store.pool).await.unwrap();
        let claimed = || Claimed { key: "key".to_owned(), at: AT };
        let answer = |status| Answer { status, body: Value::Null, is_repeated: true };

        claimed().answer(&store, &answer(200)).await.unwrap();
        claimed().answer(&store, &answer(201)).await.unwrap();
        claimed().give_back(&store).await.unwrap();
        // As by one who has found it without an answer a moment before.
        let taken = take_over(&store, "key", AT).await;
        assert!(matches!(taken, Err(Error::InProgress)), "an answered request is made again: {taken:?}");
        assert_eq!(answered(&store, "key", "request").await.unwrap(), Some(answer(200)));
    }
}
