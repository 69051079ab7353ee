//! Several locks at once. Those of one node go in one request, and the nodes are asked at the same time, so that one that is
//! sick keeps nobody waiting for another.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;

use super::way::{Signpost, Way};
use super::{ClusterBackend, slot};
use crate::FencingToken;
use crate::backend::redis::RedisBackend;
use crate::backend::{AcquiredAll, Backend, BackendError, BoxFuture, Entry, Fencing, Released, Renewed, Route};

type Answers<T> = Vec<Result<T, BackendError>>;

/// The entries of one slot, with their places in the whole list.
type Group<'a> = (Vec<usize>, Vec<Entry<'a>>);

impl ClusterBackend {
    pub(super) async fn renew_all(&self, entries: &[Entry<'_>]) -> Answers<Renewed> {
        self.each(entries, |node, entries| node.renew(entries), |entry| Box::pin(self.renew(entry))).await
    }

    pub(super) async fn release_all(&self, entries: &[Entry<'_>]) -> Answers<Released> {
        self.each(entries, |node, entries| node.release_all(entries), |entry| Box::pin(self.release(entry))).await
    }

    /// Asks the node of each entry, and then those that other nodes have to be asked about one by one.
    async fn each<'e, T>(
        &self,
        entries: &[Entry<'e>],
        all: impl for<'a> Fn(&'a RedisBackend, &'a [Entry<'a>]) -> BoxFuture<'a, Answers<T>>,
        one: impl Fn(Entry<'e>) -> BoxFuture<'_, Result<T, BackendError>>,
    ) -> Answers<T> {
        let mut nodes: Vec<(Arc<RedisBackend>, Vec<usize>)> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            // One whose node is not known goes the whole way by itself.
            let Some(owner) = self.topology.trusted_owner(slot(entry.key)) else { continue };
            match nodes.iter_mut().find(|(node, _)| Arc::ptr_eq(node, &owner)) {
                Some((_, indices)) => indices.push(index),
                None => nodes.push((owner, vec![index])),
            }
        }
        let batches = nodes.iter().map(async |(node, indices)| {
            let entries: Vec<Entry<'_>> = indices.iter().filter_map(|index| entries.get(*index)).copied().collect();
            all(node, &entries).await
        });
        let batches = join_all(batches).await;
        let mut answers: Vec<Option<Result<T, BackendError>>> = entries.iter().map(|_| None).collect();
        for ((_, indices), batch) in nodes.iter().zip(batches) {
            for (index, answer) in indices.iter().zip(batch) {
                let elsewhere = answer.as_ref().err().is_some_and(|error| Signpost::of(error).is_some());
                if answer.as_ref().is_err_and(BackendError::is_passing) {
                    self.topology.hurry();
                }
                if let (Some(slot), false) = (answers.get_mut(*index), elsewhere) {
                    *slot = Some(answer);
                }
            }
        }
        let rest = answers.iter_mut().zip(entries).filter(|(answer, _)| answer.is_none());
        join_all(rest.map(async |(answer, entry)| *answer = Some(one(*entry).await))).await;
        let unanswered = || Err(BackendError::unanswered("the node answered too few"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(unanswered)).collect()
    }

    /// Takes those of one slot after those of another, in the order of the slots. What was taken is given back when one is
    /// refused.
    pub(super) async fn acquire_all(
        &self,
        entries: &[Entry<'_>],
        route: &mut Option<Arc<dyn Route>>,
    ) -> Result<AcquiredAll, BackendError> {
        let groups = by_slot(entries);
        let [group] = groups.as_slice() else { return self.acquire_groups(entries, &groups).await };
        let mut way = self.way_of(group).await?;
        loop {
            match Backend::acquire_all(way.node(), &within(&way, &group.1), route).await {
                Err(error) if way.goes_on(&error).await => {}
                answer => return way.end(answer),
            }
        }
    }

    async fn acquire_groups(&self, entries: &[Entry<'_>], groups: &[Group<'_>]) -> Result<AcquiredAll, BackendError> {
        let fencing = entries.first().and_then(|entry| entry.fencing);
        for (count, group) in groups.iter().enumerate() {
            let refused = match self.acquire_group(group).await {
                Ok(AcquiredAll::Granted(_)) => continue,
                refused => refused,
            };
            let taken: Vec<Entry<'_>> = groups.iter().take(count).flat_map(|(_, entries)| entries).copied().collect();
            let given_back = self.release_all(&taken).await.into_iter().try_for_each(|released| released.map(drop));
            // What could not be given back may stand, whatever the reason.
            return given_back.map_err(|error| BackendError::unanswered(error.to_string())).and(refused);
        }
        if fencing.is_none() {
            return Ok(AcquiredAll::Granted(None));
        }
        match self.mint(entries).await {
            Ok(Some(token)) => Ok(AcquiredAll::Granted(Some(token))),
            Ok(None) => Err(BackendError::unanswered("one of the locks was lost while the others were taken")),
            // They stand, whatever is wrong with the tokens.
            Err(error) if error.is_passing() => Err(BackendError::unanswered(error.to_string())),
            Err(error) if self.release_all(entries).await.iter().all(Result::is_ok) => Err(error),
            Err(error) => Err(BackendError::unanswered(error.to_string())),
        }
    }

    /// Takes the locks of one slot, without fencing tokens.
    async fn acquire_group(&self, (indices, entries): &Group<'_>) -> Result<AcquiredAll, BackendError> {
        let place = |index: usize| indices.get(index).copied().unwrap_or(index);
        let entries: Vec<_> = entries.iter().map(|entry| Entry { fencing: None, ..*entry }).collect();
        let group = (Vec::new(), entries);
        let mut way = self.way_of(&group).await?;
        loop {
            match Backend::acquire_all(way.node(), &within(&way, &group.1), &mut None).await {
                Err(error) if way.goes_on(&error).await => {}
                Ok(AcquiredAll::Held { index, value, remaining }) => {
                    return Ok(AcquiredAll::Held { index: place(index), value, remaining });
                }
                Ok(AcquiredAll::Foreign { index, found }) => {
                    return Ok(AcquiredAll::Foreign { index: place(index), found });
                }
                answer => return way.end(answer),
            }
        }
    }

    /// Mints in each slot, and has all slots hear of the highest before it is handed out: the next one of each key is above it.
    pub(super) async fn mint(&self, entries: &[Entry<'_>]) -> Result<Option<FencingToken>, BackendError> {
        let groups = by_slot(entries);
        let mut highest = None;
        for group in &groups {
            let mut way = self.way_of(group).await?;
            let minted = loop {
                match Backend::mint(way.node(), &within(&way, &group.1)).await {
                    Err(error) if way.goes_on(&error).await => {}
                    answer => break way.end(answer)?,
                }
            };
            let Some(minted) = minted else { return Ok(None) };
            highest = highest.max(Some(minted));
        }
        if let (Some(highest), 2..) = (highest, groups.len()) {
            for entry in entries {
                self.raise_fence(*entry, highest).await?;
            }
        }
        Ok(highest)
    }

    async fn raise_fence(&self, entry: Entry<'_>, token: FencingToken) -> Result<(), BackendError> {
        let entry = entry.with_fencing(Fencing::new(1, token.get()));
        let mut way = self.way(&entry).await?;
        loop {
            let raised = way.node().raise_fences(&[way.entry(entry)]).await.pop();
            match raised.unwrap_or_else(|| Err(BackendError::unanswered("the node answered too few"))) {
                Err(error) if way.goes_on(&error).await => {}
                answer => return way.end(answer.map(drop)),
            }
        }
    }

    async fn way_of<'a>(&'a self, (_, entries): &Group<'_>) -> Result<Way<'a>, BackendError> {
        match entries.first() {
            Some(entry) => self.way(entry).await,
            None => Err(BackendError::lasting("no lock was asked for")),
        }
    }
}

fn by_slot<'e>(entries: &[Entry<'e>]) -> Vec<Group<'e>> {
    let mut groups: BTreeMap<u16, Group<'e>> = BTreeMap::new();
    for (index, entry) in entries.iter().enumerate() {
        let (indices, group) = groups.entry(slot(entry.key)).or_default();
        indices.push(index);
        group.push(*entry);
    }
    groups.into_values().collect()
}

fn within<'e>(way: &Way<'_>, entries: &[Entry<'e>]) -> Vec<Entry<'e>> {
    entries.iter().map(|entry| way.entry(*entry)).collect()
}
