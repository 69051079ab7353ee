//! Hearing of locks that were handed over, from the nodes that have them.
//!
//! What is published in a cluster comes to all its nodes, or, on a channel that has a slot as a key has, only to the one
//! with that slot. So for each key that somebody waits for there is a channel in its slot.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::slot;
use super::topology::Topology;
use crate::backend::redis::{RedisBackend, Told};
use crate::backend::{BackendError, Listener};
use crate::clock::Time;

/// How often it is looked whether slots have moved and keys are waited for no more.
const TICK: Duration = Duration::from_secs(1);

/// For how long a key is listened for that nobody waits for any more. Those who wait say so several times a second.
const FORGET: Duration = Duration::from_secs(2);

/// How many messages may wait to be told. One that finds no room costs its waiter as much as one that is lost.
const ROOM: usize = 1024;

/// The keys that somebody waits for, with the time when that was last known.
#[derive(Default)]
pub(super) struct Wanted {
    keys: Mutex<HashMap<String, Time>>,
    changed: Notify,
}

impl Wanted {
    /// Notes that somebody waits for a key.
    pub(super) fn note(&self, key: &str) {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = keys.get_mut(key) {
            *last = Time::now();
        } else {
            keys.insert(key.to_owned(), Time::now());
            self.changed.notify_one();
        }
    }

    /// The keys, without those that nobody has waited for lately.
    fn lately(&self) -> Vec<String> {
        let (now, mut keys) = (Time::now(), self.keys.lock().unwrap_or_else(PoisonError::into_inner));
        keys.retain(|_, last| now.saturating_since(*last) < FORGET);
        keys.keys().cloned().collect()
    }
}

/// What an ear has to say.
enum News {
    Connected,
    HandedOver(String),
    /// It can't go on, and the others can't either.
    Failed(BackendError),
}

/// Listens on all nodes with keys that somebody waits for, until it can't go on.
pub(super) async fn listen(
    topology: &Arc<Topology>,
    wanted: &Wanted,
    waiter: &str,
    listener: &dyn Listener,
) -> BackendError {
    let (tell, mut news) = mpsc::channel(ROOM);
    let (mut ears, mut tasks): (Vec<Ear>, _) = (Vec::new(), JoinSet::new());
    loop {
        attend(topology, wanted, &mut ears, |ear, keys| {
            let attention = Attention { topology: topology.clone(), node: ear, waiter: waiter.to_owned(), keys };
            let tell = tell.clone();
            tasks.spawn(async move {
                if let Err(error) = attention.run(&tell).await {
                    let _ = tell.send(News::Failed(error)).await;
                }
            });
        });
        while tasks.try_join_next().is_some() {}
        let until = tokio::time::Instant::now() + TICK;
        loop {
            let (message, change) = (pin!(news.recv()), pin!(wanted.changed.notified()));
            match timeout(until.saturating_duration_since(tokio::time::Instant::now()), select(message, change)).await {
                Ok(Either::Left((Some(News::HandedOver(token)), _))) => listener.handed_over(&token),
                Ok(Either::Left((Some(News::Connected), _))) => listener.connected(),
                Ok(Either::Left((Some(News::Failed(error)), _))) if !error.is_passing() => return error,
                Ok(Either::Left((Some(News::Failed(_)), _))) => {}
                // The sender is ours, so there is always one.
                Ok(Either::Left((None, _)) | Either::Right(_)) | Err(_) => break,
            }
        }
    }
}

/// One node that is listened to, and the keys to listen for.
struct Ear {
    node: Arc<RedisBackend>,
    keys: watch::Sender<BTreeSet<String>>,
}

/// Tells each ear what to listen for now, and has new ones opened for nodes that have none.
fn attend(
    topology: &Topology,
    wanted: &Wanted,
    ears: &mut Vec<Ear>,
    mut open: impl FnMut(Arc<RedisBackend>, watch::Receiver<BTreeSet<String>>),
) {
    let mut by_node: Vec<(Arc<RedisBackend>, BTreeSet<String>)> = Vec::new();
    for key in wanted.lately() {
        let Some(owner) = topology.known_owner(slot(&key)) else { continue };
        match by_node.iter_mut().find(|(node, _)| Arc::ptr_eq(node, &owner)) {
            Some((_, keys)) => drop(keys.insert(key)),
            None => by_node.push((owner, BTreeSet::from([key]))),
        }
    }
    // Of an ear that has failed nobody has the other end.
    ears.retain(|ear| !ear.keys.is_closed() && by_node.iter().any(|(node, _)| Arc::ptr_eq(node, &ear.node)));
    for (node, keys) in by_node {
        if let Some(ear) = ears.iter().find(|ear| Arc::ptr_eq(&ear.node, &node)) {
            ear.keys.send_if_modified(|known| {
                let is_new = *known != keys;
                *known = keys;
                is_new
            });
        } else {
            let (sender, receiver) = watch::channel(keys);
            open(node.clone(), receiver);
            ears.push(Ear { node, keys: sender });
        }
    }
}

/// The work of one ear.
struct Attention {
    topology: Arc<Topology>,
    node: Arc<RedisBackend>,
    waiter: String,
    keys: watch::Receiver<BTreeSet<String>>,
}

impl Attention {
    /// Listens until the connection ends, or there is nothing to listen for.
    async fn run(mut self, tell: &mpsc::Sender<News>) -> Result<(), BackendError> {
        let (push, mut pushed) = mpsc::channel(ROOM);
        let ear = self.node.open_ear(move |told| drop(push.try_send(told))).await?;
        let _ = tell.send(News::Connected).await;
        let mut channels: BTreeSet<String> = BTreeSet::new();
        loop {
            let wanted: BTreeSet<String> =
                self.keys.borrow_and_update().iter().map(|key| ear.channel(key, &self.waiter)).collect();
            let patience = self.topology.connect_timeout();
            let added =
                wanted.difference(&channels).map(async |channel| (channel, ear.subscribe(channel, patience).await));
            let mut subscribed = Vec::new();
            for (channel, answer) in join_all(added).await {
                match answer {
                    Ok(()) => subscribed.push(channel.clone()),
                    // It is where the slot is by now, which will be found.
                    Err(error) if error.is_passing() => self.topology.hurry(),
                    Err(error) => return Err(error),
                }
            }
            if let Some(channel) = subscribed.first() {
                self.node.try_to_call("SPUBLISH", channel).await;
            }
            join_all(channels.difference(&wanted).map(|channel| ear.unsubscribe(channel, patience))).await;
            channels.retain(|channel| wanted.contains(channel));
            channels.extend(subscribed);
            let until = tokio::time::Instant::now() + TICK;
            loop {
                let (message, change) = (pin!(pushed.recv()), pin!(self.keys.changed()));
                match timeout(until.saturating_duration_since(tokio::time::Instant::now()), select(message, change))
                    .await
                {
                    Ok(Either::Left((Some(Told::HandedOver(token)), _))) => {
                        let _ = tell.try_send(News::HandedOver(token));
                    }
                    Ok(Either::Left((Some(Told::Unsubscribed(channel)), _))) => drop(channels.remove(&channel)),
                    Ok(Either::Left((Some(Told::Ended) | None, _)) | Either::Right((Err(_), _))) => return Ok(()),
                    Ok(Either::Right((Ok(()), _))) | Err(_) => break,
                }
            }
        }
    }
}
