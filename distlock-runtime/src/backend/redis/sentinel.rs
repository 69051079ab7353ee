//! A service whose primary is found by asking sentinels.

mod ask;
mod ballot;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionAddr, ConnectionInfo};
use tokio::sync::watch as latest;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use self::ballot::{Address, Ballot, Failure, Predecessor, Said};
use super::dial::{Unreachable, open};
use crate::clock::Time;

/// For how long the other sentinels are waited for, once there is a primary: one of them may know of a later one. It is
/// many round trips, and passes only where a sentinel is silent or a server that was named.
const GRACE: Duration = Duration::from_millis(100);

/// A service: servers of which one at a time is the primary, and the sentinels that know which.
pub(crate) struct Service {
    name: String,
    sentinels: Vec<Client>,
    /// The addresses of the sentinels, for messages.
    names: Vec<String>,
    /// How to connect to the primary, wherever it is.
    primary: ConnectionInfo,
    known: latest::Sender<Option<Known>>,
    /// When sentinels were last asked, in nanoseconds.
    asked: AtomicU64,
}

/// The primary that was found last.
#[derive(Clone)]
struct Known {
    address: Address,
    epoch: u64,
    since: Time,
}

/// A server that was found to be the primary of a service.
pub(super) struct Home {
    service: Arc<Service>,
    address: Address,
}

/// A connection to the primary.
pub(super) struct Found {
    pub(super) home: Home,
    pub(super) connection: MultiplexedConnection,
    pub(super) broken: Arc<AtomicBool>,
}

type Link = (MultiplexedConnection, Arc<AtomicBool>);

enum Heard {
    Sentinel(usize, Said),
    Server(Address, Result<Link, Failure>),
}

impl Service {
    /// Connects to the primary with the settings in `primary`, whose address does not matter.
    pub(crate) fn new(name: String, sentinels: Vec<Client>, primary: ConnectionInfo) -> Service {
        let names = sentinels.iter().map(|sentinel| sentinel.get_connection_info().addr().to_string()).collect();
        let (known, asked) = (latest::Sender::default(), AtomicU64::new(0));
        Service { name, sentinels, names, primary, known, asked }
    }

    /// What stands for the address where none is known.
    pub(crate) fn describe(&self) -> String {
        format!("the primary of `{}` (sentinels: {})", self.name, self.names.join(", "))
    }

    /// A client of the server at this address.
    fn client_at(&self, address: &Address) -> Result<Client, redis::RedisError> {
        let Address { host, port } = address.clone();
        let at = match self.primary.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Client::open(self.primary.clone().set_addr(at))
    }

    /// Asks all sentinels at once and connects to each server that one of them names. The primary is the one that says so
    /// itself and that the latest failover has made one.
    pub(super) async fn find(self: &Arc<Self>, deadline: Instant) -> Result<Found, Unreachable> {
        let (begin, mut ballot, mut talks) = (Time::now(), Ballot::new(self.sentinels.len()), JoinSet::new());
        for sentinel in 0..self.sentinels.len() {
            let service = self.clone();
            talks.spawn(async move { Heard::Sentinel(sentinel, service.ask(sentinel).await) });
        }
        let mut grace = None;
        loop {
            let waited_for = talks.is_empty() || grace.is_some_and(|grace| grace <= Instant::now());
            if let Some((address, epoch, (connection, broken))) =
                ballot.take(self.predecessor(begin).as_ref(), waited_for)
            {
                self.remember(&address, epoch, begin);
                let home = Home { service: self.clone(), address };
                return Ok(Found { home, connection, broken });
            }
            let until = grace.filter(|_| !waited_for).map_or(deadline, |grace| deadline.min(grace));
            match timeout_at(until, talks.join_next()).await {
                Ok(Some(Ok(Heard::Sentinel(sentinel, said)))) => {
                    if let Some(address) = ballot.hear(sentinel, said) {
                        let service = self.clone();
                        talks.spawn(async move { Heard::Server(address.clone(), service.meet(&address).await) });
                    }
                }
                Ok(Some(Ok(Heard::Server(address, outcome)))) => ballot.meet(&address, outcome),
                Ok(Some(Err(_))) => {}
                Err(_) if Instant::now() < deadline => {}
                Ok(None) | Err(_) => return Err(self.not_found(&ballot.explain(&self.names))),
            }
            if ballot.has_primary() {
                grace = grace.or_else(|| Some(Instant::now() + GRACE));
            }
        }
    }

    async fn ask(&self, sentinel: usize) -> Said {
        match self.sentinels.get(sentinel) {
            Some(sentinel) => ask::ask(sentinel, &self.name).await,
            None => Said::Unknown,
        }
    }

    /// Connects to a server and has it say that it is a primary.
    async fn meet(&self, address: &Address) -> Result<Link, Failure> {
        let text = address.to_string();
        let link = async { open(&self.client_at(address)?).await };
        let (mut connection, broken) = link.await.map_err(|error| ask::failure(error, &text))?;
        ask::check_role(&mut connection, &text).await?;
        Ok((connection, broken))
    }

    fn not_found(&self, failure: &Failure) -> Unreachable {
        let text = format!("no primary of `{}` was found: {}", self.name, failure.text);
        Unreachable::NotFound { text, lasting: failure.lasting }
    }

    fn predecessor(&self, begin: Time) -> Option<Predecessor> {
        let known = self.known.borrow();
        known.as_ref().map(|known| Predecessor { epoch: known.epoch, is_older: known.since < begin })
    }

    fn remember(&self, address: &Address, epoch: u64, begin: Time) {
        self.note_asked(begin);
        self.known.send_if_modified(|known| {
            let moved = known.as_ref().is_none_or(|known| known.address != *address);
            *known = Some(Known { address: address.clone(), epoch, since: Time::now() });
            moved
        });
    }

    fn note_asked(&self, at: Time) {
        self.asked.fetch_max(at.as_nanos(), Ordering::Relaxed);
    }

    fn since_asked(&self) -> Duration {
        Time::now().saturating_since(Time::from_nanos(self.asked.load(Ordering::Relaxed)))
    }
}

impl Home {
    pub(super) fn describe(&self) -> String {
        format!("{}, which sentinels name as the primary of `{}`,", self.address, self.service.name)
    }

    pub(super) fn client(&self) -> Result<Client, redis::RedisError> {
        self.service.client_at(&self.address)
    }
}
