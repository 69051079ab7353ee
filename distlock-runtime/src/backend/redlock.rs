//! Locks on several independent Redis servers: a lock is held where a majority of them has granted it, in time.
//!
//! The algorithm is that of <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>. All servers are
//! asked at once, and the majority's answer is the answer. What an attempt that failed has set is freed at once, and by the
//! watchdog where a server does not answer.

mod ask;
mod asked;
mod node;
mod quorum;
mod round;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::ask::Tried;
use self::asked::{Asked, Sweep};
use self::node::Node;
use self::quorum::{Attempts, Count, Verdict};
use self::round::{Ready, Round};
use super::redis::RedisBackend;
use super::{Acquired, AcquiredAll, Attempt, Backend, BackendError, BoxFuture, Entry, Released, Renewed, Route, Turn};
use crate::FencingToken;

/// For how long those servers are waited for that are not connected to when a majority is.
const A_MOMENT: Duration = Duration::from_millis(250);

/// Locks on several independent Redis servers.
pub(crate) struct RedlockBackend {
    nodes: Arc<[Arc<Node>]>,
}

impl fmt::Debug for RedlockBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redlock over ")?;
        f.debug_list().entries(self.nodes.iter()).finish()
    }
}

impl RedlockBackend {
    /// The most servers that there may be: each has a bit in [`Traces`](crate::traces::Traces).
    pub(crate) const MOST: usize = 64;

    pub(crate) fn new(nodes: Vec<RedisBackend>) -> RedlockBackend {
        RedlockBackend { nodes: nodes.into_iter().map(|redis| Arc::new(Node::new(redis.without_lines()))).collect() }
    }

    fn count(&self) -> Count {
        Count::new(self.nodes.len())
    }

    async fn acquire(&self, entry: Entry<'_>, attempt: Attempt) -> Result<Acquired, BackendError> {
        let asked = Asked::all(&[entry]);
        let ask = |place, node, ready| ask::acquire(place, node, asked.clone(), (attempt, ready));
        self.attempt(&asked, Round::begin(&self.nodes, |_| true, ask)).await.1
    }

