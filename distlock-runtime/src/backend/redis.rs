//! Locks on one Redis server, or on the primary of a service that sentinels look after: a plain string with an expiry for
//! each.

mod address;
mod connection;
mod dial;
mod sentinel;
mod errors;
mod inspect;
mod live;
mod wire;
mod acks;
mod scripts;
mod renewals;
mod shards;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use self::acks::Acks;
pub(crate) use self::address::Address;
use self::connection::Connections;
use self::dial::Dialer;
pub(crate) use self::dial::Target;
pub(crate) use self::errors::is_non_local;
pub(crate) use self::inspect::Inspector;
pub use self::inspect::ServerCheck;
use self::live::{Live, released};
use self::scripts::{FREE, FREE_UNWAITED, Lua, RAISE, RELEASE, UNCHECKED_RELEASE, renewal};
pub(crate) use self::sentinel::Service;
pub(crate) use self::shards::{ShardEar, Told};
use super::{
    Acquired, AcquiredAll, Attempt, Backend, BackendError, BoxFuture, Entry, Listener, Released, Renewed, Route, Turn,
};
use crate::clock::Time;
use crate::planted::{self, Planted};
use crate::{FencingToken, events};

/// Locks on one Redis server.
pub(crate) struct RedisBackend {
    connections: Arc<Connections>,
    /// What frees a lock.
    release: &'static Lua,
    connect_timeout: Duration,
    inspector: Arc<Inspector>,
    inspected: AtomicBool,
    tried_to_call: AtomicBool,
    /// Where replicas have to confirm a lock.
    acks: Option<Arc<Acks>>,
    /// Whether each command is sent with `ASKING` before it.
    asking: bool,
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis at {}", self.address())
    }
}

impl RedisBackend {
    pub(crate) fn new(target: Target, prefix: String, connect_timeout: Duration) -> RedisBackend {
        let (dialer, inspector) = (Dialer::new(target, prefix, connect_timeout), Arc::<Inspector>::default());
        RedisBackend {
            connections: Arc::new(Connections::new(dialer.inspected_by(Some(inspector.clone())))),
            release: checked(&RELEASE),
            connect_timeout,
            inspector,
            inspected: AtomicBool::new(false),
            tried_to_call: AtomicBool::new(false),
            acks: None,
            asking: false,
        }
    }

    /// The same, where others may look at their servers by the same one, so that nothing is told twice.
    pub(crate) fn inspected_by(self, inspector: Arc<Inspector>) -> RedisBackend {
        let dialer = self.connections.dialer().clone().inspected_by(Some(inspector.clone()));
        RedisBackend { connections: Arc::new(Connections::new(dialer)), inspector, ..self }
    }

    /// The same, where a lock counts as held once so many replicas have it.
    pub(crate) fn with_replica_acks(self, replicas: u32) -> RedisBackend {
        // It goes to the same server as the other connections, so nobody looks at that once more.
        let connections = || Connections::new(self.connections.dialer().clone().inspected_by(None));
        RedisBackend { acks: (replicas > 0).then(|| Arc::new(Acks::new(replicas, connections()))), ..self }
    }

    /// The same node of a cluster for what another node says is on its way there.
    pub(crate) fn asking(&self) -> RedisBackend {
        RedisBackend {
            connections: self.connections.clone(),
            connect_timeout: self.connect_timeout,
            inspector: self.inspector.clone(),
            inspected: AtomicBool::new(true),
            tried_to_call: AtomicBool::new(true),
            acks: self.acks.clone(),
            asking: true,
            release: self.release,
        }
    }

    pub(crate) fn address(&self) -> &str {
        &self.connections.site().address
    }

    async fn live(&self, patience: Duration) -> Result<Arc<Live>, BackendError> {
        self.connections.get(patience).await.map(|live| self.as_asked(live))
    }

    /// A connection, if there is one that works.
    fn at_once(&self) -> Result<Option<Arc<Live>>, BackendError> {
        Ok(self.connections.at_once()?.map(|live| self.as_asked(live)))
    }

    fn as_asked(&self, live: Arc<Live>) -> Arc<Live> {
        if self.asking { Arc::new(live.asking()) } else { live }
    }

    /// The same for one of several servers, which keep no lines.
    pub(crate) fn without_lines(self) -> RedisBackend {
        RedisBackend { release: checked(&FREE), ..self }
    }

