//! Having replicas confirm a lock before it counts as held.
//!
//! `WAIT` blocks the connection that it is sent over until replicas have answered or its time is over. So there is a second
//! connection for it: over the one that all commands share, a replica that is ill would make every caller stand still.

mod round;

use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, Value};

use self::round::Renewal;
pub(super) use self::round::Round;
use super::RedisBackend;
use super::connection::Connections;
use super::live::{Live, millis};
use super::scripts::{RELEASE, renewal};
use crate::FencingToken;
use crate::backend::{Acquired, AcquiredAll, Attempt, BackendError, Entry, Route, Turn};
use crate::clock::Time;

/// How many replicas have to confirm, and the way on which they are asked.
pub(super) struct Acks {
    replicas: u32,
    connections: Arc<Connections>,
}

/// A request whose grant is to be confirmed.
struct Asked {
    /// Where replicas are waited for.
    line: Arc<Live>,
    sent: Time,
}

impl Acks {
    pub(super) fn new(replicas: u32, connections: Connections) -> Acks {
        Acks { replicas, connections: Arc::new(connections) }
    }

    pub(super) async fn acquire(
        &self,
        backend: &RedisBackend,
        entry: Entry<'_>,
        attempt: Attempt,
        route: &mut Option<Arc<dyn Route>>,
    ) -> Result<Acquired, BackendError> {
        let asked = self.connect(backend).await?;
        let acquired = backend.acquire(entry, attempt, route).await?;
        if matches!(acquired, Acquired::Granted(_)) {
            self.confirm_or_give_back(backend, &asked, &[entry]).await?;
        }
        Ok(acquired)
    }

    pub(super) async fn wait(
        &self,
        backend: &RedisBackend,
        entry: Entry<'_>,
        route: &mut Option<Arc<dyn Route>>,
    ) -> Result<Turn, BackendError> {
        let asked = self.connect(backend).await?;
        let turn = backend.wait(entry, route).await?;
        if matches!(turn, Turn::Come { .. }) {
            self.confirm_or_give_back(backend, &asked, &[entry]).await?;
        }
        Ok(turn)
    }

