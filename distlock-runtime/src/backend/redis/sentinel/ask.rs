//! The two questions: whom does a sentinel name, and does that server say the same?

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, Value};

use super::ballot::{Address, Failure, Said};
use crate::backend::redis::errors::explain_connect;

/// Asks a sentinel over a connection of its own.
pub(super) async fn ask(sentinel: &Client, service: &str) -> Said {
    let answer = async { question(&mut open(sentinel).await?, service).await };
    answer.await.unwrap_or_else(|error| Said::Failed(failure_of_sentinel(error, sentinel)))
}

/// A connection to a sentinel. How long anything may take is up to the caller.
pub(super) async fn open(sentinel: &Client) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    sentinel.get_multiplexed_async_connection_with_config(&config).await
}

/// Asks for address and epoch in one go, so that both are of the same failover. During one, the former is new as soon as
/// the new primary was heard of; what `SENTINEL MASTER` itself says of the address is behind.
pub(super) async fn question(sentinel: &mut MultiplexedConnection, service: &str) -> Result<Said, RedisError> {
    let mut questions = redis::pipe();
    questions.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    questions.cmd("SENTINEL").arg("MASTER").arg(service);
    let mut answers = sentinel.send_packed_commands(&questions, 0, 2).await?.into_iter().map(Value::extract_error);
    let (address, details) = (answers.next().unwrap_or(Ok(Value::Nil))?, answers.next());
    let Some(address) = address_in(&address)? else { return Ok(Said::Unknown) };
    Ok(Said::Names(address, epoch_in(&details.unwrap_or(Ok(Value::Nil))?)))
}

fn failure_of_sentinel(error: RedisError, sentinel: &Client) -> Failure {
    let address = format!("the sentinel {}", sentinel.get_connection_info().addr());
    if error.code() == Some("NOAUTH") {
        let text = format!("{address} wants a password, as in `?sentinel_user=..&sentinel_password=..` (NOAUTH)");
        return Failure { text, lasting: true };
    }
    failure(error, &address)
}

/// Has a server say that it is a primary. Otherwise it is told why not.
pub(super) async fn check_role(connection: &mut MultiplexedConnection, address: &str) -> Result<(), Failure> {
    let answer = connection.send_packed_command(&redis::cmd("ROLE")).await.and_then(Value::extract_error);
    let role = match answer.map_err(|error| failure(error, address))? {
        Value::Array(parts) => parts.first().and_then(text),
        _ => None,
    };
    match role.as_deref() {
        Some("master") => Ok(()),
        Some("slave") => Err(passing(format!("{address} is a replica"))),
        role => Err(passing(format!("{address} is no primary, but a {}", role.unwrap_or("server without a role")))),
    }
}

/// Why a server, or what was to be one, can't be used.
pub(super) fn failure(error: RedisError, address: &str) -> Failure {
    let error = explain_connect(error, address);
    Failure { lasting: !error.is_passing(), text: error.to_string() }
}

fn passing(text: String) -> Failure {
    Failure { text, lasting: false }
}

fn address_in(answer: &Value) -> Result<Option<Address>, RedisError> {
    let parts = match answer {
        Value::Nil => return Ok(None),
        Value::Array(parts) => parts.as_slice(),
        _ => &[],
    };
    let (host, port) = (parts.first().and_then(text), parts.get(1).and_then(text).and_then(|port| port.parse().ok()));
    match (host, port) {
        (Some(host), Some(port)) => Ok(Some(Address { host, port })),
        _ => Err(RedisError::from((ErrorKind::UnexpectedReturnType, "it answers as no sentinel does"))),
    }
}

/// Zero where it is not told, by what only looks like a sentinel: then all are of the same age.
fn epoch_in(answer: &Value) -> u64 {
    let Value::Array(fields) = answer else { return 0 };
    let mut pairs = fields.chunks_exact(2).filter_map(|pair| Some((text(pair.first()?)?, text(pair.last()?)?)));
    pairs.find(|(name, _)| name == "config-epoch").and_then(|(_, epoch)| epoch.parse().ok()).unwrap_or(0)
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}
