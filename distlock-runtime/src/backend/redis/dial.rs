use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::Stream;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, RedisError};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::errors::{explain_connect, explain_with, with_hint_at_tls};
use super::inspect::Inspector;
use super::live::{Live, Site};
use super::sentinel::{Home, Service};
use super::shards::{ShardEar, Told};
use crate::backend::{BackendError, Listener};

/// What to connect to.
#[derive(Clone)]
pub(crate) enum Target {
    Server(Arc<Client>),
    /// A node of a cluster.
    Node(Arc<Client>),
    /// The primary of a service, which is found anew for each connection.
    Service(Arc<Service>),
}

/// Makes connections.
#[derive(Clone)]
pub(super) struct Dialer {
    target: Target,
    site: Arc<Site>,
    connect_timeout: Duration,
    /// Who looks at a server that a connection was lost to, or that has taken its place.
    inspector: Option<Arc<Inspector>>,
}

pub(super) type Outcome = Result<Arc<Live>, Unreachable>;

/// Why there is no connection.
#[derive(Clone)]
pub(super) enum Unreachable {
    Failed(RedisError),
    TimedOut(Duration),
    /// Sentinels led to no primary.
    NotFound {
        text: String,
        lasting: bool,
    },
}

impl Dialer {
    pub(super) fn new(target: Target, prefix: String, connect_timeout: Duration) -> Dialer {
        let address = match &target {
            Target::Server(client) | Target::Node(client) => client.get_connection_info().addr().to_string(),
            Target::Service(service) => service.describe(),
        };
        let (channels, sharded) = (format!("{prefix}waiter:"), matches!(target, Target::Node(_)));
        let site = Arc::new(Site { address, prefix, channels, home: None, sharded });
        Dialer { target, site, connect_timeout, inspector: None }
    }

    pub(super) fn inspected_by(self, inspector: Option<Arc<Inspector>>) -> Dialer {
        Dialer { inspector, ..self }
    }

    pub(super) fn site(&self) -> &Site {
        &self.site
    }

