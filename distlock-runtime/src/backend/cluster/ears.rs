//! Hearing of locks that were handed over, from the nodes that have them.
//!
//! What is published in a cluster comes to all its nodes, or, on a channel that has a slot as a key has, only to the one
//! with that slot. So for each key that somebody waits for there is a channel in its slot.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::slot;
use super::topology::Topology;
use crate::backend::redis::{RedisBackend, ShardEar, Told};
use crate::backend::{BackendError, Listener};
use crate::clock::Time;

/// How often it is looked whether slots have moved and keys are waited for no more.
const TICK: Duration = Duration::from_secs(1);

/// For how long a key is listened for that nobody waits for any more. Those who wait say so several times a second.
const FORGET: Duration = Duration::from_secs(2);

/// How many messages may wait to be told. One that finds no room costs its waiter as much as one that is lost.
const ROOM: usize = 1024;

/// How long a waiter waits for being listened for. Then it does without, and finds out by asking.
const PATIENCE: Duration = Duration::from_millis(250);

/// The keys that somebody waits for.
#[derive(Default)]
pub(super) struct Wanted {
    keys: Mutex<HashMap<String, Interest>>,
    changed: Notify,
    /// Told when more keys are listened for.
    heard: Notify,
    /// Whether anybody listens at all.
    listening: AtomicBool,
}

#[derive(Clone, Copy)]
struct Interest {
    /// When somebody was last known to wait.
    last: Time,
    heard: bool,
}

impl Wanted {
    /// Notes that somebody waits for a key. Says whether what is published for it comes here already.
    pub(super) fn note(&self, key: &str) -> bool {
        let mut keys = self.lock();
        if let Some(interest) = keys.get_mut(key) {
            interest.last = Time::now();
            return interest.heard;
        }
        keys.insert(key.to_owned(), Interest { last: Time::now(), heard: false });
        self.changed.notify_one();
        false
    }

    /// Waits until what is published for a key comes here, and says whether it does.
    pub(super) async fn is_heard(&self, key: &str) -> bool {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut more = pin!(self.heard.notified());
            more.as_mut().enable();
            if self.lock().get(key).is_some_and(|interest| interest.heard) {
                return true;
            }
            // Who listens only later tells everybody so.
            if !self.listening.load(Ordering::Acquire) || timeout_at(until, more).await.is_err() {
                return false;
            }
        }
    }

    fn set_heard(&self, key: &str, heard: bool) {
        if let Some(interest) = self.lock().get_mut(key) {
            interest.heard = heard;
        }
        if heard {
            self.heard.notify_waiters();
        }
    }

    /// The keys, without those that nobody has waited for lately.
    fn lately(&self) -> Vec<String> {
        let (now, mut keys) = (Time::now(), self.lock());
        keys.retain(|_, interest| now.saturating_since(interest.last) < FORGET);
        keys.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Interest>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that somebody listens, for as long as it lives.
struct Listening<'a>(&'a Wanted);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.listening.store(false, Ordering::Release);
        self.0.heard.notify_waiters();
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
    wanted: &Arc<Wanted>,
    waiter: &str,
    listener: &dyn Listener,
) -> BackendError {
    wanted.listening.store(true, Ordering::Release);
    let _listening = Listening(wanted);
    if wanted.lately().is_empty() {
        // There is nothing that could be missed.
        listener.connected();
    }
    let (tell, mut news) = mpsc::channel(ROOM);
    let (mut ears, mut tasks): (Vec<Ear>, _) = (Vec::new(), JoinSet::new());
    loop {
        attend(topology, wanted, &mut ears, |ear, keys| {
            let (topology, wanted, waiter) = (topology.clone(), wanted.clone(), waiter.to_owned());
            let attention = Attention { topology, wanted, node: ear, waiter, keys, heard: BTreeMap::new() };
            let tell = tell.clone();
            tasks.spawn(async move {
                if let Err(error) = attention.run(&tell).await {
                    let _ = tell.send(News::Failed(error)).await;
                }
            });
        });
        while tasks.try_join_next().is_some() {}
        let until = Instant::now() + TICK;
        loop {
            let (message, change) = (pin!(news.recv()), pin!(wanted.changed.notified()));
            match timeout_at(until, select(message, change)).await {
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
    wanted: Arc<Wanted>,
    node: Arc<RedisBackend>,
    waiter: String,
    keys: watch::Receiver<BTreeSet<String>>,
    /// The keys that are listened for, by their channels.
    heard: BTreeMap<String, String>,
}

impl Attention {
    /// Listens until the connection ends, or there is nothing to listen for.
    async fn run(mut self, tell: &mpsc::Sender<News>) -> Result<(), BackendError> {
        let (push, mut pushed) = mpsc::channel(ROOM);
        let ear = self.node.open_ear(move |told| drop(push.try_send(told))).await?;
        self.follow(&ear).await?;
        let _ = tell.send(News::Connected).await;
        loop {
            let until = Instant::now() + TICK;
            while let Some(told) = self.next(&mut pushed, until).await {
                match told {
                    Told::HandedOver(token) => drop(tell.try_send(News::HandedOver(token))),
                    Told::Unsubscribed(channel) => self.forget(&channel),
                    Told::Ended => return Ok(()),
                }
            }
            self.follow(&ear).await?;
        }
    }

    /// The next message, unless something else is wanted or it is time to look at that again.
    async fn next(&mut self, pushed: &mut mpsc::Receiver<Told>, until: Instant) -> Option<Told> {
        match timeout_at(until, select(pin!(pushed.recv()), pin!(self.keys.changed()))).await {
            Ok(Either::Left((told, _))) => Some(told.unwrap_or(Told::Ended)),
            Ok(Either::Right((Err(_), _))) => Some(Told::Ended),
            Ok(Either::Right((Ok(()), _))) | Err(_) => None,
        }
    }

    /// Listens for what is wanted now, and for nothing else.
    async fn follow(&mut self, ear: &ShardEar) -> Result<(), BackendError> {
        let patience = self.topology.connect_timeout();
        let keys = self.keys.borrow_and_update().clone();
        let wanted: BTreeMap<String, String> =
            keys.into_iter().map(|key| (ear.channel(&key, &self.waiter), key)).collect();
        let added = wanted.iter().filter(|(channel, _)| !self.heard.contains_key(*channel));
        let answers =
            join_all(added.map(async |(channel, key)| (channel, key, ear.subscribe(channel, patience).await)));
        for (channel, key, answer) in answers.await {
            match answer {
                Ok(()) => {
                    self.heard.insert(channel.clone(), key.clone());
                    self.wanted.set_heard(key, true);
                }
                // It is where the slot is by now, which will be found.
                Err(error) if error.is_passing() => self.topology.hurry(),
                Err(error) => return Err(error),
            }
        }
        if let Some(channel) = self.heard.keys().next() {
            self.node.try_to_call("SPUBLISH", channel).await;
        }
        let removed: Vec<String> =
            self.heard.keys().filter(|channel| !wanted.contains_key(*channel)).cloned().collect();
        for channel in &removed {
            self.forget(channel);
        }
        join_all(removed.iter().map(|channel| ear.unsubscribe(channel, patience))).await;
        Ok(())
    }

    fn forget(&mut self, channel: &str) {
        if let Some(key) = self.heard.remove(channel) {
            self.wanted.set_heard(&key, false);
        }
    }
}

impl Drop for Attention {
    fn drop(&mut self) {
        self.heard.values().for_each(|key| self.wanted.set_heard(key, false));
    }
}
