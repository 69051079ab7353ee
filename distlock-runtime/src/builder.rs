mod client;
mod cluster;
mod observing;
mod parts;
mod redlock;
mod service;
mod url;

use std::sync::Arc;
use std::time::Duration;

use redis::Client;

use self::client::Certificates;
use self::observing::Observing;
use self::url::{check_scheme, settled, target};
use crate::backend::cluster::ClusterBackend;
use crate::backend::redis::{Inspector, RedisBackend, ServerCheck, Target};
use crate::backend::{Backend, MemoryBackend};
use crate::manager::{Core, default_owner};
use crate::options::{Defaults, check_timeout};
use crate::{Backoff, LockError, LockManager};

/// Sets up a [`LockManager`].
///
/// # Examples
///
/// ```
/// use distlock::LockManager;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
/// let locks = LockManager::builder()
///     .url("memory://")
///     .owner("billing-7")
///     .ttl(Duration::from_secs(10))
///     .retry(3)
///     .build()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is awaited"]
pub struct LockManagerBuilder {
    source: Source,
    prefix: String,
    owner: Option<String>,
    defaults: Defaults,
    connect_timeout: Duration,
    replica_acks: u32,
    certificates: Certificates,
    skipped: Vec<ServerCheck>,
    observing: Observing,
}

enum Source {
    Unset,
    Url(String),
    Client(Box<Client>),
    Redlock(Vec<String>),
    Backend(Arc<dyn Backend>),
}

impl LockManagerBuilder {
    pub(crate) fn new() -> LockManagerBuilder {
        LockManagerBuilder {
            source: Source::Unset,
            prefix: "lock:".to_owned(),
            owner: None,
            defaults: Defaults::default(),
            connect_timeout: Duration::from_secs(2),
            replica_acks: 0,
            certificates: Certificates::default(),
            skipped: Vec::new(),
            observing: Observing::default(),
        }
    }

