//! What comes of what happens.

use crate::client::Client;
use crate::model::{Action, Protocol, State};
use crate::server::{Answer, Request};

impl Protocol {
    pub(crate) fn act(&self, state: &mut State, action: Action) {
        let State { clients, .. } = state;
        match action {
            Action::Start(id) => clients[id].start(self.flaw),
            Action::Send(id) => {
                if let Some(request) = clients[id].due() {
                    clients[id].send(request);
                }
            }
            Action::Arrive(id) => self.arrive(state, id),
            Action::Hear(id) => clients[id].hear(self.flaw),
            Action::Finish(id) => clients[id].finish(),
            Action::Wake(value) => {
                state.wakeups.remove(&value);
                clients[usize::from(value.client)].wake(self.flaw);
            }
            Action::StrayArrives(id) => {
                let request = clients[id].strays.remove(0);
                self.handle(state, request);
            }
            Action::StraysAreLost(id) => clients[id].strays.clear(),
            Action::Tick => state.tick(),
            _ => state.go_wrong(action),
        }
        let State { clients, wakeups, .. } = state;
        // Nobody else would listen.
        wakeups.retain(|value| clients[usize::from(value.client)].waits_for(*value));
    }

    fn arrive(&self, state: &mut State, id: usize) {
        let Some(at) = state.clients[id].wire.iter().position(|sent| sent.answer.is_none()) else { return };
        let request = state.clients[id].wire[at].request;
        let answer = self.handle(state, request);
        state.clients[id].wire[at].answer = Some(answer);
    }

    fn handle(&self, state: &mut State, request: Request) -> Answer {
        let before = state.server.lock.clone();
        let (answer, woken) = state.server.handle(request, self.flaw);
        state.wakeups.extend(woken);
        state.watch.handled(request, before.as_ref(), state.server.lock.as_ref());
        if let Request::Wait(value) = request
            && state.clients[usize::from(value.client)].waits_for(value)
        {
            state.watch.waiter_asked(value, answer);
        }
        answer
    }

    pub(crate) fn watch(&self, state: &mut State, action: Action) {
        let mut watch = std::mem::take(&mut state.watch);
        watch.after(state, self, action);
        state.watch = watch;
    }
}

impl State {
    fn go_wrong(&mut self, action: Action) {
        let State { clients, faults, .. } = self;
        match action {
            Action::Crash(id) => {
                faults.crashes -= 1;
                clients[id].crash();
            }
            Action::Disconnect(id) => {
                faults.disconnects -= 1;
                clients[id].disconnect();
            }
            Action::LoseWakeup(value) => {
                faults.lost_wakeups -= 1;
                self.wakeups.remove(&value);
            }
            Action::Pause(id) => {
                faults.pauses -= 1;
                clients[id].paused = true;
            }
            Action::Resume(id) => clients[id].paused = false,
            Action::TickEarly => {
                faults.delays -= 1;
                self.tick();
            }
            Action::ServerTicksAlone => {
                faults.slips -= 1;
                self.server.tick();
            }
            _ => unreachable!("{action:?} is no fault"),
        }
    }

    fn tick(&mut self) {
        self.server.tick();
        self.clients.iter_mut().for_each(Client::tick);
    }
}
