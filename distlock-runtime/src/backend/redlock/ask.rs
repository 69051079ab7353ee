//! What one server is asked. Each answer is noted before anybody hears of it, so that it counts also where nobody listens
//! any more.

use std::sync::Arc;

use super::asked::Asked;
use super::node::Node;
use super::round::{Ready, connected};
use crate::FencingToken;
use crate::backend::{Acquired, AcquiredAll, Attempt, Backend, BackendError, Entry, Fencing, Released, Renewed};

type Granted = Result<Acquired, BackendError>;

pub(super) async fn prepare(node: Arc<Node>) -> Result<(), BackendError> {
    node.redis.prepare().await
}

pub(super) async fn acquire(
    place: usize,
    node: Arc<Node>,
    asked: Arc<[Asked]>,
    (attempt, ready): (Attempt, Ready),
) -> Granted {
    let Some(one) = asked.first() else { return Err(BackendError::lasting("nothing was asked for")) };
    connected(&node, ready, one.timeout).await?;
    let question = node.ask();
    one.goes_to(place);
    let answer = node.redis.acquire(one.entry(), attempt, &mut None).await;
    question.answered(&answer);
    one.was_tried(place, answer.as_ref().map(|acquired| matches!(acquired, Acquired::Granted(_))));
    answer
}

/// Takes all or none. Says also which was refused.
pub(super) async fn acquire_all(place: usize, node: Arc<Node>, asked: Arc<[Asked]>, ready: Ready) -> (usize, Granted) {
    let Some(first) = asked.first() else { return (0, Ok(Acquired::Granted(None))) };
    if let Err(error) = connected(&node, ready, first.timeout).await {
        return (0, Err(error));
    }
    let question = node.ask();
    asked.iter().for_each(|asked| asked.goes_to(place));
    let answer = node.redis.acquire_all(&entries(&asked), &mut None).await;
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

pub(super) async fn mint(
    node: Arc<Node>,
    asked: Arc<[Asked]>,
    ready: Ready,
) -> Result<Option<FencingToken>, BackendError> {
    let Some(first) = asked.first() else { return Ok(None) };
    connected(&node, ready, first.timeout).await?;
    let question = node.ask();
    let answer = node.redis.mint(&entries(&asked)).await;
    question.answered(&answer);
    answer
}

/// Has the last tokens of all entries be those of a series that begins with `first`, or higher ones.
pub(super) async fn raise(node: Arc<Node>, asked: Arc<[Asked]>, first: FencingToken) -> Result<(), BackendError> {
    let question = node.ask();
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
    let question = node.ask();
    let answer = node.redis.release(one.entry()).await;
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
    let question = node.ask();
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
    let question = node.ask();
    let answers = node.redis.renew(&entries(&asked)).await;
    for (answer, asked) in answers.iter().zip(asked.iter()) {
        question.answered(answer);
        asked.was_renewed(place, answer);
    }
    answers
}

fn entries(asked: &[Asked]) -> Vec<Entry<'_>> {
    asked.iter().map(Asked::entry).collect()
}
