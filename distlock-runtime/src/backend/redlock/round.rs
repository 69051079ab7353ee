use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;

use super::node::Node;
use crate::backend::BackendError;

/// A question to all servers at once, and their answers as they come.
///
/// The requests are polled by the caller itself, since a task for each of them would cost more than the rest of an acquire.
pub(super) struct Round<A, T> {
    nodes: Arc<[Arc<Node>]>,
    ask: A,
    pending: Vec<(usize, Answer<T>)>,
    /// Those that would keep everybody waiting. They are asked if the others can't decide.
    spare: Vec<usize>,
}

pub(super) type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<A, T> Round<A, T>
where
    A: Fn(usize, Arc<Node>) -> Answer<T>,
    T: Send + 'static,
{
    /// Asks those of `places` that can answer at once, or all if these are too few for a majority.
    pub(super) fn begin(nodes: &Arc<[Arc<Node>]>, places: impl Fn(usize) -> bool, ask: A) -> Round<A, T> {
        let mut round =
            Round { nodes: nodes.clone(), ask, pending: Vec::with_capacity(nodes.len()), spare: Vec::new() };
        let mut ready = 0;
        for (place, node) in nodes.iter().enumerate().filter(|(place, _)| places(*place)) {
            if node.is_ready() {
                ready += 1;
                round.pending.push((place, (round.ask)(place, node.clone())));
            } else {
                round.spare.push(place);
            }
        }
        if ready <= nodes.len() / 2 {
            round.ask_spare();
        }
        round
    }

    /// Asks all of `places`.
    pub(super) fn with_all(nodes: &Arc<[Arc<Node>]>, places: impl Fn(usize) -> bool, ask: A) -> Round<A, T> {
        let spare = (0..nodes.len()).filter(|place| places(*place)).collect();
        let mut round = Round { nodes: nodes.clone(), ask, pending: Vec::with_capacity(nodes.len()), spare };
        round.ask_spare();
        round
    }

    /// Asks those that were spared, if there are any.
    pub(super) fn ask_spare(&mut self) -> bool {
        let any = !self.spare.is_empty();
        for place in std::mem::take(&mut self.spare) {
            if let Some(node) = self.nodes.get(place) {
                self.pending.push((place, (self.ask)(place, node.clone())));
            }
        }
        any
    }

    /// Those that were not asked.
    pub(super) fn spared(&self) -> &[usize] {
        &self.spare
    }

    /// The next answer, with the place of who gave it; nothing when all have answered.
    ///
    /// # Cancel safety
    ///
    /// No answer is lost if the future is dropped.
    pub(super) fn next(&mut self) -> impl Future<Output = Option<(usize, T)>> {
        poll_fn(|cx| poll_next(&mut self.pending, cx))
    }

    /// Has those answers waited for that are still to come, with nobody to wait for them, and keeps `until_then` until they
    /// have come or the runtime ends.
    pub(super) fn leave(self, until_then: impl Send + 'static) {
        let mut pending = self.pending;
        if let (false, Ok(runtime)) = (pending.is_empty(), Handle::try_current()) {
            runtime.spawn(async move {
                let _until_then = until_then;
                while poll_fn(|cx| poll_next(&mut pending, cx)).await.is_some() {}
            });
        }
    }

    /// Has what was asked sent, without waiting for an answer.
    pub(super) async fn send(&mut self) {
        poll_fn(|cx| {
            // An answer that is there already is noted by who was asked.
            self.pending.retain_mut(|(_, answer)| answer.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }
}

fn poll_next<T>(pending: &mut Vec<(usize, Answer<T>)>, cx: &mut Context<'_>) -> Poll<Option<(usize, T)>> {
    let mut ready = None;
    for (at, (place, answer)) in pending.iter_mut().enumerate() {
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            ready = Some((at, *place, answer));
            break;
        }
    }
    match ready {
        Some((at, place, answer)) => {
            drop(pending.swap_remove(at));
            Poll::Ready(Some((place, answer)))
        }
        None if pending.is_empty() => Poll::Ready(None),
        None => Poll::Pending,
    }
}

/// Waits for a server's connection for as long as a command may take.
pub(super) async fn connected(node: &Node, timeout: Duration) -> Result<(), BackendError> {
    if node.redis.is_ready() { Ok(()) } else { node.redis.connect_within(timeout).await }
}
