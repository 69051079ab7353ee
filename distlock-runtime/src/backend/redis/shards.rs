use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ProtocolVersion, PushInfo, PushKind, RedisResult, Value};

use super::errors::explain;
use super::live::Site;
use crate::backend::BackendError;

/// What comes over a connection that listens.
pub(crate) enum Told {
    /// The lock was handed over to the entry with this token.
    HandedOver(String),
    /// What is published for a lock does not come here any more: its slot has gone elsewhere.
    Unsubscribed(String),
    Ended,
}

/// A connection to a node of a cluster over which it tells what is published in its slots.
///
/// It speaks RESP3, over which subscriptions come and go as commands do, whatever the other connections speak: nodes that
/// have such channels have RESP3.
pub(crate) struct ShardEar {
    connection: MultiplexedConnection,
    site: Arc<Site>,
}

impl ShardEar {
    pub(super) async fn open(
        client: &Client,
        site: Arc<Site>,
        tell: impl Fn(Told) + Send + Sync + 'static,
    ) -> RedisResult<ShardEar> {
        let info = client.get_connection_info().clone();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(settings))?;
        let push = move |push: PushInfo| {
            if let Some(told) = told(&push) {
                tell(told);
            }
            Ok::<(), redis::aio::SendError>(())
        };
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config.set_push_sender(push)).await?;
        Ok(ShardEar { connection, site })
    }

    /// The channel on which a manager hears of a lock. It has the lock's slot.
    pub(crate) fn channel(&self, key: &str, waiter: &str) -> String {
        format!("{}:waiter:{waiter}", self.site.name(key))
    }

    pub(crate) async fn subscribe(&self, channel: &str, timeout: Duration) -> Result<(), BackendError> {
        self.send("SSUBSCRIBE", channel, timeout).await
    }

    pub(crate) async fn unsubscribe(&self, channel: &str, timeout: Duration) -> Result<(), BackendError> {
        self.send("SUNSUBSCRIBE", channel, timeout).await
    }

    async fn send(&self, command: &str, channel: &str, timeout: Duration) -> Result<(), BackendError> {
        let mut connection = self.connection.clone();
        connection.set_response_timeout(timeout);
        let answer = connection.send_packed_command(redis::cmd(command).arg(channel)).await;
        answer.and_then(Value::extract_error).map_err(|error| explain(error, &self.site.address))?;
        Ok(())
    }
}

fn told(push: &PushInfo) -> Option<Told> {
    let text = |at: usize| match push.data.get(at)? {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    };
    match push.kind {
        // An empty one calls nobody: somebody has found out that it could be sent.
        PushKind::SMessage => text(1).filter(|token| !token.is_empty()).map(Told::HandedOver),
        PushKind::SUnsubscribe => text(0).map(Told::Unsubscribed),
        PushKind::Disconnection => Some(Told::Ended),
        _ => None,
    }
}