    /// Connects and, the first time, looks at the server.
    async fn connect(&self) -> Result<(), BackendError> {
        let live = self.connections.get(self.connect_timeout).await?;
        if !self.inspected.swap(true, Ordering::Relaxed) {
            self.inspector.inspect(&live, self.connect_timeout).await;
        }
        Ok(())
    }

    /// Whether there is a connection for the running runtime.
    pub(crate) fn is_ready(&self) -> bool {
        self.connections.is_ready()
    }

    /// Why the running runtime has no connection, if the last attempt to make one has failed.
    pub(crate) fn why_unconnected(&self) -> Option<BackendError> {
        self.connections.why_none()
    }

    /// Has a connection made for the running runtime, with nobody to wait for it.
    pub(crate) fn begin_to_connect(&self) {
        self.connections.begin();
    }

    pub(crate) async fn connect_within(&self, timeout: Duration) -> Result<(), BackendError> {
        self.connections.get(timeout).await.map(drop)
    }

    pub(crate) async fn acquire(
        &self,
        entry: Entry<'_>,
        attempt: Attempt,
        route: &mut Option<Arc<dyn Route>>,
    ) -> Result<Acquired, BackendError> {
        let live = self.live(self.connect_timeout).await?;
        *route = Some(live.clone());
        match attempt {
            Attempt::First if entry.fencing.is_none() && !entry.kind.is_shared() => live.acquire_first(&entry).await,
            Attempt::First | Attempt::Repeated => Box::pin(live.acquire_by_script(&entry)).await,
        }
    }

    async fn wait(&self, entry: Entry<'_>, route: &mut Option<Arc<dyn Route>>) -> Result<Turn, BackendError> {
        let live = self.live(self.connect_timeout).await?;
        *route = Some(live.clone());
        live.wait(&entry).await
    }

