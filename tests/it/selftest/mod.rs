//! Tests of the harness by a plain Redis client: each fault it makes is really there.

pub(crate) mod clock;
mod faults;
mod links;
pub(crate) mod processes;
mod servers;

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult, cmd};

/// Shorter than any fault made here, long enough for any answer that is on its way.
const PATIENCE: Duration = Duration::from_secs(1);

/// A connection that gives up on an answer after [`PATIENCE`].
async fn connect(url: String) -> RedisResult<MultiplexedConnection> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
    Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

async fn set(connection: &mut MultiplexedConnection, key: &str) -> RedisResult<()> {
    cmd("SET").arg(key).arg("v").query_async(connection).await
}

/// The error code that a `SET` is refused with, if it is.
async fn refusal(connection: &mut MultiplexedConnection) -> Option<String> {
    let error = set(connection, "k").await.err()?;
    error.code().map(str::to_owned)
}

/// Whether this took at least so long, with a grain of salt for timers that round.
fn took(begin: Instant, at_least: Duration) -> bool {
    begin.elapsed() + Duration::from_millis(5) >= at_least
}
