//! What one server is asked. Each answer is noted before anybody hears of it, so that it counts also where nobody listens
//! any more.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::asked::Asked;
use super::node::Node;
use super::round::{Ready, connected};
use crate::FencingToken;
use crate::backend::{Acquired, AcquiredAll, Attempt, Backend, BackendError, Entry, Fencing, Released, Renewed};

/// What came of an attempt, and which of the entries was refused.
pub(super) type Tried = (usize, Result<Acquired, BackendError>);

pub(super) async fn prepare(node: Arc<Node>) -> Result<(), BackendError> {
    let prepared = node.redis.prepare().await;
    match &prepared {
        Ok(()) => node.works(),
        Err(error) => node.has_no_vote(error),
    }
    prepared
}

pub(super) async fn acquire(
    place: usize,
    node: Arc<Node>,
    asked: Arc<[Asked]>,
    (attempt, ready): (Attempt, Ready),
) -> Tried {
    let Some(one) = asked.first() else { return nothing() };
    if let Err(error) = may_go(place, &node, &asked, ready).await {
        return (0, Err(error));
    }
    let question = node.ask(one.timeout);
    let mut answer = node.redis.acquire(one.entry(), attempt, &mut None).await;
    if answer.as_ref().is_err_and(BackendError::is_interrupted) && may_go_again(place, &node, &asked).await {
        answer = Box::pin(node.redis.acquire(one.entry(), Attempt::Repeated, &mut None)).await;
    }
    question.answered(&answer);
    one.was_tried(place, answer.as_ref().map(|acquired| matches!(acquired, Acquired::Granted(_))));
    (0, answer)
}

/// Takes all or none.
pub(super) async fn acquire_all(place: usize, node: Arc<Node>, asked: Arc<[Asked]>, ready: Ready) -> Tried {
    let Some(first) = asked.first() else { return nothing() };
    if let Err(error) = may_go(place, &node, &asked, ready).await {
        return (0, Err(error));
    }
    let question = node.ask(first.timeout);
    let entries = entries(&asked);
    let mut answer = node.redis.acquire_all(&entries, &mut None).await;
    if answer.as_ref().is_err_and(BackendError::is_interrupted) && may_go_again(place, &node, &asked).await {
        answer = Box::pin(node.redis.acquire_all(&entries, &mut None)).await;
    }
    question.answered(&answer);
    let granted = answer.as_ref().map(|acquired| matches!(acquired, AcquiredAll::Granted(_)));
    asked.iter().for_each(|asked| asked.was_tried(place, granted));
    match answer {
        Ok(AcquiredAll::Granted(token)) => (0, Ok(Acquired::Granted(token))),
        Ok(AcquiredAll::Held { index, value, remaining }) => (index, Ok(Acquired::Held { value, remaining })),
        Ok(AcquiredAll::Foreign { index, found }) => (index, Err(BackendError::foreign(found))),
        Err(error) => (0, Err(error)),
    }
}

fn nothing() -> Tried {
    (0, Err(BackendError::lasting("nothing was asked for")))
}

/// Waits for the server's connection. Fails if there is none in time, and if the attempt is over by then: what it set would
/// be found by nobody.
async fn may_go(place: usize, node: &Arc<Node>, asked: &[Asked], ready: Ready) -> Result<(), BackendError> {
    let Some(first) = asked.first() else { return Ok(()) };
    connected(node, ready, first.timeout).await?;
    let going = asked.iter().take_while(|asked| asked.goes_to(place)).count();
    if going == asked.len() {
        return Ok(());
    }
    asked.iter().take(going).for_each(|asked| asked.stays_here(place));
    Err(BackendError::passing("the attempt was over before there was a connection"))
}

/// The same for one more connection, where the first was at its end: an idle one, say, that the server had closed.
async fn may_go_again(place: usize, node: &Arc<Node>, asked: &[Asked]) -> bool {
    let Some(first) = asked.first() else { return false };
    if Box::pin(node.redis.connect_within(first.timeout)).await.is_err() {
        return false;
    }
    let going = asked.iter().take_while(|asked| asked.goes_again_to(place)).count();
    if going == asked.len() {
        return true;
    }
    asked.iter().take(going).for_each(|asked| asked.stays_here(place));
    false
}