    /// Looks out for what makes connections be trusted no more, for as long as it is polled.
    pub(super) async fn watch(self) {
        match self.target {
            Target::Server(_) | Target::Node(_) => pending().await,
            Target::Service(service) => service.watch().await,
        }
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
            tries.spawn(async move { dialer.open(deadline).await });
            match timeout_at(deadline.min(Instant::now() + stagger), tries.join_next()).await {
                Ok(Some(Ok(Ok(live)))) => {
                    if again {
                        self.inspect(&live);
                    }
                    return Ok(live);
                }
                Ok(Some(Ok(Err(error)))) => return Err(error),
                Err(_) if Instant::now() < deadline => {}
                Ok(None | Some(Err(_))) | Err(_) => {
                    return Err(Unreachable::TimedOut(self.connect_timeout));
                }
            }
        }
    }

    /// Has somebody look at the server, in the background: whoever waits for the connection needs it sooner.
    fn inspect(&self, live: &Arc<Live>) {
        if let Some(inspector) = self.inspector.clone() {
            let (live, timeout) = (live.clone(), self.connect_timeout);
            tokio::spawn(async move { inspector.inspect(&live, timeout).await });
        }
    }

    /// Listens to a manager's channel, over a connection of its own: over that of the renewals it would end with what is
    /// done to those who subscribe.
    pub(super) async fn listen(&self, waiter: &str, listener: &dyn Listener) -> BackendError {
        let deadline = Instant::now() + self.connect_timeout;
        let (client, site) = match self.client(deadline).await {
            Ok(found) => found,
            Err(unreachable) => return unreachable.explain(&self.site.address),
        };
        let opened = timeout_at(deadline, async {
            let mut subscription = client.get_async_pubsub().await?;
            subscription.subscribe(format!("{}{waiter}", site.channels)).await?;
            Ok(subscription)
        });
        let mut subscription = match opened.await {
            Ok(Ok(subscription)) => subscription,
            Ok(Err(error)) => return explain_with(error, &site.address, &site.prefix, None).nothing_done(),
            Err(_) => return Unreachable::TimedOut(self.connect_timeout).explain(&site.address),
        };
        listener.connected();
        let (mut messages, mut moved) = (pin!(subscription.on_message()), pin!(moved(&site)));
        let mut next = async || {
            poll_fn(|cx| match moved.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => messages.as_mut().poll_next(cx),
            })
            .await
        };
        while let Some(message) = next().await {
            listener.handed_over(&String::from_utf8_lossy(message.get_payload_bytes()));
        }
        BackendError::passing(format!("the subscription at {} ended", site.address))
    }

    /// Connects to a node of a cluster to hear what is published in its slots.
    pub(super) async fn open_ear(&self, tell: impl Fn(Told) + Send + Sync + 'static) -> Result<ShardEar, BackendError> {
        let deadline = Instant::now() + self.connect_timeout;
        let (client, site) =
            self.client(deadline).await.map_err(|unreachable| unreachable.explain(&self.site.address))?;
        match timeout_at(deadline, ShardEar::open(&client, site.clone(), tell)).await {
            Ok(opened) => opened.map_err(|error| explain_connect(error, &site.address)),
            Err(_) => Err(Unreachable::TimedOut(self.connect_timeout).explain(&site.address)),
        }
    }

    /// How to connect to the server for something else than commands.
    async fn client(&self, deadline: Instant) -> Result<(Arc<Client>, Arc<Site>), Unreachable> {
        match &self.target {
            Target::Server(client) | Target::Node(client) => Ok((client.clone(), self.site.clone())),
            Target::Service(service) => {
                let home = service.find(self.before(deadline)).await?.home;
                let client = home.client().map_err(Unreachable::Failed)?;
                Ok((Arc::new(client), self.site_at(home)))
            }
        }
    }

    fn site_at(&self, home: Home) -> Arc<Site> {
        let Site { prefix, channels, .. } = &*self.site;
        let address = home.describe();
        Arc::new(Site { address, prefix: prefix.clone(), channels: channels.clone(), home: Some(home), sharded: false })
    }

    /// Early enough for sentinels to tell what was wrong, before nothing can be told but that the time is over.
    fn before(&self, deadline: Instant) -> Instant {
        deadline - self.connect_timeout / 16
    }

    /// From 20 to 50 ms, but a small part of the connect timeout if that is short.
    fn pause(&self) -> Duration {
        Duration::from_millis(fastrand::u64(20..50)).min(self.connect_timeout / 8)
    }

    async fn open(&self, deadline: Instant) -> Outcome {
        let (connection, broken, site) = match &self.target {
            Target::Server(client) | Target::Node(client) => {
                let (connection, broken) = open(client).await.map_err(Unreachable::Failed)?;
                (connection, broken, self.site.clone())
            }
            Target::Service(service) => {
                let found = service.find(self.before(deadline)).await?;
                (found.connection, found.broken, self.site_at(found.home))
            }
        };
        Ok(Arc::new(Live::new(connection, broken, site)))
    }
}

/// Returns when the primary is another one, if sentinels say which it is.
async fn moved(site: &Site) {
    match &site.home {
        Some(home) => home.moved().await,
        None => pending().await,
    }
}

/// A connection, and whether it is known to have ended. How long that may take is up to the caller.
pub(super) async fn open(client: &Client) -> Result<(MultiplexedConnection, Arc<AtomicBool>), RedisError> {
    let broken = Arc::new(AtomicBool::new(false));
    // The bounds are set by our callers: on each command, and on the whole of connecting.
    let mut config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    if client.get_connection_info().redis_settings().protocol().supports_resp3() {
        config = config.set_push_sender(end_watcher(&broken));
    }
    match client.get_multiplexed_async_connection_with_config(&config).await {
        Ok(connection) => Ok((connection, broken)),
        Err(error) => Err(with_hint_at_tls(error, client)),
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
            Unreachable::NotFound { text, lasting: true } => BackendError::lasting(text),
            Unreachable::NotFound { text, lasting: false } => BackendError::passing(text),
        }
    }
}
