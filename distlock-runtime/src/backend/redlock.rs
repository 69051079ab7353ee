//! Locks on several independent Redis servers: a lock is held where a majority of them has granted it, in time.
//!
//! The algorithm is that of <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>. What a node leaves
//! unanswered is freed in the background: see [`debts`].

mod debts;
mod quorum;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::debts::{Debts, free_later};
use self::quorum::{Attempts, Count, Verdict};
use super::redis::RedisBackend;
use super::{Acquired, Attempt, Backend, BackendError, BoxFuture, Entry, Fencing, Released, Renewed, Route, Turn};
use crate::FencingToken;

/// Locks on several independent Redis servers.
pub(crate) struct RedlockBackend {
    nodes: Vec<Arc<RedisBackend>>,
    debts: Arc<Debts>,
}

/// An entry that outlives the call that asks for it: a node may answer after a majority has.
#[derive(Clone, Debug)]
struct Owned {
    key: String,
    value: String,
    ttl: Duration,
    timeout: Duration,
    fencing: Option<Fencing>,
}

impl Owned {
    /// With the time that one node has for its answer, which is far below the ttl: one that is frozen must not take up
    /// what is left of a lease.
    fn new(entry: &Entry<'_>) -> Owned {
        let timeout = entry.timeout.min((entry.ttl / 10).max(Duration::from_millis(50)));
        let (key, value) = (entry.key.to_owned(), entry.value.to_owned());
        Owned { key, value, ttl: entry.ttl, timeout, fencing: entry.fencing }
    }

    fn entry(&self) -> Entry<'_> {
        Entry { fencing: self.fencing, ..Entry::new(&self.key, &self.value, self.ttl, self.timeout) }
    }
}

impl fmt::Debug for RedlockBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redlock over ")?;
        f.debug_list().entries(&self.nodes).finish()
    }
}

impl RedlockBackend {
    pub(crate) fn new(nodes: Vec<RedisBackend>) -> RedlockBackend {
        RedlockBackend { nodes: nodes.into_iter().map(Arc::new).collect(), debts: Arc::default() }
    }

    fn count(&self) -> Count {
        Count::new(self.nodes.len())
    }

