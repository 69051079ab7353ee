//! What an onlooker who sees everything keeps in mind, to judge by it. Nobody in the model reads it.

use crate::client::{Client, Phase};
use crate::model::{Action, Faults, Pace, Protocol, State};
use crate::server::{Answer, Lock, Request, Value};
use crate::time::{CLAIM, FORGET, LIVE, POLL, TTL, Tick};

/// Within how long a waiter that lives must be served once nothing goes wrong any more: the lease of a holder that is gone or
/// the turns of a waiter that is gone, whichever take longer, and the next sign of life, which finds the lock free.
pub(crate) const SERVED_WITHIN: Tick = longer(TTL, LIVE + CLAIM) + POLL;
/// Within how long all has expired that clients which are gone have left.
pub(crate) const EMPTY_WITHIN: Tick = TTL + FORGET;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Watch {
    /// A request changed the lock of another acquisition.
    pub(crate) trespassed: bool,
    /// A waiter was served before one that came earlier.
    pub(crate) overtaken: bool,
    /// Waiters that were not served yet, in order of arrival.
    arrived: Vec<Value>,
    /// Ticks for which somebody waits, nobody runs and nothing goes wrong.
    pub(crate) unserved: Tick,
    /// Ticks for which nobody holds, waits or has anything under way.
    pub(crate) deserted: Tick,
}

impl Watch {
    pub(crate) fn handled(&mut self, request: Request, before: Option<&Lock>, after: Option<&Lock>) {
        let (Request::Wait(value) | Request::Set(value) | Request::Renew(value) | Request::Release(value)) = request;
        // The sign that somebody waits takes nothing from its holder.
        let is_same = before.map(Lock::without_sign) == after.map(Lock::without_sign);
        self.trespassed |= !is_same && before.is_some_and(|lock| lock.value != value);
    }

    pub(crate) fn waiter_asked(&mut self, value: Value, answer: Answer) {
        if !self.arrived.contains(&value) {
            self.arrived.push(value);
        }
        if answer == Answer::Granted {
            self.overtaken |= self.arrived[0] != value;
            self.arrived.retain(|other| *other != value);
        }
    }

    pub(crate) fn after(&mut self, state: &State, model: &Protocol, action: Action) {
        if model.faults == Faults::NONE && model.pace == Pace::Timely {
            self.arrived.retain(|value| state.clients[usize::from(value.client)].waits_for(*value));
        } else {
            // The order is promised only where nothing goes wrong.
            (self.overtaken, self.arrived) = (false, Vec::new());
        }
        if model.pace == Pace::Any {
            return;
        }
        let ticks = Tick::from(action == Action::Tick);
        let runs = state.clients.iter().any(|client| client.steps(model.flaw).is_some());
        let is_quiet = state.clients.iter().any(Client::waits) && !runs && !is_mishap(action);
        self.unserved = if is_quiet { (self.unserved + ticks).min(SERVED_WITHIN + 1) } else { 0 };
        self.deserted = if is_deserted(state) { (self.deserted + ticks).min(EMPTY_WITHIN + 1) } else { 0 };
    }
}

pub(crate) fn is_deserted(state: &State) -> bool {
    state.clients.iter().all(|client| {
        let is_gone = matches!(client.phase, Phase::Idle | Phase::Crashed);
        is_gone && client.wire.is_empty() && client.strays.is_empty()
    })
}

fn is_mishap(action: Action) -> bool {
    matches!(
        action,
        Action::StrayArrives(_)
            | Action::Crash(_)
            | Action::Disconnect(_)
            | Action::LoseWakeup(_)
            | Action::Pause(_)
            | Action::Resume(_)
            | Action::TickEarly
            | Action::ServerTicksAlone
    )
}

const fn longer(one: Tick, other: Tick) -> Tick {
    if one > other { one } else { other }
}
