//! What a client does: it asks, runs its body while its lease lasts, and releases.

use crate::flaw::Flaw;
use crate::server::{Answer, Request, Value};
use crate::time::{DRIFT, NOW, POLL, RENEW, TTL, Tick, closer};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    id: u8,
    way: Way,
    acquisitions_left: u8,
    pub(crate) phase: Phase,
    pub(crate) paused: bool,
    /// What was sent and is not yet heard of, in order: the connection.
    pub(crate) wire: Vec<Exchange>,
    /// What was sent over a connection that nobody listens to any more.
    pub(crate) strays: Vec<Request>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    /// Waits in the queue.
    Queue,
    /// Tries once, past the queue.
    Once,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    Asking {
        value: Value,
        ask_at: Tick,
    },
    Body {
        value: Value,
        deadline: Tick,
        renew_at: Tick,
        /// Kept by the clock and not by the client: the deadline was reached once.
        ended: bool,
    },
    Releasing {
        value: Value,
    },
    Crashed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Exchange {
    pub(crate) request: Request,
    pub(crate) answer: Option<Answer>,
    sent: Tick,
}

impl Client {
    pub(crate) fn new(id: u8, way: Way, acquisitions_left: u8) -> Client {
        let (wire, strays) = (Vec::new(), Vec::new());
        Client { id, way, acquisitions_left, phase: Phase::Idle, paused: false, wire, strays }
    }

    pub(crate) fn can_start(&self) -> bool {
        self.phase == Phase::Idle && self.acquisitions_left > 0
    }

    pub(crate) fn start(&mut self, flaw: Flaw) {
        self.acquisitions_left -= 1;
        let acquisition = if flaw == Flaw::ValueReused { 0 } else { self.acquisitions_left };
        self.phase = Phase::Asking { value: Value { client: self.id, acquisition }, ask_at: NOW };
    }

    /// The request that is to be sent now. A client has one question under way at a time; what comes up meanwhile follows
    /// the answer.
    pub(crate) fn due(&self) -> Option<Request> {
        match self.phase {
            Phase::Asking { value, ask_at } if self.wire.is_empty() && ask_at <= NOW => Some(match self.way {
                Way::Queue => Request::Wait(value),
                Way::Once => Request::Set(value),
            }),
            Phase::Body { value, deadline, renew_at, .. }
                if self.wire.is_empty() && renew_at <= NOW && NOW < deadline =>
            {
                Some(Request::Renew(value))
            }
            Phase::Releasing { value } if !self.wire.iter().any(|sent| sent.request == Request::Release(value)) => {
                Some(Request::Release(value))
            }
            _ => None,
        }
    }

    pub(crate) fn send(&mut self, request: Request) {
        self.wire.push(Exchange { request, answer: None, sent: NOW });
        match &mut self.phase {
            Phase::Asking { ask_at, .. } => *ask_at = NOW + POLL,
            Phase::Body { renew_at, .. } => *renew_at = NOW + RENEW,
            _ => {}
        }
    }

    /// Takes the first answer from the wire.
    pub(crate) fn hear(&mut self, flaw: Flaw) {
        let Exchange { answer, sent, .. } = self.wire.remove(0);
        let counted_from = if flaw == Flaw::LeaseFromReply { NOW } else { sent };
        let drift = if flaw == Flaw::NoDrift { 0 } else { DRIFT };
        let lease = counted_from + TTL - drift;
        match (self.phase, answer) {
            (Phase::Asking { value, .. }, Some(Answer::Granted)) => self.granted(value, lease),
            (Phase::Asking { .. }, Some(Answer::Held)) if self.way == Way::Once => self.phase = Phase::Idle,
            (Phase::Body { deadline, .. }, Some(Answer::Extended))
                if NOW < deadline || flaw == Flaw::LateExtensionCounts =>
            {
                self.extended(lease);
            }
            (Phase::Body { value, .. }, Some(Answer::NotHeld)) => self.phase = Phase::Releasing { value },
            (Phase::Releasing { .. }, Some(Answer::Released)) => self.phase = Phase::Idle,
            _ => {}
        }
    }

    fn granted(&mut self, value: Value, deadline: Tick) {
        self.phase = if NOW < deadline {
            Phase::Body { value, deadline, renew_at: NOW + RENEW, ended: false }
        } else if self.way == Way::Queue {
            // The script knows the value and starts the term anew. The client may also release, at any time.
            Phase::Asking { value, ask_at: NOW }
        } else {
            Phase::Releasing { value }
        };
    }

    fn extended(&mut self, lease: Tick) {
        if let Phase::Body { deadline, .. } = &mut self.phase {
            *deadline = lease.max(*deadline);
        }
    }

    pub(crate) fn waits_for(&self, value: Value) -> bool {
        matches!(self.phase, Phase::Asking { value: own, .. } if own == value)
    }

    pub(crate) fn waits(&self) -> bool {
        self.way == Way::Queue && !self.paused && matches!(self.phase, Phase::Asking { .. })
    }

    pub(crate) fn wake(&mut self, flaw: Flaw) {
        let Phase::Asking { value, .. } = self.phase else { return };
        self.phase = Phase::Asking { value, ask_at: NOW };
        if flaw == Flaw::BodyAtHandOver {
            self.granted(value, NOW + TTL - DRIFT);
        }
    }

    /// Whether the body takes a step if it is polled now.
    pub(crate) fn steps(&self, flaw: Flaw) -> Option<Value> {
        match self.phase {
            Phase::Body { value, deadline, .. } if NOW < deadline || flaw == Flaw::DeadlineIgnored => Some(value),
            _ => None,
        }
    }

    pub(crate) fn lease_has_ended(&self) -> bool {
        matches!(self.phase, Phase::Body { ended: true, .. })
    }

    /// The body's end, or the waiter's: both release, whatever they know of the lock.
    pub(crate) fn finish(&mut self) {
        if let Phase::Asking { value, .. } | Phase::Body { value, .. } = self.phase {
            self.phase = Phase::Releasing { value };
        }
    }

    /// What is under way may arrive, but nobody hears of it.
    pub(crate) fn disconnect(&mut self) {
        let unanswered = self.wire.drain(..).filter(|sent| sent.answer.is_none());
        self.strays.extend(unanswered.map(|sent| sent.request));
        match &mut self.phase {
            Phase::Asking { value, .. } if self.way == Way::Once => self.phase = Phase::Releasing { value: *value },
            Phase::Asking { ask_at: next, .. } | Phase::Body { renew_at: next, .. } => *next = NOW,
            _ => {}
        }
    }

    pub(crate) fn crash(&mut self) {
        self.disconnect();
        self.phase = Phase::Crashed;
        self.acquisitions_left = 0;
        self.paused = false;
    }

    pub(crate) fn tick(&mut self) {
        match &mut self.phase {
            Phase::Asking { ask_at, .. } => *ask_at = closer(*ask_at).max(NOW),
            Phase::Body { deadline, renew_at, ended, .. } => {
                *deadline = closer(*deadline).max(NOW);
                *renew_at = closer(*renew_at).max(NOW);
                *ended |= *deadline == NOW;
            }
            _ => {}
        }
        let is_heard = matches!(self.phase, Phase::Asking { .. } | Phase::Body { .. });
        for exchange in &mut self.wire {
            let matters = is_heard && !matches!(exchange.answer, Some(Answer::Held | Answer::NotHeld));
            // When it was sent is forgotten where nobody will ask, and older than a lease is as good as never.
            exchange.sent = if matters { closer(exchange.sent).max(NOW - TTL) } else { NOW };
        }
    }
}
