use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};

use super::acks::Round;
use super::errors::{explain_with, is_noscript, is_wrong_type};
use super::scripts::{ACQUIRE, ACQUIRE_ALL, Lua, MINT, RELEASE, SHARE, Source, WAIT, command_for_all};
use super::sentinel::Home;
use crate::FencingToken;
use crate::backend::{Acquired, AcquiredAll, BackendError, BoxFuture, Entry, Released, Route, Turn};
use crate::clock::Time;
use crate::key::encode_hash_tag;

/// What the connections to one server have in common.
pub(super) struct Site {
    /// Where the server is, without user and password.
    pub(super) address: String,
    pub(super) prefix: String,
    /// What the channels begin with on which managers hear of locks that were handed over to them.
    pub(super) channels: String,
    /// Where the server is the primary that sentinels have named.
    pub(super) home: Option<Home>,
    /// Whether the server is a node of a cluster, where waiters listen on it alone.
    pub(super) sharded: bool,
}

impl Site {
    /// The lock's name on the server. What the braces enclose decides on the cluster slot, also that of any helper key.
    pub(super) fn name(&self, key: &str) -> String {
        let (prefix, key) = (&self.prefix, encode_hash_tag(key));
        let mut name = String::with_capacity(prefix.len() + key.len() + 2);
        name.push_str(prefix);
        name.push('{');
        name.push_str(&key);
        name.push('}');
        name
    }
}

/// A connection that worked when it was last heard of, and what we say over it.
pub(super) struct Live {
    pub(super) connection: MultiplexedConnection,
    pub(super) broken: Arc<AtomicBool>,
    /// When the first of the commands was sent that have had no answer since, in nanoseconds; 0 after an answer.
    pub(super) silent_since: AtomicU64,
    pub(super) opened: Time,
    site: Arc<Site>,
    /// Whether each command is sent with `ASKING` before it.
    pub(super) asking: bool,
    /// Who waits for replicas over this connection.
    round: Round,
}

impl Live {
    pub(super) fn new(connection: MultiplexedConnection, broken: Arc<AtomicBool>, site: Arc<Site>) -> Live {
        let silent_since = AtomicU64::new(0);
        Live { connection, broken, silent_since, opened: Time::now(), site, asking: false, round: Round::default() }
    }

    /// The same connection for what another node of the cluster says is on its way to this one.
    pub(super) fn asking(&self) -> Live {
        let (connection, broken, site) = (self.connection.clone(), self.broken.clone(), self.site.clone());
        Live { opened: self.opened, asking: true, ..Live::new(connection, broken, site) }
    }

    /// Whether new commands may go this way.
    pub(super) fn is_usable(&self) -> bool {
        !self.broken.load(Ordering::Acquire) && self.site.home.as_ref().is_none_or(Home::is_trusted)
    }

    pub(super) fn address(&self) -> &str {
        &self.site.address
    }

    /// The lock's name on the server.
    pub(super) fn name(&self, key: &str) -> String {
        self.site.name(key)
    }

    pub(super) fn round(&self) -> &Round {
        &self.round
    }

    /// Takes a lock by a plain `SET`, which costs what hand-written code costs. Nothing of ours can be there yet.
    pub(super) async fn acquire_first(&self, entry: &Entry<'_>) -> Result<Acquired, BackendError> {
        let name = self.site.name(entry.key);
        let mut set = Cmd::with_capacity(6, name.len() + entry.value.len() + 32);
        set.arg("SET").arg(&name).arg(entry.value).arg("NX").arg("PX").arg(millis(entry.ttl));
        match self.send(&set, entry.timeout).await {
            Ok(Value::Okay) => Ok(Acquired::Granted(None)),
            // In a box, so that only a refused try has to make room for it.
            Ok(Value::Nil) => Box::pin(self.ask_who_holds(&name, entry)).await,
            Ok(other) => Err(self.unexpected(&other)),
            Err(error) => Err(self.explain(error)),
        }
    }

