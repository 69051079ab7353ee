mod redlock;
mod service;

use std::sync::Arc;
use std::time::Duration;

use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use crate::backend::redis::{RedisBackend, Target};
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
    /// With `redlock://[user:password@]h1,h2,h3[/db]`, a lock is held where a majority of several independent servers has
    /// granted it: see [`redlock`](Self::redlock).
    ///
    /// The protocol is RESP3 unless `?protocol=resp2` asks for the older one. What has a meaning in URLs is percent-encoded
    /// in users and passwords.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.source = Source::Url(url.into());
        self
    }

    /// Connects as a client of the `redis` crate would, for what a URL can't say, such as certificates of your own. To its
    /// TCP settings are added those that are not set there: no delay, keepalive and a user timeout.
    pub fn redis_client(mut self, client: Client) -> Self {
        self.source = Source::Client(Box::new(client));
        self
    }

    /// Keeps locks on several independent servers, each with its own URL: a lock is held where a majority of them has granted
    /// it, so it survives the loss of a minority. There are at least three, and an odd number is best.
    ///
    /// They share nothing: no replicas of one another, no cluster. All are asked at once; one that is down or frozen costs
    /// nothing but its vote, and joins when it comes back. A server that lost its data must stay away for the longest ttl.
    /// With `wait`, callers poll, since there is no line over several servers. [`build`](Self::build) refuses fewer than three
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
    pub async fn build(self) -> Result<LockManager, LockError> {
        self.defaults.check()?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        check_prefix(&self.prefix)?;
        let owner = self.owner.unwrap_or_else(default_owner);
        check_owner(&owner)?;
        let over_redis = |target| RedisBackend::new(target, self.prefix.clone(), self.connect_timeout);
        #[cfg(feature = "tls")]
        ensure_cryptography();
        let backend = match self.source {
            Source::Backend(backend) => backend,
            Source::Client(client) => {
                Arc::new(over_redis(Target::Server(Arc::new(tuned(client.get_connection_info().clone())?))))
            }
            Source::Redlock(urls) => Arc::new(redlock::over_several(&urls, over_redis)?),
            Source::Url(url) if redlock::is_one(&url) => {
                Arc::new(redlock::over_several(&redlock::each_url(&url), over_redis)?)
            }
            Source::Url(url) if url.trim_end_matches('/').eq_ignore_ascii_case("memory:") => {
                Arc::new(MemoryBackend::new())
            }
            Source::Url(url) => Arc::new(over_redis(target(&url)?)),
            Source::Unset => return Err(invalid("url", "it is not set; set where locks are kept")),
        };
        let core = Arc::new(Core::new(backend, owner, self.defaults));
        core.connect().await?;
        Ok(LockManager { core })
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

fn target(url: &str) -> Result<Target, LockError> {
    let scheme = check_scheme(url)?;
    if let Some(scheme) = scheme.strip_suffix("-sentinel") {
        return Ok(Target::Service(Arc::new(service::service(url, scheme)?)));
    }
    let info = url.into_connection_info().map_err(|error| {
        let form = "it has the form `redis://[user:password@]host[:port][/db]`";
        invalid("url", format!("{form}, and can't be read otherwise: {error}"))
    })?;
    tuned(settled(info, url.contains("protocol="))).map(|client| Target::Server(Arc::new(client)))
}

/// What we say of ourselves, and how we speak unless the URL says how.
fn settled(info: ConnectionInfo, has_protocol: bool) -> ConnectionInfo {
    let mut settings = info.redis_settings().clone().set_lib_name("distlock", env!("CARGO_PKG_VERSION"));
    if !has_protocol {
        settings = settings.set_protocol(ProtocolVersion::RESP3);
    }
    info.set_redis_settings(settings)
}

/// Makes a client whose connections answer without delay and notice their end: the crate's defaults leave Nagle's
/// algorithm on, and a dead peer to the kernel's patience of minutes.
fn tuned(info: ConnectionInfo) -> Result<Client, LockError> {
    let mut tcp = info.tcp_settings().clone().set_nodelay(true);
    if tcp.keepalive().is_none() {
        let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
        tcp = tcp.set_keepalive(keepalive);
    }
    #[cfg(target_os = "linux")]
    if tcp.user_timeout().is_none() {
        tcp = tcp.set_user_timeout(Duration::from_secs(20));
    }
    Client::open(info.set_tcp_settings(tcp)).map_err(|error| unusable(&error))
}

/// rustls panics where it has no cryptography to choose. An application that has chosen keeps its choice.
#[cfg(feature = "tls")]
fn ensure_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error says that somebody else has just chosen.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// The scheme, if it is one of ours.
fn check_scheme(url: &str) -> Result<String, LockError> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme).to_ascii_lowercase();
    match scheme.as_str() {
        "memory" => Err(invalid("url", "`memory://` takes nothing behind it")),
        "redis" | "redis+unix" | "unix" | "redis-sentinel" => Ok(scheme),
        "rediss" | "rediss-sentinel" if cfg!(feature = "tls") => Ok(scheme),
        "rediss" | "rediss-sentinel" => {
            Err(invalid("url", format!("`{scheme}://` needs the feature `tls` of distlock")))
        }
        "redis-cluster" => {
            Err(invalid("url", format!("`{scheme}://` is not built yet; use `redis://` with a single server")))
        }
        // The URL itself stays out of the text: it may have a password.
        _ => {
            let schemes = "`redis://`, `rediss://`, `redis+unix://`, `redis-sentinel://`, `redlock://` or `memory://`";
            Err(invalid("url", format!("it must begin with {schemes}")))
        }
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