/// Sets those of the locks that certainly don't stand there, one by one: each where nothing else stands.
pub(super) async fn join(place: usize, node: Arc<Node>, asked: Arc<[Asked]>) {
    let join_one = async |one: &Asked| {
        if !one.lacks(place) || !one.goes_to(place) {
            return;
        }
        let question = node.ask(one.timeout);
        let entry = Entry { fencing: None, ..one.entry() };
        let answer = node.redis.acquire(entry, Attempt::First, &mut None).await;
        question.answered(&answer);
        one.was_tried(place, answer.as_ref().map(|acquired| matches!(acquired, Acquired::Granted(_))));
    };
    join_all(asked.iter().map(join_one)).await;
}

/// Mints a token for each of the entries that stand there: one for all, if all do.
pub(super) async fn mint(
    node: Arc<Node>,
    asked: Arc<[Asked]>,
    ready: Ready,
) -> Vec<Result<Option<FencingToken>, BackendError>> {
    let Some(first) = asked.first() else { return Vec::new() };
    let all = |answer: Result<Option<FencingToken>, BackendError>| {
        let each = asked.iter().map(|_| answer.as_ref().copied().map_err(BackendError::copy));
        each.collect::<Vec<_>>()
    };
    if let Err(error) = connected(&node, ready, first.timeout).await {
        return all(Err(error));
    }
    let question = node.ask(first.timeout * 2);
    let entries = entries(&asked);
    let answer = node.redis.mint(&entries).await;
    question.answered(&answer);
    if matches!(answer, Ok(None)) && entries.len() > 1 {
        join_all(entries.chunks(1).map(|one| node.redis.mint(one))).await
    } else {
        all(answer)
    }
}

/// Has the last tokens of all entries be those of a series that begins with `first`, or higher ones.
pub(super) async fn raise(node: Arc<Node>, asked: Arc<[Asked]>, first: FencingToken) -> Result<(), BackendError> {
    let question = node.ask(timeout(&asked));
    let raised = asked.iter().map(|asked| {
        let entry = asked.entry();
        let count = entry.fencing.map_or(1, |fencing| fencing.count);
        entry.with_fencing(Fencing::new(1, first.get().saturating_add(u64::from(count)).saturating_sub(1)))
    });
    let answers = node.redis.raise_fences(&raised.collect::<Vec<_>>()).await;
    let answer = answers.into_iter().try_for_each(|answer| answer.map(drop));
    question.answered(&answer);
    answer
}

pub(super) async fn release(place: usize, node: Arc<Node>, asked: Arc<[Asked]>) -> Result<Released, BackendError> {
    let Some(one) = asked.first() else { return Ok(Released::NotHeld) };
    let question = node.ask(one.timeout);
    let answer = node.redis.release(one.entry_in_time()).await;
    question.answered(&answer);
    one.was_released(place, &answer);
    answer
}

/// Releases those entries that may stand there. The others have no answer.
pub(super) async fn release_all(
    place: usize,
    node: Arc<Node>,
    asked: Arc<[Asked]>,
) -> Vec<Option<Result<Released, BackendError>>> {
    let question = node.ask(timeout(&asked));
    let may_stand: Vec<bool> = asked.iter().map(|asked| asked.may_stand(place)).collect();
    let there = asked.iter().zip(&may_stand).filter(|(_, may_stand)| **may_stand);
    let entries: Vec<Entry<'_>> = there.map(|(asked, _)| asked.entry()).collect();
    let mut answers = node.redis.release_all(&entries).await.into_iter().inspect(|answer| question.answered(answer));
    let all = asked.iter().zip(may_stand).map(|(asked, may_stand)| {
        let answer = if may_stand { answers.next() } else { None };
        answer.inspect(|answer| asked.was_released(place, answer))
    });
    all.collect()
}

pub(super) async fn renew(place: usize, node: Arc<Node>, asked: Arc<[Asked]>) -> Vec<Result<Renewed, BackendError>> {
    let question = node.ask(timeout(&asked));
    let answers = node.redis.renew(&entries(&asked)).await;
    for (answer, asked) in answers.iter().zip(asked.iter()) {
        question.answered(answer);
        asked.was_renewed(place, answer);
    }
    answers
}

fn timeout(asked: &[Asked]) -> Duration {
    asked.iter().map(|asked| asked.timeout).max().unwrap_or_default()
}

fn entries(asked: &[Asked]) -> Vec<Entry<'_>> {
    asked.iter().map(Asked::entry).collect()
}
