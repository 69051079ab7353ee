use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;

use super::node::Node;
use crate::backend::BackendError;

/// A question to all servers at once, and their answers as they come.
///
/// The requests are polled by the caller itself, since a task for each of them would cost more than the rest of an acquire.
pub(super) struct Round<A, F> {
    nodes: Arc<[Arc<Node>]>,
    ask: A,
    pending: FuturesUnordered<Answer<F>>,
    /// Those that would keep everybody waiting. They are asked if the others can't decide.
    spare: Vec<usize>,
}

/// What the server at this place will answer. In a box, since it is large and moved around.
struct Answer<F> {
    place: usize,
    answer: Pin<Box<F>>,
}

impl<F: Future> Future for Answer<F> {
    type Output = (usize, F::Output);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(self.answer.as_mut().poll(cx));
        Poll::Ready((self.place, answer))
    }
}

/// Whether an answer can be had without waiting for a connection.
pub(super) type Ready = bool;

impl<A, F> Round<A, F>
where
    A: Fn(usize, Arc<Node>, Ready) -> F,
    F: Future<Output: Send> + Send + 'static,
{
    /// Asks those of `places` that can answer at once, or all if these are too few for a majority.
    pub(super) fn begin(nodes: &Arc<[Arc<Node>]>, places: impl Fn(usize) -> bool, ask: A) -> Round<A, F> {
        let mut round = Round { nodes: nodes.clone(), ask, pending: FuturesUnordered::new(), spare: Vec::new() };
        for (place, node) in nodes.iter().enumerate().filter(|(place, _)| places(*place)) {
            if node.is_ready() {
                let answer = Box::pin((round.ask)(place, node.clone(), true));
                round.pending.push(Answer { place, answer });
            } else {
                round.spare.push(place);
            }
        }
        if round.pending.len() <= nodes.len() / 2 {
            round.ask_spare();
        }
        round
    }

    /// Asks all of `places`.
    pub(super) fn with_all(nodes: &Arc<[Arc<Node>]>, places: impl Fn(usize) -> bool, ask: A) -> Round<A, F> {
        let spare = (0..nodes.len()).filter(|place| places(*place)).collect();
        let mut round = Round { nodes: nodes.clone(), ask, pending: FuturesUnordered::new(), spare };
        round.ask_spare();
        round
    }

    /// Asks those that were spared, if there are any.
    pub(super) fn ask_spare(&mut self) -> bool {
        let any = !self.spare.is_empty();
        for place in std::mem::take(&mut self.spare) {
            if let Some(node) = self.nodes.get(place) {
                let answer = Box::pin((self.ask)(place, node.clone(), false));
                self.pending.push(Answer { place, answer });
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
    pub(super) async fn next(&mut self) -> Option<(usize, F::Output)> {
        next(&mut self.pending).await
    }

    /// Has those answers waited for that are still to come, with nobody to wait for them, and keeps `until_then` until they
    /// have come or the runtime ends.
    pub(super) fn leave(self, until_then: impl Send + 'static) {
        let mut pending = self.pending;
        if let (false, Ok(runtime)) = (pending.is_empty(), Handle::try_current()) {
            runtime.spawn(async move {
                let _until_then = until_then;
                while next(&mut pending).await.is_some() {}
            });
        }
    }

    /// Has what was asked sent, without waiting for an answer.
    pub(super) async fn send(&mut self) {
        // An answer that is there already was noted by who was asked.
        poll_fn(|cx| {
            let _noted = Pin::new(&mut self.pending).poll_next(cx);
            Poll::Ready(())
        })
        .await;
    }
}

async fn next<F: Future>(pending: &mut FuturesUnordered<Answer<F>>) -> Option<(usize, F::Output)> {
    poll_fn(|cx| Pin::new(&mut *pending).poll_next(cx)).await
}

/// Waits for a server's connection for as long as a command may take.
pub(super) async fn connected(node: &Node, ready: Ready, timeout: Duration) -> Result<(), BackendError> {
    if ready {
        return Ok(());
    }
    node.redis.connect_within(timeout).await.inspect_err(|error| node.fails(error))
}