    /// Sets where locks are kept: `redis://[user:password@]host[:port][/db]`, `rediss://..` for TLS (feature `tls`),
    /// `redis+unix:///path/to/socket`, or `memory://` for this process alone.
    ///
    /// `redis-sentinel://[user:password@]host[:port],host[:port],..[/db]#service` is the primary of a service that sentinels
    /// look after (`rediss-sentinel://..` for TLS to all of them). The hosts are the sentinels', the port is 26379 unless
    /// set, and user and password are the primary's. Those of the sentinels stand in the query, in front of the service:
    /// `?sentinel_user=..&sentinel_password=..#service`; without a user it is `default`.
    ///
    /// `redis-cluster://[user:password@]host[:port],host[:port],..` is a cluster (`rediss-cluster://..` for TLS to all of it). The
    /// hosts are some of its nodes, from which the others are found; the port is 6379 unless set.
    ///
    /// With `redlock://[user:password@]h1,h2,h3[/db]`, a lock is held where a majority of several independent servers has
    /// granted it: see [`redlock`](Self::redlock).
    ///
    /// The protocol is RESP3 unless `?protocol=resp2` asks for the older one. What has a meaning in URLs is percent-encoded
    /// in users and passwords.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.source = Source::Url(url.into());
        self
    }

    /// Connects as a client of the `redis` crate would, for what neither a URL nor this builder can say. It has its own
    /// certificates. To its TCP settings are added those that are not set there: no delay, keepalive and a user timeout.
    pub fn redis_client(mut self, client: Client) -> Self {
        self.source = Source::Client(Box::new(client));
        self
    }

    /// Keeps locks on several independent servers, each with its own URL: a lock is held where a majority of them has granted
    /// it, so it survives the loss of a minority. There are at least three, and an odd number is best.
    ///
    /// They share nothing: no replicas of one another, no cluster. All are asked at once; one that is down or frozen costs
    /// nothing but its vote, and joins when it comes back. A server that lost its data must stay away for the longest ttl.
    /// With `wait`, callers poll, since there is no line over several servers. [`build`](Self::build) needs a majority, and waits
    /// for the others no more than 250 ms, on each of two connections. It refuses fewer than three
    /// servers, more than 64, and one that is named twice, and warns about an even number.
    pub fn redlock<U: Into<String>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.source = Source::Redlock(urls.into_iter().map(Into::into).collect());
        self
    }

    /// Keeps locks in a backend of your own.
    pub fn backend(mut self, backend: impl Backend) -> Self {
        self.source = Source::Backend(Arc::new(backend));
        self
    }

    /// Sets what the keys on the server begin with: `lock:` unless set. The lock `order:42` is the key `lock:{order:42}`.
    /// Must not contain braces.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the label by which others see who holds a lock: `host/pid` unless set. From 1 to 256 bytes.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Sets the lease's length for locks that set none: 30 s unless set. From 100 ms to 24 h.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.defaults.ttl = ttl;
        self
    }

    /// Sets how often a lock is tried again that does not say it: 0 unless set.
    pub fn retry(mut self, retry: u32) -> Self {
        self.defaults.retry = retry;
        self
    }

    /// Sets the pauses between tries for locks that set none: 50 ms doubling to 800 ms unless set.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.defaults.backoff = backoff;
        self
    }

    /// Sets how long to wait for the answer to a command: 1 s unless set, and never more than a third of a lock's ttl.
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.defaults.command_timeout = timeout;
        self
    }

    /// Sets how long to wait for a connection, all that it takes included: 2 s unless set.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets whom to trust over TLS: the certificates in this PEM text, in place of those that the system trusts. For `rediss://`
    /// and `rediss-sentinel://`, there for sentinels and servers alike.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) fails with [`LockError::InvalidOption`] if there is no certificate in the text or one that
    /// can't be used, and if the URL asks for no TLS.
    ///
    /// # Examples
    ///
    /// ```
    /// use distlock::{LockError, LockManager};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let builder = LockManager::builder().url("rediss://10.0.0.1").root_certificates("no certificate");
    /// assert!(matches!(builder.build().await, Err(LockError::InvalidOption { option: "root_certificates", .. })));
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.roots = Some(pem.into());
        self
    }

    /// Sets who we are over TLS, for servers that want to know (`tls-auth-clients yes`): a certificate, with those behind
    /// it that vouch for it, and its private key, both as PEM texts. For `rediss://` and `rediss-sentinel://`, there for
    /// sentinels and servers alike.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) fails with [`LockError::InvalidOption`] if one of the texts can't be used, if the two don't
    /// belong together, and if the URL asks for no TLS.
    ///
    /// # Examples
    ///
    /// ```
    /// use distlock::{LockError, LockManager};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let builder = LockManager::builder().url("rediss://10.0.0.1").client_certificate("no certificate", "no key");
    /// assert!(matches!(builder.build().await, Err(LockError::InvalidOption { option: "client_certificate", .. })));
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    pub fn client_certificate(mut self, certificate_pem: impl Into<Vec<u8>>, key_pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.client = Some((certificate_pem.into(), key_pem.into()));
        self
    }

    /// Sets how many replicas must have a lock before it counts as held: 0 unless set, which asks none.
    ///
    /// After each grant the server is told to wait (`WAIT`) until so many replicas have it, for at most the [command
    /// timeout](Self::command_timeout). Where fewer confirm it, the lock is given back and the try has failed, for a reason
    /// that passes ([`LockError::is_transient`]): with `retry` or `wait` the call goes on. That takes a round trip more, to the
    /// server and on to its replicas, over a second connection, where those who come at the same time are confirmed
    /// together; and the right `+wait`.
    ///
    /// A lock that was confirmed survives the loss of the primary if a replica that has confirmed it takes its place. It says no more
    /// than that: a failover can still promote a replica that has not, unless as many are asked for as there are; renewals are
    /// not waited for, so a lock that was renewed lately may end early on a replica that lags; and a replica confirms what
    /// it has in memory, whatever becomes of its disk.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) fails with [`LockError::InvalidOption`] if locks are not kept on a Redis server.
    ///
    /// # Examples
    ///
    /// ```
    /// use distlock::{LockError, LockManager};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let builder = LockManager::builder().url("redis://127.0.0.1:1").replica_acks(1);
    /// // Nobody listens there.
    /// assert!(matches!(builder.build().await, Err(LockError::Backend { .. })));
    ///
    /// let builder = LockManager::builder().url("memory://").replica_acks(1);
    /// assert!(matches!(builder.build().await, Err(LockError::InvalidOption { option: "replica_acks", .. })));
    /// # }
    /// ```
    pub fn replica_acks(mut self, replicas: u32) -> Self {
        self.replica_acks = replicas;
        self
    }

    /// Leaves out one of the looks at a Redis server: none is left out unless set, and several may be.
    ///
    /// # Examples
    ///
    /// ```
    /// use distlock::{LockManager, ServerCheck};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
    /// // That a restart of this server forgets what is locked is known, and no reason for a warning at each start.
    /// let builder = LockManager::builder().url("memory://").skip_check(ServerCheck::Persistence);
    /// # builder.build().await?; Ok(()) }
    /// ```
    pub fn skip_check(mut self, check: ServerCheck) -> Self {
        self.skipped.push(check);
        self
    }

    /// Connects and starts the watchdog.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] for a value that can't be used; [`LockError::Backend`] if the server can't be connected
    /// to within the connect timeout, which names its address and the reason.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, whatever it has started ends by itself.
    pub async fn build(mut self) -> Result<LockManager, LockError> {
        self.defaults.check()?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        check_prefix(&self.prefix)?;
        let owner = self.owner.clone().unwrap_or_else(default_owner);
        check_owner(&owner)?;
        #[cfg(feature = "tls")]
        ensure_cryptography();
        let backend = self.backend_of_source()?;
        let core = Core::new(backend, owner, self.defaults);
        let core = Arc::new(core.observed(self.observing.start()?, self.observing.keys_in_spans));
        core.connect().await?;
        Ok(LockManager { core })
    }

    fn backend_of_source(&self) -> Result<Arc<dyn Backend>, LockError> {
        match &self.source {
            Source::Unset => Err(invalid("url", "it is not set; set where locks are kept")),
            Source::Backend(backend) => self.needs_no_server("a backend of your own").map(|()| backend.clone()),
            Source::Url(url) if url.trim_end_matches('/').eq_ignore_ascii_case("memory:") => {
                self.needs_no_server("`memory://`").map(|()| Arc::new(MemoryBackend::new()) as Arc<dyn Backend>)
            }
            Source::Redlock(urls) => self.over_several(urls),
            Source::Url(url) if redlock::is_one(url) => self.over_several(&redlock::each_url(url)?),
            Source::Url(url) => match check_scheme(url)?.strip_suffix("-cluster") {
                Some(scheme) => Ok(Arc::new(ClusterBackend::new(cluster::access(url, scheme, self)?))),
                None => Ok(self.over_redis(target(url, &self.certificates)?)),
            },
            Source::Client(client) => {
                self.certificates.none_for("a client of the `redis` crate has its own")?;
                let client = Certificates::default().client(client.get_connection_info().clone())?;
                Ok(self.over_redis(Target::Server(Arc::new(client))))
            }
        }
    }

    fn over_redis(&self, target: Target) -> Arc<dyn Backend> {
        let backend = RedisBackend::new(target, self.prefix.clone(), self.connect_timeout);
        let inspector = Inspector::new(self.skipped.clone());
        Arc::new(backend.inspected_by(inspector).with_replica_acks(self.replica_acks))
    }

    fn over_several(&self, urls: &[String]) -> Result<Arc<dyn Backend>, LockError> {
        if self.replica_acks > 0 {
            return Err(invalid("replica_acks", "over several servers a majority of them is what confirms a lock"));
        }
        let inspector = Inspector::new(self.skipped.clone());
        let over_redis = |target| {
            RedisBackend::new(target, self.prefix.clone(), self.connect_timeout).inspected_by(inspector.clone())
        };
        Ok(Arc::new(redlock::over_several(urls, &self.certificates, over_redis)?))
    }

    /// Refuses what only a Redis server can do.
    fn needs_no_server(&self, place: &str) -> Result<(), LockError> {
        self.certificates.none_for(&format!("{place} asks for no TLS"))?;
        if self.replica_acks > 0 {
            return Err(invalid("replica_acks", format!("{place} has no replicas; only a Redis server has")));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A URL and a client may have a password in them.
        f.write_str(match self {
            Source::Unset => "Unset",
            Source::Url(_) => "Url(..)",
            Source::Client(_) => "Client(..)",
            Source::Redlock(_) => "Redlock(..)",
            Source::Backend(_) => "Backend(..)",
        })
    }
}

/// rustls panics where it has no cryptography to choose. An application that has chosen keeps its choice.
#[cfg(feature = "tls")]
fn ensure_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error says that somebody else has just chosen.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn check_prefix(prefix: &str) -> Result<(), LockError> {
    if prefix.contains(['{', '}']) {
        return Err(invalid(
            "prefix",
            "it must not contain braces, which mark the part of a name that decides on its slot",
        ));
    }
    Ok(())
}

fn check_owner(owner: &str) -> Result<(), LockError> {
    if owner.is_empty() || owner.len() > 256 || owner.chars().any(char::is_control) {
        return Err(invalid("owner", "it must have from 1 to 256 bytes and no control characters"));
    }
    Ok(())
}

fn unusable(error: &redis::RedisError) -> LockError {
    // The texts of such errors quote at most a part of the URL that is no secret: a host, a query parameter.
    invalid("url", error.to_string())
}

fn invalid(option: &'static str, reason: impl Into<String>) -> LockError {
    LockError::InvalidOption { option, reason: reason.into() }
}