    /// Asks for the holder of a lock that was refused. The holder may go or change between the two questions, which makes
    /// the answer old but no danger: it is for people, and for the pause before the next try.
    async fn ask_who_holds(&self, name: &str, entry: &Entry<'_>) -> Result<Acquired, BackendError> {
        let begin = Time::now();
        let mut questions = redis::pipe();
        questions.cmd("GET").arg(name).cmd("PTTL").arg(name);
        // The SET was refused, so whatever fails behind it leaves nothing to undo.
        let answers = self.send_all(&questions, entry.timeout).await;
        let answers = answers.map_err(|error| self.explain(error).nothing_done())?;
        if answers.first().is_some_and(|value| value.as_ref().is_err_and(is_wrong_type)) {
            // Others may have shares of it, and these may have expired.
            return self.acquire_by_script(&Entry { marked: true, ..entry.since(begin) }).await;
        }
        let answers: Result<Vec<_>, _> = answers.into_iter().collect();
        match answers.map_err(|error| self.explain(error).nothing_done())?.as_slice() {
            [Value::Nil, _] => Ok(Acquired::Held { value: String::new(), remaining: Duration::ZERO }),
            [value, pttl] => self.held(self.text(value)?, pttl),
            other => Err(self.unexpected(&Value::Array(other.to_vec()))),
        }
    }

    /// Takes a lock that an earlier try may have taken already, or one with a fencing token, or a share.
    pub(super) async fn acquire_by_script(&self, entry: &Entry<'_>) -> Result<Acquired, BackendError> {
        let script = if entry.kind.is_shared() { &SHARE } else { &ACQUIRE };
        match self.call(script, entry).await? {
            Value::Array(answer) => match answer.as_slice() {
                [Value::Int(1), fence] => Ok(Acquired::Granted(self.fencing_token(fence, entry)?)),
                [Value::Int(0), value, pttl, Value::Int(by_shares)] => {
                    entry.note_mark(*by_shares == 1);
                    self.held(self.text(value)?, pttl)
                }
                _ => Err(self.unexpected(&Value::Array(answer))),
            },
            other => Err(self.unexpected(&other)),
        }
    }

    pub(super) async fn wait(&self, entry: &Entry<'_>) -> Result<Turn, BackendError> {
        match self.call(&WAIT, entry).await? {
            Value::Array(answer) => match answer.as_slice() {
                [Value::Int(1), fence, Value::Int(others)] => {
                    Ok(Turn::Come { fencing_token: self.fencing_token(fence, entry)?, others: *others > 0 })
                }
                [Value::Int(0), value, pttl, Value::Int(first), Value::Int(by_shares)] => {
                    entry.note_mark(*by_shares == 1);
                    let value = self.text(value)?;
                    let remaining = self.remaining(&value, pttl)?;
                    Ok(Turn::Waits { value, remaining, first: *first == 1 })
                }
                _ => Err(self.unexpected(&Value::Array(answer))),
            },
            other => Err(self.unexpected(&other)),
        }
    }

