//! What must hold in every state.

use stateright::Property;

use crate::client::Client;
use crate::model::{Faults, Pace, Protocol, State};
use crate::watch::{EMPTY_WITHIN, SERVED_WITHIN, is_deserted};

pub(crate) const ONE_BODY: &str = "never two in the body";
pub(crate) const UNDER_ITS_LOCK: &str = "a body steps only while the lock is its own";
pub(crate) const ENDED_IS_ENDED: &str = "a lease that ended is ended";
pub(crate) const NOBODY_ELSES: &str = "no request changes somebody else's lock";
pub(crate) const SERVED: &str = "who waits is served in time";
pub(crate) const NOTHING_LEFT: &str = "nothing is left on the server";
pub(crate) const IN_ORDER: &str = "first come, first served";

pub(crate) fn all(model: &Protocol) -> Vec<Property<Protocol>> {
    let mut all = vec![
        // Else the model would show little: see that it comes to what is hard.
        Property::sometimes("a waiter is woken", |_, state: &State| !state.wakeups.is_empty()),
        Property::always(ONE_BODY, one_body),
        Property::always(UNDER_ITS_LOCK, under_its_lock),
        Property::always(ENDED_IS_ENDED, ended_is_ended),
        Property::always(NOBODY_ELSES, |_, state: &State| !state.watch.trespassed),
    ];
    if model.pace == Pace::Timely {
        all.push(Property::always(SERVED, |_, state: &State| state.watch.unserved <= SERVED_WITHIN));
        all.push(Property::always(NOTHING_LEFT, nothing_left));
        all.push(Property::always(IN_ORDER, |_, state: &State| !state.watch.overtaken));
    } else {
        all.push(Property::sometimes("a lease ends under its body", |_, state: &State| {
            state.clients.iter().any(Client::lease_has_ended)
        }));
    }
    all
}

fn one_body(model: &Protocol, state: &State) -> bool {
    state.clients.iter().filter(|client| client.steps(model.flaw).is_some()).count() <= 1
}

fn under_its_lock(model: &Protocol, state: &State) -> bool {
    state.clients.iter().filter_map(|client| client.steps(model.flaw)).all(|value| state.server.is_held_by(value))
}

fn ended_is_ended(model: &Protocol, state: &State) -> bool {
    !state.clients.iter().any(|client| client.lease_has_ended() && client.steps(model.flaw).is_some())
}

/// At once where nothing goes wrong, else when everything has expired.
fn nothing_left(model: &Protocol, state: &State) -> bool {
    let is_time = state.watch.deserted > EMPTY_WITHIN || model.faults == Faults::NONE && is_deserted(state);
    !is_time || state.server.is_empty()
}
