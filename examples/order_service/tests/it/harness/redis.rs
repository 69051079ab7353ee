//! A Redis of the test's own.

use std::process::{Child, Stdio};
use std::sync::Mutex;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use super::process::{end, start, tied};
use super::{SOON, eventually, free_port};

/// Forgets everything when it is restarted; killed on drop.
pub(crate) struct Redis {
    port: u16,
    child: Mutex<Option<Child>>,
}

impl Redis {
    pub(crate) async fn start() -> Redis {
        // Somebody may take the port between our look and the server's.
        for _ in 0..5 {
            let redis = Redis { port: free_port(), child: Mutex::default() };
            if redis.go_up().await {
                return redis;
            }
        }
        panic!("redis-server ends at once (`cargo xtask needs` installs it)");
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn go_down(&self) {
        self.child.lock().unwrap().take().iter_mut().for_each(end);
    }

    /// Starts the server, and says whether it stays.
    pub(crate) async fn go_up(&self) -> bool {
        let mut command = tied(&[], "redis-server");
        let port = self.port.to_string();
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        *self.child.lock().unwrap() = Some(start({
            command.stdout(Stdio::null());
            command
        }));
        eventually("redis answers", async || {
            if self.child.lock().unwrap().as_mut().unwrap().try_wait().unwrap().is_some() {
                return Some(false);
            }
            self.command("PING").await.ok().map(|_: String| true)
        })
        .await
    }

    pub(crate) async fn delete(&self, key: &str) -> bool {
        let mut connection = self.connection().await.unwrap();
        let count: u32 = redis::cmd("DEL").arg(key).query_async(&mut connection).await.unwrap();
        count == 1
    }

    pub(crate) async fn connection(&self) -> redis::RedisResult<MultiplexedConnection> {
        let patient = AsyncConnectionConfig::new().set_connection_timeout(Some(SOON)).set_response_timeout(Some(SOON));
        redis::Client::open(self.url())?.get_multiplexed_async_connection_with_config(&patient).await
    }

    async fn command<T: redis::FromRedisValue>(&self, name: &str) -> redis::RedisResult<T> {
        let mut connection = self.connection().await?;
        redis::cmd(name).query_async(&mut connection).await
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.go_down();
    }
}
