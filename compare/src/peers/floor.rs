//! The floor: what someone writes who needs nothing but an expiry, a release that compares, and a renewal of all that is held.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, cmd};

use super::{Peer, Site, Stay, held_key};
use crate::by_hand::{self, ByHand};
use crate::turns::Lock;

/// How many locks one script renews. Far more would keep the server from others for longer than a millisecond.
const BATCH: usize = 256;

/// Answers with the places of those that are not ours any more.
const RENEW: &str = "local lost = {} for i = 1, #KEYS do if redis.call('GET', KEYS[i]) == ARGV[i + 1] then \
                     redis.call('PEXPIRE', KEYS[i], ARGV[1]) else lost[#lost + 1] = i end end return lost";

#[derive(Clone)]
pub(crate) struct Floor {
    hand: ByHand,
    holdings: Arc<Mutex<Holdings>>,
}

#[derive(Default)]
struct Holdings {
    /// The tokens by their keys.
    tokens: HashMap<String, String>,
    lost: HashSet<String>,
}

pub(crate) struct Held {
    hand: ByHand,
    key: String,
    token: String,
}

impl Lock for Floor {
    type Held = Held;

    /// Polls, as the fastest who write it by hand do. The pauses differ, so that no two keep in step.
    async fn acquire(&self, key: &str) -> Held {
        let (mut hand, token) = (self.hand.clone(), uuid::Uuid::new_v4().to_string());
        let key = format!("hand:{{{key}}}");
        while !hand.acquire(&key, &token).await {
            tokio::time::sleep(Duration::from_millis(1).mul_f64(0.5 + fastrand::f64())).await;
        }
        Held { hand, key, token }
    }

    async fn release(Held { mut hand, key, token }: Held) {
        hand.release(&key, &token).await;
    }
}

impl Peer for Floor {
    async fn connect(site: &Site) -> Floor {
        let mut hand = ByHand::connect(site.url()).await;
        hand.ttl = u64::try_from(site.ttl.as_millis()).unwrap();
        let holdings = Arc::<Mutex<Holdings>>::default();
        tokio::spawn(renew(site.url().to_owned(), site.ttl, holdings.clone()));
        Floor { hand, holdings }
    }

    /// As short as it can be written: the key and the token are all that a call makes.
    async fn cycles(&self, task: usize, cycles: usize) {
        let mut hand = self.hand.clone();
        for _ in 0..cycles {
            let (key, token) = (format!("hand:{{order:{task}}}"), uuid::Uuid::new_v4().to_string());
            assert!(hand.acquire(&key, &token).await, "nobody else wants it");
            hand.release(&key, &token).await;
        }
    }

    async fn hold(&self, id: usize, stay: Stay) -> bool {
        let mut held = self.acquire(&held_key(id)).await;
        self.holdings.lock().unwrap().tokens.insert(held.key.clone(), held.token.clone());
        stay.until_the_end().await;
        let lost = {
            let mut holdings = self.holdings.lock().unwrap();
            holdings.tokens.remove(&held.key);
            holdings.lost.remove(&held.key)
        };
        // One that is lost can't be freed.
        held.hand.ask_to_release(&held.key, &held.token).await.unwrap();
        lost
    }
}

/// Renews all that is held, every third of the ttl.
async fn renew(url: String, ttl: Duration, holdings: Arc<Mutex<Holdings>>) {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(1)));
    let client = by_hand::client(&url);
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    let script: String = cmd("SCRIPT").arg("LOAD").arg(RENEW).query_async(&mut connection).await.unwrap();
    let mut ticks = tokio::time::interval(ttl / 3);
    loop {
        ticks.tick().await;
        let tokens = holdings.lock().unwrap().tokens.clone();
        let tokens: Vec<_> = tokens.into_iter().collect();
        for batch in tokens.chunks(BATCH) {
            let lost = renew_batch(&mut connection, &script, ttl, batch).await;
            let lost = lost.into_iter().map(|at| batch[at - 1].0.clone());
            let mut holdings = holdings.lock().unwrap();
            // One that was freed meanwhile isn't lost.
            let lost: Vec<_> = lost.filter(|key| holdings.tokens.contains_key(key)).collect();
            holdings.lost.extend(lost);
        }
    }
}

/// Which of them are lost, counted from one. A batch without an answer is renewed the next time.
async fn renew_batch(
    connection: &mut MultiplexedConnection,
    script: &str,
    ttl: Duration,
    batch: &[(String, String)],
) -> Vec<usize> {
    let mut renew = cmd("EVALSHA");
    renew.arg(script).arg(batch.len());
    for (key, _) in batch {
        renew.arg(key);
    }
    renew.arg(u64::try_from(ttl.as_millis()).unwrap());
    for (_, token) in batch {
        renew.arg(token);
    }
    renew.query_async(connection).await.unwrap_or_default()
}