    pub(super) async fn acquire_all(
        &self,
        backend: &RedisBackend,
        entries: &[Entry<'_>],
        route: &mut Option<Arc<dyn Route>>,
    ) -> Result<AcquiredAll, BackendError> {
        let asked = self.connect(backend).await?;
        let acquired = backend.acquire_all(entries, route).await?;
        if matches!(acquired, AcquiredAll::Granted(_)) {
            // Who waits has each of the locks already, confirmed, and asks once more for all of them. To give them back is
            // up to their guards, which know of renewals that may be under way.
            let has_them = entries.iter().all(|entry| entry.waiter.is_some());
            if has_them {
                self.confirm(&asked, entries).await.map_err(BackendError::nothing_done)?;
            } else {
                self.confirm_or_give_back(backend, &asked, entries).await?;
            }
        }
        Ok(acquired)
    }

    /// Mints a token that a failover does not forget. The locks stay, whatever comes of it: they are held by a body.
    pub(super) async fn mint(
        &self,
        backend: &RedisBackend,
        entries: &[Entry<'_>],
    ) -> Result<Option<FencingToken>, BackendError> {
        let asked = self.connect(backend).await?;
        let token = backend.mint(entries).await?;
        if token.is_some() {
            self.confirm(&asked, entries).await.map_err(BackendError::nothing_done)?;
        }
        Ok(token)
    }

    /// Connects on both ways, so that the time for an answer is not used up by that.
    async fn connect(&self, backend: &RedisBackend) -> Result<Asked, BackendError> {
        let begin = Time::now();
        backend.connections.get(backend.connect_timeout).await?;
        let left = backend.connect_timeout.saturating_sub(Time::now().saturating_since(begin));
        let line = self.connections.get(left).await?;
        Ok(Asked { line, sent: Time::now() })
    }

    async fn confirm_or_give_back(
        &self,
        backend: &RedisBackend,
        asked: &Asked,
        entries: &[Entry<'_>],
    ) -> Result<(), BackendError> {
        let Err(unconfirmed) = self.confirm(asked, entries).await else { return Ok(()) };
        let bounded = |entry: &Entry<'_>| entry.since(asked.sent).timeout.max(entry.timeout / 8);
        let entries: Vec<_> = entries.iter().map(|entry| Entry { timeout: bounded(entry), ..*entry }).collect();
        let given_back = backend.call_all(|_| &RELEASE, &entries).await;
        if given_back.iter().any(Result::is_err) {
            return Err(BackendError::unanswered(format!(
                "{unconfirmed}; whether it could be given back is not known"
            )));
        }
        Err(unconfirmed.nothing_done())
    }

    /// Returns once enough replicas have what was granted.
    async fn confirm(&self, asked: &Asked, entries: &[Entry<'_>]) -> Result<(), BackendError> {
        let left = || entries.iter().map(|entry| entry.since(asked.sent).timeout).min().unwrap_or_default();
        match self.ask(&asked.line, entries, left()).await {
            // As with an acquire, an idle connection may have been closed.
            Err(interrupted) if interrupted.is_interrupted() => {
                let line = self.connections.get(left()).await?;
                self.ask(&line, entries, left()).await
            }
            answer => answer,
        }
    }

    async fn ask(&self, line: &Live, entries: &[Entry<'_>], timeout: Duration) -> Result<(), BackendError> {
        let begin = Time::now();
        // By their source: behind a hash that the server does not know, WAIT would wait for nothing.
        let renewals = entries.iter().map(|entry| {
            let renewal = renewal(entry);
            (renewal, renewal.by_source(&line.name(entry.key), entry, false))
        });
        let place = line.round().join(renewals.collect());
        let (replicas, answer) = patience(timeout);
        let Some(_turn) = place.turn(answer).await else { return Err(self.silent(line, replicas)) };
        if let Some(answer) = place.answer() {
            return answer;
        }
        let asked = self.ask_for_all(line, timeout.saturating_sub(Time::now().saturating_since(begin))).await;
        place.answer().unwrap_or(asked)
    }

    /// Renews what all who wait were granted and waits for replicas, all in one go. The renewals are the writes that are
    /// waited for, since `WAIT` looks at those of its own connection only; what was written before over another one,
    /// replicas have by then, too. And they tell whether the locks still stand.
    ///
    /// If too few replicas confirm, that is an answer for who asks: the time of the others is not over yet.
    async fn ask_for_all(&self, line: &Live, timeout: Duration) -> Result<(), BackendError> {
        let (patience, timeout) = patience(timeout);
        let (askers, mut pipeline) = (line.round().askers(), redis::pipe());
        for (_, renewal) in askers.iter().flat_map(|asker| &asker.renewals) {
            pipeline.add_command(renewal.clone());
        }
        pipeline.cmd("WAIT").arg(self.replicas).arg(millis(patience));
        let mut answers = match line.send_all(&pipeline, timeout).await {
            Ok(answers) => answers,
            Err(error) if error.is_timeout() => return Err(self.silent(line, patience)),
            Err(error) => return Err(line.explain(error)),
        };
        let enough = match answers.pop().unwrap_or(Ok(Value::Nil)).map_err(|error| line.explain(error)) {
            Ok(Value::Int(count)) if count >= i64::from(self.replicas) => Ok(()),
            Ok(Value::Int(count)) => Err(BackendError::passing(self.too_few(count, patience, line.address()))),
            Ok(other) => Err(line.unexpected(&other)),
            Err(error) => Err(error),
        };
        let mut answers = answers.into_iter();
        for asker in askers {
            match stands(line, &asker.renewals, answers.by_ref()) {
                Ok(()) if enough.is_err() => {}
                answer => asker.settle(answer),
            }
        }
        enough
    }

    fn too_few(&self, count: i64, patience: Duration, address: &str) -> String {
        let (replicas, millis) = (self.replicas, patience.as_millis());
        format!(
            "{count} of {replicas} replicas of {address} confirmed the lock within {millis}ms, so it does not count"
        )
    }

    fn silent(&self, line: &Live, patience: Duration) -> BackendError {
        let (address, replicas, millis) = (line.address(), self.replicas, patience.as_millis());
        BackendError::unanswered(format!(
            "{address} did not say in time how many of {replicas} replicas confirmed the lock within {millis}ms, so it does not count"
        ))
    }
}

/// Whether all locks of a caller have been renewed.
fn stands(
    line: &Live,
    renewals: &[Renewal],
    answers: &mut impl Iterator<Item = Result<Value, RedisError>>,
) -> Result<(), BackendError> {
    let answers: Vec<_> = renewals.iter().zip(answers).collect();
    for ((script, _), renewed) in answers {
        if line.judge_one(renewed, script)? != 1 {
            let text = format!("a lock was gone from {} before replicas confirmed it", line.address());
            return Err(BackendError::passing(text));
        }
    }
    Ok(())
}

/// For how long to wait for replicas, and how long for the answer. The rest of the time is for giving the lock back.
/// A server looks at its waits ten times a second, so it may answer that much late.
fn patience(time: Duration) -> (Duration, Duration) {
    let answer = time * 15 / 16;
    (answer.saturating_sub(Duration::from_millis(120)).max(time / 2), answer)
}
