use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_core::Stream;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, RedisError};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::errors::explain_connect;
use super::live::{Live, Site};
use crate::backend::{BackendError, Listener};

/// Makes connections.
#[derive(Clone)]
pub(super) struct Dialer {
    client: Client,
    site: Arc<Site>,
    connect_timeout: Duration,
}

pub(super) type Outcome = Result<Arc<Live>, Unreachable>;

/// Why there is no connection.
#[derive(Clone)]
pub(super) enum Unreachable {
    Failed(RedisError),
    TimedOut(Duration),
}

impl Dialer {
    pub(super) fn new(client: Client, prefix: String, connect_timeout: Duration) -> Dialer {
        let address = client.get_connection_info().addr().to_string();
        let channels = format!("{prefix}waiter:");
        Dialer { client, site: Arc::new(Site { address, prefix, channels }), connect_timeout }
    }

    pub(super) fn site(&self) -> &Site {
        &self.site
    }

    /// Connects within the connect timeout. If that takes long, further tries are begun beside the first, and whichever
    /// ends first counts: one that got stuck, perhaps by a single lost packet, is no reason for a lease to run out.
    ///
    /// Where there was an attempt before, this waits a little first: a server that is no good is not met by a storm.
    pub(super) async fn dial(&self, again: bool) -> Outcome {
        if again {
            tokio::time::sleep(self.pause()).await;
        }
        let deadline = Instant::now() + self.connect_timeout;
        let stagger = self.connect_timeout / 8;
        let mut tries = JoinSet::new();
        loop {
            let dialer = self.clone();
            tries.spawn(async move { dialer.open().await });
            match timeout_at(deadline.min(Instant::now() + stagger), tries.join_next()).await {
                Ok(Some(Ok(Ok(live)))) => return Ok(live),
                Ok(Some(Ok(Err(error)))) => return Err(Unreachable::Failed(error)),
                Err(_) if Instant::now() < deadline => {}
                Ok(None | Some(Err(_))) | Err(_) => {
                    return Err(Unreachable::TimedOut(self.connect_timeout));
                }
            }
        }
    }

    /// Listens to a manager's channel, over a connection of its own: over that of the renewals it would end with what is
    /// done to those who subscribe.
    pub(super) async fn listen(&self, waiter: &str, listener: &dyn Listener) -> BackendError {
        let opened = timeout_at(Instant::now() + self.connect_timeout, async {
            let mut subscription = self.client.get_async_pubsub().await?;
            subscription.subscribe(format!("{}{waiter}", self.site.channels)).await?;
            Ok(subscription)
        });
        let mut subscription = match opened.await {
            Ok(Ok(subscription)) => subscription,
            Ok(Err(error)) => return explain_connect(error, &self.site.address),
            Err(_) => return Unreachable::TimedOut(self.connect_timeout).explain(&self.site.address),
        };
        listener.connected();
        let mut messages = pin!(subscription.on_message());
        while let Some(message) = poll_fn(|cx| messages.as_mut().poll_next(cx)).await {
            listener.handed_over(&String::from_utf8_lossy(message.get_payload_bytes()));
        }
        BackendError::passing(format!("the subscription at {} ended", self.site.address))
    }

    /// From 20 to 50 ms, but a small part of the connect timeout if that is short.
    fn pause(&self) -> Duration {
        Duration::from_millis(fastrand::u64(20..50)).min(self.connect_timeout / 8)
    }

    async fn open(&self) -> Result<Arc<Live>, RedisError> {
        let broken = Arc::new(AtomicBool::new(false));
        // The bounds are set by our callers: on each command, and on the whole of connecting.
        let mut config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        if self.client.get_connection_info().redis_settings().protocol().supports_resp3() {
            config = config.set_push_sender(end_watcher(&broken));
        }
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Arc::new(Live::new(connection, broken, self.site.clone())))
    }
}

/// Over RESP3 the client tells of a connection's end by a push, so that the next command need not find out by failing.
fn end_watcher(broken: &Arc<AtomicBool>) -> impl Fn(PushInfo) -> Result<(), redis::aio::SendError> + use<> {
    let broken = broken.clone();
    move |push| {
        if push.kind == PushKind::Disconnection {
            broken.store(true, Ordering::Release);
        }
        Ok(())
    }
}

impl Unreachable {
    pub(super) fn explain(self, address: &str) -> BackendError {
        match self {
            Unreachable::Failed(error) => explain_connect(error, address),
            Unreachable::TimedOut(time) => {
                BackendError::passing(format!("{address} could not be connected to within {time:?}"))
            }
        }
    }
}