    /// Takes all entries on a majority of the servers, each of which takes all or none.
    async fn acquire_all(&self, entries: &[Entry<'_>]) -> Result<AcquiredAll, BackendError> {
        let asked = Asked::all(entries);
        let ask = |place, node, ready| ask::acquire_all(place, node, asked.clone(), ready);
        let (index, answer) = self.attempt(&asked, Round::begin(&self.nodes, |_| true, ask)).await;
        match answer {
            Ok(Acquired::Granted(token)) => Ok(AcquiredAll::Granted(token)),
            Ok(Acquired::Held { value, remaining }) => Ok(AcquiredAll::Held { index, value, remaining }),
            Err(error) if error.is_foreign() => Ok(AcquiredAll::Foreign { index, found: error.to_string() }),
            Err(error) => Err(error),
        }
    }

    /// Takes an attempt for what it is, as soon as that is known. Whatever one that failed has set or may have set is freed:
    /// by releases that are sent before this returns, and by the watchdog where they don't arrive.
    async fn attempt<A, F>(&self, asked: &Arc<[Asked]>, mut round: Round<A, F>) -> Tried
    where
        A: Fn(usize, Arc<Node>, Ready) -> F,
        F: Future<Output = Tried> + Send + 'static,
    {
        let mut attempts = Attempts::new(self.count());
        while attempts.verdict() == Verdict::Open {
            match round.next().await {
                Some((node, answer)) => attempts.add(node, answer),
                None if attempts.wants_more() && round.ask_spare() => {}
                None => break,
            }
        }
        let outcome = if attempts.verdict() == Verdict::Yes {
            (0, self.raise(asked, attempts.highest).await.map(|()| Acquired::Granted(attempts.highest)))
        } else {
            round.spared().iter().for_each(|node| attempts.spare(*node));
            attempts.refusal(&self.nodes)
        };
        if matches!(outcome, (_, Ok(Acquired::Granted(_)))) {
            // A server that refuses gets no release for what it has not.
            round.leave(());
        } else {
            asked.iter().for_each(Asked::close);
            self.give_back(asked).await;
            round.leave(Sweep::of(asked));
        }
        outcome
    }

    /// Sends releases, behind those requests of an attempt that have had no answer.
    async fn give_back(&self, asked: &Arc<[Asked]>) {
        let sweep = Sweep::of(asked);
        let is_ready = |place: usize| self.nodes.get(place).is_some_and(|node| node.redis.is_ready());
        let may_stand = |place: usize| may_stand(asked, place) && is_ready(place);
        let ask = |place, node, _| ask::release_all(place, node, asked.clone());
        let mut round = Round::with_all(&self.nodes, may_stand, ask);
        round.send().await;
        round.leave(sweep);
    }

    /// Has a majority hear of the highest of the tokens that the servers have minted: any later majority has one server in
    /// common with that.
    async fn raise(&self, asked: &Arc<[Asked]>, highest: Option<FencingToken>) -> Result<(), BackendError> {
        let Some(highest) = highest else { return Ok(()) };
        let mut count = self.count();
        let mut round = Round::begin(&self.nodes, |_| true, |_, node, _| ask::raise(node, asked.clone(), highest));
        while count.verdict() == Verdict::Open {
            match round.next().await {
                Some((node, answer)) => count.add(node, answer.map(|()| true)),
                None if round.ask_spare() => {}
                None => break,
            }
        }
        round.leave(());
        if count.verdict() == Verdict::Yes { Ok(()) } else { Err(count.unanswered(&self.nodes).nothing_done()) }
    }

    /// Mints on all servers, and has a majority hear of the highest. Each entry has a majority of its own, which may have but
    /// one server in common with that of another.
    async fn mint(&self, entries: &[Entry<'_>]) -> Result<Option<FencingToken>, BackendError> {
        let asked = Asked::all(entries);
        let (mut counts, mut highest) = (self.counts(entries), None);
        let mut round = Round::begin(&self.nodes, |_| true, |_, node, ready| ask::mint(node, asked.clone(), ready));
        while !counts.iter().all(Count::is_decided) {
            match round.next().await {
                Some((node, answers)) => {
                    for (count, answer) in counts.iter_mut().zip(answers) {
                        highest = highest.max(answer.as_ref().ok().copied().flatten());
                        count.add(node, answer.map(|token| token.is_some()));
                    }
                }
                None if round.ask_spare() => {}
                None => break,
            }
        }
        round.leave(());
        for count in counts {
            if !count.outcome(&self.nodes)? {
                return Ok(None);
            }
        }
        self.raise(&asked, highest).await.map(|()| highest)
    }

    fn counts(&self, entries: &[Entry<'_>]) -> Vec<Count> {
        entries.iter().map(|_| self.count()).collect()
    }

    /// Frees an entry wherever it may stand. Returns as soon as a majority has answered.
    async fn release(&self, entry: Entry<'_>) -> Result<Released, BackendError> {
        let asked = Asked::all(&[entry]);
        asked.iter().for_each(Asked::close);
        let (mut sweep, mut count) = (Sweep::of(&asked), self.count());
        for place in (0..self.nodes.len()).filter(|place| !may_stand(&asked, *place)) {
            count.add(place, Ok(false));
        }
        let ask = |place, node, _| ask::release(place, node, asked.clone());
        let mut round = Round::begin(&self.nodes, |place| may_stand(&asked, place), ask);
        while !count.is_decided() {
            match round.next().await {
                Some((node, answer)) => count.add(node, answer.map(|released| released == Released::Freed)),
                None if round.ask_spare() => {}
                None => break,
            }
        }
        let freed = count.outcome(&self.nodes).inspect_err(|_| sweep.forget());
        round.leave(sweep);
        freed.map(|freed| if freed { Released::Freed } else { Released::NotHeld })
    }

    /// Frees entries wherever they may stand, and waits for all servers: where one has not answered, there is no answer.
    async fn release_all(&self, entries: &[Entry<'_>]) -> Vec<Result<Released, BackendError>> {
        let asked = Asked::all_patiently(entries);
        asked.iter().for_each(Asked::close);
        let ask = |place, node, _| ask::release_all(place, node, asked.clone());
        let mut round = Round::with_all(&self.nodes, |place| may_stand(&asked, place), ask);
        let mut outcomes: Vec<_> = entries.iter().map(|_| Ok(Released::NotHeld)).collect();
        while let Some((_, answers)) = round.next().await {
            for (outcome, answer) in outcomes.iter_mut().zip(answers) {
                match answer {
                    Some(Ok(Released::Freed)) if outcome.is_ok() => *outcome = Ok(Released::Freed),
                    Some(Err(error)) => *outcome = Err(error),
                    Some(Ok(_)) | None => {}
                }
            }
        }
        // What may still come to stand somewhere has to be looked for again.
        let whole = |(outcome, asked): (Result<_, _>, &Asked)| {
            outcome.map(|released| if asked.is_free() { released } else { Released::NotHeld })
        };
        outcomes.into_iter().zip(asked.iter()).map(whole).collect()
    }

    async fn renew(&self, entries: &[Entry<'_>]) -> Vec<Result<Renewed, BackendError>> {
        let asked = Asked::all_patiently(entries);
        let mut counts = self.counts(entries);
        let mut add = |node: usize, answers: Vec<Result<Renewed, BackendError>>| {
            for (count, answer) in counts.iter_mut().zip(answers) {
                count.add(node, answer.map(|renewed| renewed == Renewed::Extended));
            }
            counts.iter().all(Count::is_decided)
        };
        for place in (0..self.nodes.len()).filter(|place| !may_stand(&asked, *place)) {
            add(place, entries.iter().map(|_| Ok(Renewed::NotHeld)).collect());
        }
        let ask = |place, node, _| ask::renew(place, node, asked.clone());
        let mut round = Round::with_all(&self.nodes, |place| may_stand(&asked, place), ask);
        while let Some((node, answers)) = round.next().await {
            if add(node, answers) {
                break;
            }
        }
        round.leave(());
        let renewed = |extended| if extended { Renewed::Extended } else { Renewed::NotHeld };
        let outcomes: Vec<_> = counts.into_iter().map(|count| count.outcome(&self.nodes).map(renewed)).collect();
        self.spread(entries, &outcomes).await;
        outcomes
    }

    /// Sets locks that a majority still has on those servers where they certainly don't stand: that were away when they were
    /// taken, or came back without their data. That is no vote for this renewal, but for the next one. Nobody waits for it.
    async fn spread(&self, entries: &[Entry<'_>], outcomes: &[Result<Renewed, BackendError>]) {
        let extended = entries.iter().zip(outcomes).filter(|(_, outcome)| matches!(outcome, Ok(Renewed::Extended)));
        let extended: Vec<Entry<'_>> = extended.map(|(entry, _)| *entry).collect();
        let places = 0..self.nodes.len();
        let asked = Asked::all_patiently(&extended);
        let lacks = |place: usize| asked.iter().any(|asked| asked.lacks(place));
        let is_ready = |place: usize| self.nodes.get(place).is_some_and(|node| node.is_ready());
        let lacking: Vec<usize> = places.filter(|place| lacks(*place) && is_ready(*place)).collect();
        if !lacking.is_empty() {
            let ask = |place, node, _| ask::join(place, node, asked.clone());
            let mut round = Round::with_all(&self.nodes, |place| lacking.contains(&place), ask);
            round.send().await;
            round.leave(());
        }
    }

    /// Connects to all servers. A majority suffices: the others have a moment more, and else join when they come back.
    async fn connect(&self) -> Result<(), BackendError> {
        let mut round = Round::with_all(&self.nodes, |_| true, |_, node, _| ask::prepare(node));
        let mut count = self.count();
        while count.verdict() != Verdict::Yes {
            match round.next().await {
                Some((node, answer)) => count.add(node, answer.map(|()| true)),
                None => return Err(count.unanswered(&self.nodes).nothing_done()),
            }
        }
        let rest = async { while round.next().await.is_some() {} };
        let _ = tokio::time::timeout(A_MOMENT, rest).await;
        round.leave(());
        Ok(())
    }
}

fn may_stand(asked: &[Asked], place: usize) -> bool {
    asked.iter().any(|asked| asked.may_stand(place))
}

impl Backend for RedlockBackend {
    fn prepare(&self) -> BoxFuture<'_, Result<(), BackendError>> {
        Box::pin(self.connect())
    }

    fn only_exclusive(&self) -> Option<&'static str> {
        Some(
            "over several independent servers there are none but exclusive locks, since no server knows of all holders; leave \
             `mode` and `permits` out, or use one server, Sentinel or a cluster",
        )
    }

    fn reuses_values(&self) -> bool {
        false
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
            Ok(match self.acquire(entry, Attempt::First).await? {
                // Nobody can tell whether others wait elsewhere.
                Acquired::Granted(fencing_token) => Turn::Come { fencing_token, others: true },
                Acquired::Held { value, remaining } => Turn::Waits { value, remaining, first: false },
            })
        })
    }

    fn acquire_all<'a>(
        &'a self,
        entries: &'a [Entry<'a>],
        _route: &'a mut Option<Arc<dyn Route>>,
    ) -> BoxFuture<'a, Result<AcquiredAll, BackendError>> {
        Box::pin(self.acquire_all(entries))
    }

    fn mint<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Result<Option<FencingToken>, BackendError>> {
        Box::pin(self.mint(entries))
    }

    fn release<'a>(&'a self, entry: Entry<'a>) -> BoxFuture<'a, Result<Released, BackendError>> {
        Box::pin(self.release(entry))
    }

    fn renew<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Renewed, BackendError>>> {
        Box::pin(self.renew(entries))
    }

    fn release_all<'a>(&'a self, entries: &'a [Entry<'a>]) -> BoxFuture<'a, Vec<Result<Released, BackendError>>> {
        Box::pin(self.release_all(entries))
    }
}
