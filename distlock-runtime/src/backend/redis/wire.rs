//! Sending commands, and judging by their answers whether the connection is still good.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};

use super::errors::{is_demoted, spoils_connection};
use super::live::Live;
use crate::clock::Time;

/// For how long a connection may leave commands unanswered, at most, before new ones go over another. Commands with a
/// shorter timeout, whose leases are short, have no time to wait for that.
const PATIENCE: Duration = Duration::from_millis(500);

/// How old a connection is at least that is given up because its server turned out to be no primary.
const DEMOTION_PATIENCE: Duration = Duration::from_millis(500);

impl Live {
    pub(super) async fn send(&self, command: &Cmd, timeout: Duration) -> Result<Value, RedisError> {
        if self.asking {
            return Box::pin(self.send_asking(command, timeout)).await;
        }
        let answer = self.within(timeout).send_packed_command(command).await.and_then(Value::extract_error);
        self.judge(answer.as_ref().err(), timeout);
        answer
    }

    async fn send_asking(&self, command: &Cmd, timeout: Duration) -> Result<Value, RedisError> {
        let mut pipeline = redis::pipe();
        let mut answers = self.send_all(pipeline.add_command(command.clone()), timeout).await?;
        answers.pop().unwrap_or_else(|| Ok(Value::Nil))
    }

    pub(super) async fn send_all(
        &self,
        commands: &Pipeline,
        timeout: Duration,
    ) -> Result<Vec<Result<Value, RedisError>>, RedisError> {
        if self.asking {
            return Box::pin(self.send_all_asking(commands, timeout)).await;
        }
        let answers = self.within(timeout).send_packed_commands(commands, 0, commands.len()).await;
        self.judge(answers.as_ref().err(), timeout);
        Ok(answers?.into_iter().map(|answer| self.extract(answer, timeout)).collect())
    }

    async fn send_all_asking(
        &self,
        commands: &Pipeline,
        timeout: Duration,
    ) -> Result<Vec<Result<Value, RedisError>>, RedisError> {
        let asking = with_asking(commands);
        let answers = self.within(timeout).send_packed_commands(&asking, 0, asking.len()).await;
        self.judge(answers.as_ref().err(), timeout);
        let mut answers = answers?.into_iter().map(|answer| self.extract(answer, timeout));
        let mut pairs = Vec::with_capacity(commands.len());
        while let (Some(asked), Some(answer)) = (answers.next(), answers.next()) {
            // Without the right to ask, the answer only says where to ask.
            pairs.push(asked.and(answer));
        }
        Ok(pairs)
    }

    fn extract(&self, answer: Value, timeout: Duration) -> Result<Value, RedisError> {
        answer.extract_error().inspect_err(|error| self.judge(Some(error), timeout))
    }

    fn within(&self, timeout: Duration) -> MultiplexedConnection {
        let mut connection = self.connection.clone();
        connection.set_response_timeout(timeout);
        connection
    }

    /// Decides after each command whether the connection is still good. One that has kept somebody waiting for long may
    /// be dead without the kernel having noticed. It still delivers what it can, but new commands go elsewhere.
    fn judge(&self, error: Option<&RedisError>, timeout: Duration) {
        let broken = match error {
            Some(error) if error.is_timeout() => self.silent_for(timeout) >= PATIENCE.min(timeout),
            Some(error) if spoils_connection(error) => true,
            // A server that is no primary may have stopped being one: then there is another to connect to. But it is asked
            // in vain again and again while there is none.
            Some(error) if is_demoted(error) => Time::now().saturating_since(self.opened) >= DEMOTION_PATIENCE,
            _ => {
                if self.silent_since.load(Ordering::Relaxed) != 0 {
                    self.silent_since.store(0, Ordering::Relaxed);
                }
                false
            }
        };
        if broken {
            self.broken.store(true, Ordering::Release);
        }
    }

    fn silent_for(&self, timeout: Duration) -> Duration {
        let now = Time::now();
        let sent = now.saturating_sub(timeout).as_nanos();
        let since = match self.silent_since.compare_exchange(0, sent, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => sent,
            Err(earlier) => earlier.min(sent),
        };
        now.saturating_since(Time::from_nanos(since))
    }
}

fn with_asking(commands: &Pipeline) -> Pipeline {
    commands.cmd_iter().fold(redis::pipe(), |mut pipeline, command| {
        pipeline.cmd("ASKING").add_command(command.clone());
        pipeline
    })
}