    /// Asks all nodes at once, each for no longer than its time. To stop listening misses nothing but the answers: the
    /// questions go on.
    fn ask<T, F>(&self, time: Duration, ask: impl Fn(Arc<RedisBackend>) -> F) -> mpsc::UnboundedReceiver<Answer<T>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (answers, receiver) = mpsc::unbounded_channel();
        for (node, backend) in self.nodes.iter().enumerate() {
            let (asked, answers) = (ask(backend.clone()), answers.clone());
            tokio::spawn(async move {
                let answer = tokio::time::timeout(time, asked).await.ok();
                // Nobody may be listening any more.
                let _ = answers.send(Answer { node, answer });
            });
        }
        receiver
    }

    async fn acquire(&self, entry: Entry<'_>, attempt: Attempt) -> Result<Acquired, BackendError> {
        let owned = Arc::new(Owned::new(&entry));
        let asked = owned.clone();
        let mut answers = self.ask(owned.timeout, move |node| {
            let owned = asked.clone();
            async move { node.acquire(owned.entry(), attempt, &mut None).await }
        });
        let mut attempts = Attempts::new(self.count());
        while let Some(Answer { node, answer }) = answers.recv().await {
            let mut answer = answer.unwrap_or_else(|| Err(late()));
            if self.debts.owes(node, &owned.value) {
                // A release of ours is on its way there: what was granted may be gone in a moment.
                answer = Err(BackendError::unanswered("what an earlier try has left there is still being freed"));
            }
            match attempts.add(node, answer) {
                Verdict::Open => {}
                Verdict::Yes => match self.raise(&owned, attempts.highest).await {
                    Ok(()) => return Ok(Acquired::Granted(attempts.highest)),
                    Err(error) => {
                        self.give_back(&owned, &attempts).await;
                        return Err(error);
                    }
                },
                Verdict::No => break,
            }
        }
        self.give_back(&owned, &attempts).await;
        attempts.refusal(&self.nodes)
    }

    /// Frees what an attempt that failed has set or may have set. Until that is done, the nodes are in debt: a grant for
    /// the same value would be freed with it. For those that did grant it, this waits a little, so that the next attempt
    /// can have them again.
    async fn give_back(&self, owned: &Arc<Owned>, attempts: &Attempts) {
        let mut granted = JoinSet::new();
        for (node, backend) in self.nodes.iter().enumerate().filter(|(node, _)| attempts.may_stand(*node)) {
            let debt = self.debts.begin(node, &owned.value);
            let (backend, owned) = (backend.clone(), owned.clone());
            let freeing = async move {
                free_later(backend, owned).await;
                drop(debt);
            };
            if attempts.stands(node) {
                granted.spawn(freeing);
            } else {
                tokio::spawn(freeing);
            }
        }
        let all = async { while granted.join_next().await.is_some() {} };
        if tokio::time::timeout(owned.timeout, all).await.is_err() {
            granted.detach_all();
        }
    }

    /// Has a majority hear of the highest of the tokens that the nodes have minted: any later majority has one node in common
    /// with that.
    async fn raise(&self, owned: &Arc<Owned>, highest: Option<FencingToken>) -> Result<(), BackendError> {
        let Some(highest) = highest else { return Ok(()) };
        let raised = owned.clone();
        let mut answers = self.ask(owned.timeout, move |node| {
            let owned = raised.clone();
            async move { node.raise_fence(owned.entry(), highest).await.map(|()| true) }
        });
        let mut count = self.count();
        while let Some(Answer { node, answer }) = answers.recv().await {
            match count.add(node, answer.unwrap_or_else(|| Err(late()))) {
                Verdict::Open => {}
                Verdict::Yes => return Ok(()),
                Verdict::No => break,
            }
        }
        Err(count.unanswered(&self.nodes))
    }

    /// Mints on all nodes, and has a majority hear of the highest.
    async fn mint(&self, entries: &[Entry<'_>]) -> Result<Option<FencingToken>, BackendError> {
        let owned: Arc<Vec<Owned>> = Arc::new(entries.iter().map(Owned::new).collect());
        let Some(time) = owned.iter().map(|owned| owned.timeout).min() else { return Ok(None) };
        let mut answers = self.ask(time, |node| {
            let owned = owned.clone();
            async move { node.mint(&owned.iter().map(Owned::entry).collect::<Vec<_>>()).await }
        });
        let (mut count, mut highest) = (self.count(), None);
        while let Some(Answer { node, answer }) = answers.recv().await {
            let answer = answer.unwrap_or_else(|| Err(late()));
            highest = highest.max(answer.as_ref().ok().copied().flatten());
            match count.add(node, answer.map(|token| token.is_some())) {
                Verdict::Open => {}
                Verdict::Yes | Verdict::No => break,
            }
        }
        if !count.outcome(&self.nodes)? {
            return Ok(None);
        }
        for owned in owned.iter() {
            self.raise(&Arc::new(owned.clone()), highest).await?;
        }
        Ok(highest)
    }

    /// Has all nodes say yes or no to each entry, and answers as soon as it is known for all what the majority says.
    async fn decide<F>(
        &self,
        entries: &[Entry<'_>],
        ask: impl Fn(Arc<RedisBackend>, Arc<Vec<Owned>>) -> F,
    ) -> Vec<Result<bool, BackendError>>
    where
        F: Future<Output = Vec<Result<bool, BackendError>>> + Send + 'static,
    {
        let owned: Arc<Vec<Owned>> = Arc::new(entries.iter().map(Owned::new).collect());
        let time = owned.iter().map(|owned| owned.timeout).min().unwrap_or_default();
        let mut answers = self.ask(time, |node| ask(node, owned.clone()));
        let mut counts: Vec<Count> = entries.iter().map(|_| self.count()).collect();
        while let Some(Answer { node, answer }) = answers.recv().await {
            let mut answer = answer.unwrap_or_default().into_iter();
            for count in &mut counts {
                count.add(node, answer.next().unwrap_or_else(|| Err(late())));
            }
            if counts.iter().all(Count::is_decided) {
                break;
            }
        }
        counts.into_iter().map(|count| count.outcome(&self.nodes)).collect()
    }

    async fn release_all(&self, entries: &[Entry<'_>]) -> Vec<Result<Released, BackendError>> {
        let freed = self.decide(entries, |node, owned| async move {
            let entries: Vec<Entry<'_>> = owned.iter().map(Owned::entry).collect();
            let mut answers = Vec::with_capacity(entries.len());
            for (released, owned) in node.release_all(&entries).await.into_iter().zip(owned.iter()) {
                if released.is_err() {
                    tokio::spawn(free_later(node.clone(), Arc::new(owned.clone())));
                }
                answers.push(released.map(|released| released == Released::Freed));
            }
            answers
        });
        let answer = |freed| if freed { Released::Freed } else { Released::NotHeld };
        freed.await.into_iter().map(|freed| freed.map(answer)).collect()
    }

    async fn renew(&self, entries: &[Entry<'_>]) -> Vec<Result<Renewed, BackendError>> {
        let extended = self.decide(entries, |node, owned| async move {
            let entries: Vec<Entry<'_>> = owned.iter().map(Owned::entry).collect();
            let renewed = node.renew(&entries).await.into_iter();
            renewed.map(|renewed| renewed.map(|renewed| renewed == Renewed::Extended)).collect()
        });
        let answer = |extended| if extended { Renewed::Extended } else { Renewed::NotHeld };
        extended.await.into_iter().map(|extended| extended.map(answer)).collect()
    }

    /// Connects to all nodes. A majority suffices: the others join when they come back.
    async fn connect(&self) -> Result<(), BackendError> {
        let mut answers = self.ask(Duration::MAX, |node| async move { node.prepare().await.map(|()| true) });
        let mut count = self.count();
        while let Some(Answer { node, answer }) = answers.recv().await {
            count.add(node, answer.unwrap_or_else(|| Err(late())));
        }
        match count.verdict() {
            Verdict::Yes => Ok(()),
            Verdict::Open | Verdict::No => Err(count.unanswered(&self.nodes).nothing_done()),
        }
    }
}

/// What a node said, or nothing if its time was over.
struct Answer<T> {
    node: usize,
    answer: Option<T>,
}

fn late() -> BackendError {
    BackendError::unanswered("it did not answer in time")
}

impl Backend for RedlockBackend {
    fn prepare(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        Box::pin(self.connect())
    }

    fn acquire<'a>(
        &'a self,
        entry: Entry<'a>,
        attempt: Attempt,
        _route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Acquired, BackendError>> {
        Box::pin(self.acquire(entry, attempt))
    }

    fn wait<'a>(
        &'a self,
        entry: Entry<'a>,
        _route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<Turn, BackendError>> {
        Box::pin(async move {
            Ok(match self.acquire(entry, Attempt::Repeated).await? {
                Acquired::Granted(fencing_token) => Turn::Come { fencing_token, others: true },
                // Nobody is the first, so that the tries of all are spread.
                Acquired::Held { value, remaining } => Turn::Waits { value, remaining, first: false },
            })
        })
    }

    fn mint<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Result<Option<FencingToken>, BackendError>> {
        Box::pin(self.mint(entries))
    }

    fn release<'a>(&'a self, entry: Entry<'a>) -> BoxFuture<'a, Result<Released, BackendError>> {
        Box::pin(async move {
            let mut released = self.release_all(&[entry]).await;
            released.pop().unwrap_or_else(|| Err(late()))
        })
    }

    fn renew<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Renewed, BackendError>>> {
        Box::pin(self.renew(entries))
    }

    fn release_all<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Released, BackendError>>> {
        Box::pin(self.release_all(entries))
    }
}
