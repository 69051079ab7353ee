//! What goes wrong, and what the caller is told over HTTP.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use distlock::LockError;
use serde_json::json;

use crate::pay::Receipt;
use crate::provider::Unreachable;
use crate::store;

/// Why a request was not served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The lock was not to be had, or was lost.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A later holder of the lock has been at the row: this one's lease was over without its knowing.
    #[error("somebody who came later holds the lock; nothing was written")]
    Late,
    /// The same payment is under way at this moment.
    #[error("a request with this idempotency key is under way")]
    InProgress,
    /// The idempotency key was used for something else.
    #[error("this idempotency key was used for another request")]
    KeyReused,
    /// No idempotency key.
    #[error("the header `Idempotency-Key` is missing")]
    KeyMissing,
    /// The provider was asked before, by somebody who didn't live to hear the answer.
    #[error("an earlier payment of this order may still be charged")]
    Unsettled {
        /// Until the provider can be asked for what became of it.
        remaining: Duration,
    },
    /// So much time went by since the intent was recorded that nothing was sent to the provider.
    #[error("it took too long to get to the payment provider; nothing was sent")]
    Delayed,
    /// Paid, but not by this request.
    #[error("the order is paid already")]
    AlreadyPaid(Receipt),
    /// The provider made no charge.
    #[error("the payment provider made no charge: {0}")]
    NotCharged(String),
    /// The provider gave no answer, so that there may be a charge.
    #[error("the payment provider didn't answer: {why}")]
    NoAnswer {
        /// What was seen of it.
        why: String,
        /// Until it can be asked for what became of it.
        remaining: Duration,
    },
    /// The provider could not be asked for its charges.
    #[error(transparent)]
    Provider(#[from] Unreachable),
    /// Not so much there.
    #[error("there is not enough {0}")]
    NotEnough(&'static str),
    /// No such thing.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// A value that can't be meant.
    #[error("{0}")]
    Invalid(&'static str),
    /// A body that can't be read as what it should be.
    #[error("{why}")]
    Unreadable {
        /// Whether it is of the wrong type, too long, or just wrong.
        status: StatusCode,
        /// What is wrong with it.
        why: String,
    },
    /// It took too long and was stopped, wherever it was.
    #[error("it took too long and was stopped; it may be done in part or as a whole")]
    TimedOut,
    /// It panicked.
    #[error("the payment was stopped by a mistake of ours")]
    Stopped,
    /// The database.
    #[error("database: {0}")]
    Store(#[from] sqlx::Error),
    /// Redis, where stock is kept on it.
    #[error("redis: {0}")]
    Redis(#[from] redis::RedisError),
}

impl Error {
    /// A word for metrics and for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Error::Lock(LockError::Busy { .. }) => "busy",
            Error::Lock(LockError::Lost { .. }) => "lost",
            Error::Lock(_) => "lock",
            Error::Late => "late",
            Error::InProgress => "in_progress",
            Error::KeyReused => "key_reused",
            Error::KeyMissing => "key_missing",
            Error::Unsettled { .. } => "unsettled",
            Error::Delayed => "delayed",
            Error::AlreadyPaid(_) => "already_paid",
            Error::NotCharged(_) => "not_charged",
            Error::NoAnswer { .. } => "no_answer",
            Error::Provider(_) => "provider",
            Error::NotEnough(_) => "not_enough",
            Error::NotFound(_) => "not_found",
            Error::Invalid(_) | Error::Unreadable { .. } => "invalid",
            Error::TimedOut => "timed_out",
            Error::Stopped => "stopped",
            Error::Store(_) => "database",
            Error::Redis(_) => "redis",
        }
    }

    /// The status that says it.
    pub fn status(&self) -> StatusCode {
        match self {
            Error::Lock(LockError::Busy { .. })
            | Error::InProgress
            | Error::Unsettled { .. }
            | Error::AlreadyPaid(_)
            | Error::NotEnough(_) => StatusCode::CONFLICT,
            // Of our own making: a key that can't be one, a ttl out of bounds.
            Error::Lock(LockError::InvalidKey { .. } | LockError::InvalidOption { .. }) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            // Lost, the server is down, or this instance is going down.
            Error::Lock(_) | Error::Late | Error::Delayed | Error::TimedOut | Error::Redis(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Error::KeyReused | Error::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Error::Unreadable { status, .. } => *status,
            Error::KeyMissing => StatusCode::BAD_REQUEST,
            Error::NotCharged(_) | Error::Provider(_) => StatusCode::BAD_GATEWAY,
            Error::NoAnswer { .. } => StatusCode::GATEWAY_TIMEOUT,
            Error::NotFound(_) => StatusCode::NOT_FOUND,
            Error::Store(why) if store::is_away(why) => StatusCode::SERVICE_UNAVAILABLE,
            Error::Store(_) | Error::Stopped => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// After what time it makes sense to ask again, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            // The holder may renew its lease, so this is no promise; but if the holder has died, it is exact.
            Error::Lock(LockError::Busy { remaining, .. })
            | Error::Unsettled { remaining }
            | Error::NoAnswer { remaining, .. } => Some(*remaining),
            Error::InProgress => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        if self.status().is_server_error() {
            tracing::warn!(kind = self.kind(), error = %self, "request failed");
        }
        let body = match &self {
            Error::AlreadyPaid(receipt) => {
                json!({ "kind": self.kind(), "error": self.to_string(), "order": receipt.order, "charge": receipt.charge })
            }
            _ => json!({ "kind": self.kind(), "error": self.to_string() }),
        };
        let mut response = (self.status(), Json(body)).into_response();
        if let Some(after) = self.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(after)));
        }
        response
    }
}

/// Rounded up: who comes back too early comes in vain.
fn whole_seconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use sqlx::{AnyConnection, Connection as _, Executor as _};

    use super::*;

    #[tokio::test]
    async fn a_busy_file_is_503_and_a_mistake_is_500() {
        sqlx::any::install_default_drivers();
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}?mode=rwc", folder.path().join("orders.db").display());
        let mut busy = AnyConnection::connect(&url).await.unwrap();
        busy.execute(sqlx::raw_sql("BEGIN IMMEDIATE")).await.unwrap();
        let mut other = AnyConnection::connect(&url).await.unwrap();
        let mut status = async |sql| Error::Store(other.execute(sqlx::raw_sql(sql)).await.unwrap_err()).status();
        let seen = [status("PRAGMA busy_timeout = 0; BEGIN IMMEDIATE").await, status("SELECT nonsense").await];
        assert_eq!(seen, [StatusCode::SERVICE_UNAVAILABLE, StatusCode::INTERNAL_SERVER_ERROR]);
    }

    #[test]
    fn a_pause_is_rounded_up_to_whole_seconds() {
        let rounded = |millis| whole_seconds(Duration::from_millis(millis));
        assert_eq!([rounded(0), rounded(1), rounded(1_000), rounded(1_001)], [1, 1, 1, 2]);
    }
}
