//! The floor over several servers: all are asked at once, and a majority is enough.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::{Peer, Site};
use crate::by_hand::ByHand;
use crate::turns::Lock;

#[derive(Clone)]
pub(crate) struct Majority(Arc<[ByHand]>);

pub(crate) struct Held {
    servers: Arc<[ByHand]>,
    key: String,
    token: String,
}

impl Lock for Majority {
    type Held = Held;

    async fn acquire(&self, key: &str) -> Held {
        let (key, token) = (format!("hand:{{{key}}}"), uuid::Uuid::new_v4().to_string());
        let answers = self.0.iter().map(|server| {
            let (mut server, key, token) = (server.clone(), &key, &token);
            async move { server.ask_to_acquire(key, token).await.unwrap_or(false) }
        });
        assert!(enough(answers.collect(), self.0.len()).await, "nobody else wants it");
        Held { servers: self.0.clone(), key, token }
    }

    async fn release(Held { servers, key, token }: Held) {
        let answers = servers.iter().map(|server| {
            let (mut server, key, token) = (server.clone(), &key, &token);
            async move { server.ask_to_release(key, token).await == Ok(1) }
        });
        assert!(enough(answers.collect(), servers.len()).await, "it was held");
    }
}

impl Peer for Majority {
    async fn connect(site: &Site) -> Majority {
        let mut servers = Vec::new();
        for url in &site.urls {
            servers.push(ByHand::connect(url).await);
        }
        Majority(servers.into())
    }
}

/// Whether a majority says yes. Goes on as soon as it does, so that who does not answer costs nothing.
async fn enough(mut answers: FuturesUnordered<impl Future<Output = bool>>, servers: usize) -> bool {
    let mut yes = 0;
    while let Some(answer) = answers.next().await {
        yes += usize::from(answer);
        if yes > servers / 2 {
            return true;
        }
    }
    false
}