    pub(crate) async fn acquire_all(
        &self,
        entries: &[Entry<'_>],
        route: &mut Option<Arc<dyn Route>>,
    ) -> Result<AcquiredAll, BackendError> {
        let live = self.live(self.connect_timeout).await?;
        *route = Some(live.clone());
        live.acquire_all(entries).await
    }

    pub(crate) async fn mint(&self, entries: &[Entry<'_>]) -> Result<Option<FencingToken>, BackendError> {
        self.live(self.connect_timeout).await?.mint(entries).await
    }

    /// Raises the last fencing tokens of locks to those that the entries are to be above.
    pub(crate) async fn raise_fences(&self, entries: &[Entry<'_>]) -> Vec<Result<i64, BackendError>> {
        self.call_all(|_| &RAISE, entries).await
    }

    /// Releases a lock without a look at its line, for the time while the two may be on different nodes of a cluster. Who
    /// waits finds out by asking.
    pub(crate) async fn release_alone(&self, entry: Entry<'_>) -> Result<Released, BackendError> {
        self.live(entry.timeout).await?.release(&FREE, &entry).await
    }

    /// What a node of a cluster knows of the cluster.
    pub(crate) async fn cluster(&self, timeout: Duration) -> Result<(String, redis::Value), BackendError> {
        self.live(timeout).await?.cluster(timeout).await
    }

    pub(crate) async fn release(&self, entry: Entry<'_>) -> Result<Released, BackendError> {
        let begin = Time::now();
        let (live, first) = match self.at_once()? {
            Some(live) => (live, entry),
            None => (Box::pin(self.live(entry.timeout)).await?, entry.since(begin)),
        };
        let answer = match self.unwaited(&entry) {
            Some(script) => match live.release(script, &first).await {
                Ok(Released::NotHeld) => Box::pin(live.release(self.release, &entry.since(begin))).await,
                answer => answer,
            },
            None => Box::pin(live.release(self.release, &first)).await,
        };
        match answer {
            Err(interrupted) if interrupted.is_interrupted() => {
                Box::pin(self.release_again(entry.since(begin), interrupted)).await
            }
            answer => answer,
        }
    }

    /// What frees a lock whose value says that nobody waits, for one who can't stand in the line and so need not look at it.
    fn unwaited(&self, entry: &Entry<'_>) -> Option<&'static Lua> {
        let may_stand = entry.waiter.is_some() || entry.marked || entry.kind.is_shared();
        (!may_stand && std::ptr::eq(self.release, &raw const RELEASE)).then_some(&FREE_UNWAITED)
    }

    /// As with an acquire, an idle connection may have been closed. Only that now "not held" may also mean that the first request
    /// was carried out after all, so that it says nothing.
    async fn release_again(&self, entry: Entry<'_>, interrupted: BackendError) -> Result<Released, BackendError> {
        let begin = Time::now();
        let live = self.live(entry.timeout).await?;
        let again = live.release(self.release, &entry.since(begin)).await?;
        if again == Released::Freed { Ok(again) } else { Err(interrupted) }
    }

    /// Connects to a node of a cluster to hear what is published in its slots.
    pub(crate) async fn open_ear(&self, tell: impl Fn(Told) + Send + Sync + 'static) -> Result<ShardEar, BackendError> {
        self.connections.dialer().open_ear(tell).await
    }

    /// Starts the expiry of one entry anew.
    pub(crate) async fn renew_one(&self, entry: Entry<'_>) -> Result<Renewed, BackendError> {
        let answer = self.call_all(renewal, &[entry]).await.pop();
        answer.unwrap_or_else(|| Err(BackendError::unanswered("the server answered too few"))).map(renewed)
    }

    /// Waiters are called by scripts that must not fail on it, so whether they can be is found out beforehand, once.
    pub(crate) async fn try_to_call(&self, command: &str, channel: &str) {
        if self.tried_to_call.swap(true, Ordering::Relaxed) {
            return;
        }
        let Ok(live) = self.connections.get(self.connect_timeout).await else { return };
        if let Err(error) = live.call_nobody(command, channel, self.connect_timeout).await {
            events::not_calling(&error);
        }
    }

    async fn call_all(
        &self,
        lua: impl Fn(&Entry<'_>) -> &'static Lua,
        entries: &[Entry<'_>],
    ) -> Vec<Result<i64, BackendError>> {
        let (begin, timeout) = (Time::now(), entries.iter().map(|entry| entry.timeout).min().unwrap_or_default());
        match self.live(timeout).await {
            Ok(live) => live.call_all(lua, entries, begin, timeout).await,
            Err(error) => entries.iter().map(|_| Err(BackendError::passing(error.to_string()))).collect(),
        }
    }
}

/// What a renewal has answered.
fn renewed(answer: i64) -> Renewed {
    if answer == 1 { Renewed::Extended } else { Renewed::NotHeld }
}

impl Backend for RedisBackend {
    fn prepare(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        Box::pin(self.connect())
    }

    fn acquire<'a>(
        &'a self,
        entry: Entry<'a>,
        attempt: Attempt,
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Acquired, BackendError>> {
        match &self.acks {
            None => Box::pin(self.acquire(entry, attempt, route)),
            Some(acks) => Box::pin(acks.acquire(self, entry, attempt, route)),
        }
    }

    fn wait<'a>(
        &'a self,
        entry: Entry<'a>,
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Turn, BackendError>> {
        match &self.acks {
            None => Box::pin(self.wait(entry, route)),
            Some(acks) => Box::pin(acks.wait(self, entry, route)),
        }
    }

    fn listen<'a>(&'a self, waiter: &'a str, listener: &'a dyn Listener) -> BoxFuture<'a, BackendError> {
        Box::pin(async move {
            self.try_to_call("PUBLISH", &format!("{}{waiter}", self.connections.site().channels)).await;
            self.connections.dialer().listen(waiter, listener).await
        })
    }

    fn acquires_all_at_once(&self) -> bool {
        true
    }

    fn only_exclusive(&self) -> Option<&'static str> {
        None
    }

    fn acquire_all<'a>(
        &'a self,
        entries: &'a [Entry<'a>],
        route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<AcquiredAll, BackendError>> {
        match &self.acks {
            None => Box::pin(self.acquire_all(entries, route)),
            Some(acks) => Box::pin(acks.acquire_all(self, entries, route)),
        }
    }

    fn mint<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Result<Option<FencingToken>, BackendError>> {
        match &self.acks {
            None => Box::pin(self.mint(entries)),
            Some(acks) => Box::pin(acks.mint(self, entries)),
        }
    }

    fn release<'a>(&'a self, entry: Entry<'a>) -> BoxFuture<'a, Result<Released, BackendError>> {
        Box::pin(self.release(entry))
    }

    fn renew<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Renewed, BackendError>>> {
        Box::pin(async move { self.renew_all(entries).await })
    }

    fn release_all<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Released, BackendError>>> {
        Box::pin(async move {
            let answers = self.call_all(|_| self.release, entries).await;
            answers.into_iter().map(|answer| answer.map(released)).collect()
        })
    }
}

/// The release that looks whose lock it is, unless a fault is planted.
fn checked(release: &'static Lua) -> &'static Lua {
    if planted::is(Planted::ReleaseWithoutCheck) { &UNCHECKED_RELEASE } else { release }
}
