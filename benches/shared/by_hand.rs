//! The two commands by hand: what someone writes who needs nothing but an expiry and a release that compares.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, ProtocolVersion, RedisResult};

/// A lock without a library, over the same type of connection as the library's.
#[derive(Clone)]
pub(crate) struct ByHand {
    connection: MultiplexedConnection,
    script: Arc<str>,
    /// In milliseconds.
    pub(crate) ttl: u64,
}

impl ByHand {
    pub(crate) async fn connect(url: &str) -> ByHand {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(1)));
        let mut connection = client(url).get_multiplexed_async_connection_with_config(&config).await.unwrap();
        let source = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
        let script: String = redis::cmd("SCRIPT").arg("LOAD").arg(source).query_async(&mut connection).await.unwrap();
        ByHand { connection, script: script.into(), ttl: 30_000 }
    }

    /// Tries once, and says whether the lock is ours now.
    pub(crate) async fn acquire(&mut self, key: &str, token: &str) -> bool {
        self.ask_to_acquire(key, token).await.unwrap()
    }

    pub(crate) async fn release(&mut self, key: &str, token: &str) {
        assert_eq!(self.ask_to_release(key, token).await.unwrap(), 1);
    }

    pub(crate) async fn ask_to_acquire(&mut self, key: &str, token: &str) -> RedisResult<bool> {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(token).arg("NX").arg("PX").arg(self.ttl);
        set.query_async(&mut self.connection).await
    }

    pub(crate) async fn ask_to_release(&mut self, key: &str, token: &str) -> RedisResult<u32> {
        let mut release = redis::cmd("EVALSHA");
        release.arg(&*self.script).arg(1).arg(key).arg(token);
        release.query_async(&mut self.connection).await
    }
}

/// RESP3 without delay, as the library has it.
pub(crate) fn client(url: &str) -> Client {
    let info = url.into_connection_info().unwrap();
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true)).set_redis_settings(settings);
    Client::open(info).unwrap()
}