    /// Takes several locks, or none.
    pub(super) async fn acquire_all(&self, entries: &[Entry<'_>]) -> Result<AcquiredAll, BackendError> {
        let Some(first) = entries.first() else { return Ok(AcquiredAll::Granted(None)) };
        match self.call_on_all(&ACQUIRE_ALL, entries, first).await? {
            Value::Array(answer) => match answer.as_slice() {
                [Value::Int(1), fence] => Ok(AcquiredAll::Granted(self.fencing_token(fence, first)?)),
                [Value::Int(0), Value::Int(index), value, pttl, Value::Int(by_shares)] => {
                    for entry in entries {
                        entry.note_mark(*by_shares == 1);
                    }
                    let (index, value) = (usize::try_from(*index).unwrap_or_default(), self.text(value)?);
                    Ok(match self.remaining(&value, pttl) {
                        Ok(remaining) => AcquiredAll::Held { index, value, remaining },
                        Err(foreign) if foreign.is_foreign() => {
                            AcquiredAll::Foreign { index, found: foreign.to_string() }
                        }
                        Err(error) => return Err(error),
                    })
                }
                _ => Err(self.unexpected(&Value::Array(answer))),
            },
            other => Err(self.unexpected(&other)),
        }
    }

    /// What the node of a cluster knows of the cluster: `CLUSTER NODES`, and `CLUSTER SLOTS`, which tells under which addresses
    /// nodes want to be known.
    pub(super) async fn cluster(&self, timeout: Duration) -> Result<(String, Value), BackendError> {
        let mut questions = redis::pipe();
        questions.cmd("CLUSTER").arg("NODES").cmd("CLUSTER").arg("SLOTS");
        let answers = self.send_all(&questions, timeout).await.map_err(|error| self.explain(error))?;
        let answers: Result<Vec<Value>, RedisError> = answers.into_iter().collect();
        let mut answers = answers.map_err(|error| self.explain(error))?.into_iter();
        let nodes = match answers.next().unwrap_or(Value::Nil) {
            Value::VerbatimString { text, .. } => text,
            answer => self.text(&answer)?,
        };
        Ok((nodes, answers.next().unwrap_or(Value::Nil)))
    }

    pub(super) async fn mint(&self, entries: &[Entry<'_>]) -> Result<Option<FencingToken>, BackendError> {
        let Some(first) = entries.first() else { return Ok(None) };
        match self.call_on_all(&MINT, entries, first).await? {
            Value::Int(0) => Ok(None),
            token => self.fencing_token(&token, first),
        }
    }

    /// Runs a script on several locks.
    async fn call_on_all(
        &self,
        script: &Source,
        entries: &[Entry<'_>],
        first: &Entry<'_>,
    ) -> Result<Value, BackendError> {
        let names: Vec<_> = entries.iter().map(|entry| self.name(entry.key)).collect();
        let command = |how: &str, text: &str| command_for_all(how, text, &names, entries);
        self.call_script(script, command, first.timeout).await
    }

    /// Runs a script by its hash, and by its source where the server does not know it: after a restart, a failover or a
    /// `SCRIPT FLUSH`, say.
    pub(super) async fn call_script(
        &self,
        script: &Source,
        command: impl Fn(&str, &str) -> Cmd,
        timeout: Duration,
    ) -> Result<Value, BackendError> {
        let begin = Time::now();
        let mut answer = self.send(&command("EVALSHA", script.hash()), timeout).await;
        if answer.as_ref().is_err_and(is_noscript) {
            let left = timeout.saturating_sub(Time::now().saturating_since(begin));
            answer = self.send(&command("EVAL", script.text()), left).await;
        }
        answer.map_err(|error| self.explain_script(error, script))
    }

    /// Whether the server is a node of a cluster.
    pub(super) fn is_sharded(&self) -> bool {
        self.site.sharded
    }

    /// The token in an answer, if the entry asks for one.
    fn fencing_token(&self, answer: &Value, entry: &Entry<'_>) -> Result<Option<FencingToken>, BackendError> {
        if entry.fencing.is_none() {
            return Ok(None);
        }
        let token = self.text(answer)?.parse().ok().and_then(FencingToken::new);
        token.map(Some).ok_or_else(|| self.unexpected(answer))
    }

    /// Calls nobody, to see whether a waiter could be called.
    pub(super) async fn call_nobody(
        &self,
        command: &str,
        channel: &str,
        timeout: Duration,
    ) -> Result<(), BackendError> {
        let mut call = redis::cmd(command);
        call.arg(channel).arg("");
        self.send(&call, timeout).await.map(drop).map_err(|error| self.explain(error))
    }

    /// Releases a lock by one of the scripts for that.
    pub(super) async fn release(&self, script: &Lua, entry: &Entry<'_>) -> Result<Released, BackendError> {
        // A value of another type under the key is not our lock, so there is nothing of ours to free.
        let answer = match self.call(script, entry).await {
            Err(error) if error.is_foreign() => return Ok(Released::NotHeld),
            answer => answer?,
        };
        self.number(&answer).map(released)
    }

    /// Runs a script that answers a number on each entry, all in one go, and within the timeout of something that began at
    /// `begin`.
    pub(super) async fn call_all(
        &self,
        lua: impl Fn(&Entry<'_>) -> &'static Lua,
        entries: &[Entry<'_>],
        begin: Time,
        timeout: Duration,
    ) -> Vec<Result<i64, BackendError>> {
        let names: Vec<_> = entries.iter().map(|entry| self.site.name(entry.key)).collect();
        let left = || timeout.saturating_sub(Time::now().saturating_since(begin));
        let pipeline = |call: &dyn Fn(&str, &Entry<'_>) -> Cmd| {
            names.iter().zip(entries).fold(redis::pipe(), |mut pipeline, (name, entry)| {
                pipeline.add_command(call(name, entry));
                pipeline
            })
        };
        let mut answers =
            self.send_all(&pipeline(&|name, entry| lua(entry).by_hash(name, entry, self.site.sharded)), left()).await;
        if answers.as_ref().is_ok_and(|answers| answers.iter().any(|answer| answer.as_ref().is_err_and(is_noscript))) {
            // None of ours does harm twice, so all are sent again.
            answers = self
                .send_all(&pipeline(&|name, entry| lua(entry).by_source(name, entry, self.site.sharded)), left())
                .await;
        }
        match answers {
            Ok(answers) => {
                answers.into_iter().zip(entries).map(|(answer, entry)| self.judge_one(answer, lua(entry))).collect()
            }
            Err(error) => entries.iter().map(|_| Err(self.explain(error.clone()))).collect(),
        }
    }

    /// What a script has answered, which is 0 where something else stands under the key.
    pub(super) fn judge_one(&self, answer: Result<Value, RedisError>, lua: &Lua) -> Result<i64, BackendError> {
        match answer.map_err(|error| self.explain_script(error, &lua.source)) {
            Ok(value) => self.number(&value),
            Err(error) if error.is_foreign() => Ok(0),
            Err(error) => Err(error),
        }
    }

    async fn call(&self, lua: &Lua, entry: &Entry<'_>) -> Result<Value, BackendError> {
        let name = self.site.name(entry.key);
        let command = |how: &str, text: &str| lua.command(how, text, &name, entry, self.site.sharded);
        self.call_script(&lua.source, command, entry.timeout).await
    }

    fn held(&self, value: String, pttl: &Value) -> Result<Acquired, BackendError> {
        let remaining = self.remaining(&value, pttl)?;
        Ok(Acquired::Held { value, remaining })
    }

    /// What is left of the lease of somebody else, whose value stands under the key.
    fn remaining(&self, value: &str, pttl: &Value) -> Result<Duration, BackendError> {
        match pttl {
            Value::Int(-1) if value.is_empty() => Err(BackendError::foreign("a value that is not a string")),
            Value::Int(-1) => {
                Err(BackendError::foreign(format!("the string `{}` without an expiry", shortened(value))))
            }
            // It expired between the two questions.
            Value::Int(-2) => Ok(Duration::ZERO),
            Value::Int(millis) => Ok(Duration::from_millis(u64::try_from(*millis).unwrap_or(0))),
            other => Err(self.unexpected(other)),
        }
    }

    fn text(&self, value: &Value) -> Result<String, BackendError> {
        match value {
            Value::BulkString(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
            Value::SimpleString(text) => Ok(text.clone()),
            Value::Okay => Ok("OK".to_owned()),
            other => Err(self.unexpected(other)),
        }
    }

    pub(super) fn number(&self, answer: &Value) -> Result<i64, BackendError> {
        match answer {
            Value::Int(answer) => Ok(*answer),
            other => Err(self.unexpected(other)),
        }
    }

    pub(super) fn explain(&self, error: RedisError) -> BackendError {
        explain_with(error, &self.site.address, &self.site.prefix, None)
    }

    fn explain_script(&self, error: RedisError, script: &Source) -> BackendError {
        explain_with(error, &self.site.address, &self.site.prefix, Some(script))
    }

    pub(super) fn unexpected(&self, answer: &Value) -> BackendError {
        BackendError::unanswered(format!("{} answered {answer:?}, which makes no sense here", self.site.address))
    }
}

impl Route for Live {
    fn release<'a>(&'a self, entry: Entry<'a>) -> BoxFuture<'a, Result<Released, BackendError>> {
        Box::pin(async move {
            match &self.site.home {
                // Whatever was left there is lost.
                Some(home) if home.has_moved() => {
                    Err(BackendError::passing(format!("{} is not the primary any more", self.site.address)))
                }
                _ => Live::release(self, &RELEASE, &entry).await,
            }
        })
    }
}

/// What a release has answered.
pub(super) fn released(answer: i64) -> Released {
    match answer {
        1 => Released::Freed,
        2 => Released::Left,
        _ => Released::NotHeld,
    }
}

/// Redis refuses an expiry of zero, and would delete the key by a renewal of zero. The options keep ttls far above.
pub(super) fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1)
}

fn shortened(value: &str) -> Cow<'_, str> {
    match value.char_indices().nth(40) {
        Some((end, _)) => Cow::Owned(format!("{}..", value.get(..end).unwrap_or_default())),
        None => Cow::Borrowed(value),
    }
}
