//! What can happen next.

use crate::client::{Client, Phase};
use crate::model::{Action, Pace, State};
use crate::server::Value;

impl State {
    pub(crate) fn choices(&self, pace: Pace, actions: &mut Vec<Action>) {
        for (id, client) in self.clients.iter().enumerate() {
            actions.extend(of_client(id, client));
            actions.extend(of_network(id, client));
            actions.extend(self.mishaps(id, client));
        }
        for value in &self.wakeups {
            actions.extend(self.of_wakeup(*value));
        }
        actions.extend(self.of_clocks(pace));
    }

    fn mishaps(&self, id: usize, client: &Client) -> impl Iterator<Item = Action> + use<> {
        let is_busy = !matches!(client.phase, Phase::Idle | Phase::Crashed);
        possible([
            (self.faults.crashes > 0 && is_busy, Action::Crash(id)),
            (self.faults.disconnects > 0 && !client.wire.is_empty(), Action::Disconnect(id)),
            (self.faults.pauses > 0 && is_busy && !client.paused, Action::Pause(id)),
            (client.paused, Action::Resume(id)),
        ])
    }

    fn of_wakeup(&self, value: Value) -> impl Iterator<Item = Action> + use<> {
        possible([
            (self.is_awake(value), Action::Wake(value)),
            (self.faults.lost_wakeups > 0, Action::LoseWakeup(value)),
        ])
    }

    fn of_clocks(&self, pace: Pace) -> impl Iterator<Item = Action> + use<> {
        let is_time = pace == Pace::Any || !self.something_is_due();
        possible([
            (is_time, Action::Tick),
            (!is_time && self.faults.delays > 0, Action::TickEarly),
            (self.faults.slips > 0, Action::ServerTicksAlone),
        ])
    }

    /// Whether something is left to do that takes no time where nothing goes wrong. What comes late from an old connection
    /// may take any.
    fn something_is_due(&self) -> bool {
        self.clients
            .iter()
            .any(|client| is_to_arrive(client) || !client.paused && (is_to_act(client) || is_to_hear(client)))
            || self.wakeups.iter().any(|value| self.is_awake(*value))
    }

    fn is_awake(&self, value: Value) -> bool {
        !self.clients[usize::from(value.client)].paused
    }
}

fn of_client(id: usize, client: &Client) -> impl Iterator<Item = Action> + use<> {
    let holds_or_waits = matches!(client.phase, Phase::Asking { .. } | Phase::Body { .. });
    let doings = possible([
        (client.can_start(), Action::Start(id)),
        (client.due().is_some(), Action::Send(id)),
        (is_to_hear(client), Action::Hear(id)),
        (holds_or_waits, Action::Finish(id)),
    ]);
    let paused = client.paused;
    doings.filter(move |_| !paused)
}

fn of_network(id: usize, client: &Client) -> impl Iterator<Item = Action> + use<> {
    let has_strays = !client.strays.is_empty();
    possible([
        (is_to_arrive(client), Action::Arrive(id)),
        (has_strays, Action::StrayArrives(id)),
        (has_strays, Action::StraysAreLost(id)),
    ])
}

fn is_to_act(client: &Client) -> bool {
    client.due().is_some() || client.lease_has_ended()
}

fn is_to_hear(client: &Client) -> bool {
    client.wire.first().is_some_and(|first| first.answer.is_some())
}

fn is_to_arrive(client: &Client) -> bool {
    client.wire.iter().any(|sent| sent.answer.is_none())
}

fn possible<const N: usize>(actions: [(bool, Action); N]) -> impl Iterator<Item = Action> {
    actions.into_iter().filter(|(is_possible, _)| *is_possible).map(|(_, action)| action)
}
