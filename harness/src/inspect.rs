//! Looking at a server and touching its data, past the library under test.

use std::collections::HashMap;
use std::time::Duration;

use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisResult, cmd};

use crate::backstage::on_backstage;
use crate::server::Server;

impl Server {
    /// Sends one command over a connection of its own.
    ///
    /// A fresh one each time, so that no fault that a test makes (a restart, `CLIENT KILL`) reaches what it looks with.
    pub async fn query<T>(&self, command: &Cmd) -> RedisResult<T>
    where
        T: FromRedisValue + Send + 'static,
    {
        query_at(self.url(), command.clone()).await
    }

    /// The value of a string key.
    pub async fn get(&self, key: &str) -> Option<String> {
        self.query(cmd("GET").arg(key)).await.unwrap()
    }

    /// Sets a string key, without an expiry.
    pub async fn set(&self, key: &str, value: &str) {
        self.query::<()>(cmd("SET").arg(key).arg(value)).await.unwrap();
    }

    /// Sets a string key that expires, as a lock held by somebody else does.
    pub async fn set_for(&self, key: &str, value: &str, ttl: Duration) {
        let ttl = u64::try_from(ttl.as_millis()).unwrap();
        self.query::<()>(cmd("SET").arg(key).arg(value).arg("PX").arg(ttl)).await.unwrap();
    }

    /// Deletes a key; says whether it was there.
    pub async fn del(&self, key: &str) -> bool {
        self.query(cmd("DEL").arg(key)).await.unwrap()
    }

    pub async fn exists(&self, key: &str) -> bool {
        self.query(cmd("EXISTS").arg(key)).await.unwrap()
    }

    /// What is left of a key's life in milliseconds; -1 without an expiry, -2 without the key.
    pub async fn pttl(&self, key: &str) -> i64 {
        self.query(cmd("PTTL").arg(key)).await.unwrap()
    }

    pub async fn dbsize(&self) -> u64 {
        self.query(&cmd("DBSIZE")).await.unwrap()
    }

    pub async fn keys(&self) -> Vec<String> {
        self.query(cmd("KEYS").arg("*")).await.unwrap()
    }

    /// A section of `INFO`, or `None` when the server doesn't answer.
    pub async fn info(&self, section: &str) -> Option<String> {
        self.query(cmd("INFO").arg(section)).await.ok()
    }

    /// How often each command was called, by its name in lower case.
    pub async fn calls(&self) -> HashMap<String, u64> {
        let stats = self.info("commandstats").await.unwrap();
        stats.lines().filter_map(calls_of_line).collect()
    }

    /// Connections made so far, ours included.
    pub async fn connections_received(&self) -> u64 {
        let stats = self.info("stats").await.unwrap();
        let count = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        count.unwrap().parse().unwrap()
    }
}

/// Sends one command to any URL, over a connection of its own.
pub async fn query_at<T>(url: String, command: Cmd) -> RedisResult<T>
where
    T: FromRedisValue + Send + 'static,
{
    // Long enough for a server that shares two cores with a dozen tests; short enough to see that it is frozen.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(3)))
        .set_response_timeout(Some(Duration::from_secs(3)));
    on_backstage(async move {
        let client = Client::open(url)?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        command.query_async(&mut connection).await
    })
    .await
}

/// Of `cmdstat_set:calls=3,usec=..`, the name and the count.
fn calls_of_line(line: &str) -> Option<(String, u64)> {
    let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
    Some((name.to_owned(), rest.split_once(',')?.0.parse().ok()?))
}
