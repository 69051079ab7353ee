//! What is modelled: clients, a server, the messages between them, and everything that can happen to them.

use std::collections::BTreeSet;

use stateright::{Model, Property};

use crate::client::{Client, Way};
use crate::flaw::Flaw;
use crate::properties;
use crate::server::{Server, Value};
use crate::watch::Watch;

#[derive(Clone, Debug)]
pub(crate) struct Protocol {
    pub(crate) clients: Vec<Way>,
    /// For each client.
    pub(crate) acquisitions: u8,
    pub(crate) pace: Pace,
    pub(crate) faults: Faults,
    pub(crate) flaw: Flaw,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Messages and processes take any time, at no charge. Shows what holds come what may.
    Any,
    /// Time stands still until all that is due is done; else it counts as a fault. Shows what comes in time.
    Timely,
}

/// How many there may be yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    pub(crate) crashes: u8,
    pub(crate) disconnects: u8,
    pub(crate) lost_wakeups: u8,
    pub(crate) pauses: u8,
    pub(crate) delays: u8,
    /// Ticks by which the server's clock runs ahead.
    pub(crate) slips: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) server: Server,
    pub(crate) clients: Vec<Client>,
    /// Messages to waiters under way. Two to one waiter are as good as one.
    pub(crate) wakeups: BTreeSet<Value>,
    pub(crate) faults: Faults,
    pub(crate) watch: Watch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Start(usize),
    Send(usize),
    /// The server handles the first request that it has not yet handled.
    Arrive(usize),
    Hear(usize),
    Wake(Value),
    /// The body ends, or the waiter gives up.
    Finish(usize),
    StrayArrives(usize),
    StraysAreLost(usize),
    Tick,
    Crash(usize),
    Disconnect(usize),
    LoseWakeup(Value),
    Pause(usize),
    Resume(usize),
    TickEarly,
    ServerTicksAlone,
}

impl Faults {
    pub(crate) const NONE: Faults =
        Faults { crashes: 0, disconnects: 0, lost_wakeups: 0, pauses: 0, delays: 0, slips: 0 };
}

impl Protocol {
    pub(crate) fn at_any_pace(clients: &[Way]) -> Protocol {
        Protocol { pace: Pace::Any, ..Protocol::timely(clients) }
    }

    pub(crate) fn timely(clients: &[Way]) -> Protocol {
        let clients = clients.to_vec();
        Protocol { clients, acquisitions: 1, pace: Pace::Timely, faults: Faults::NONE, flaw: Flaw::None }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let clients = (0..).zip(&self.clients).map(|(id, way)| Client::new(id, *way, self.acquisitions)).collect();
        let (server, wakeups, watch) = (Server::default(), BTreeSet::new(), Watch::default());
        vec![State { server, clients, wakeups, faults: self.faults, watch }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        state.choices(self.pace, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.act(&mut state, action);
        self.watch(&mut state, action);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Protocol>> {
        properties::all(self)
    }
}
