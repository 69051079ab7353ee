//! The rules as they are: no state that can come about breaks a property. There are about two million in these tests; of
//! what can go wrong, each has as much as lets it end within seconds.

use stateright::{Checker, DiscoveryClassification, HasDiscoveries, Model};

use crate::client::Way::{Once, Queue};
use crate::model::{Faults, Protocol};

#[test]
fn a_lock_is_safe_at_any_pace_though_a_client_crashes_and_clocks_differ() {
    let faults = Faults { crashes: 1, slips: 1, ..Faults::NONE };
    holds_in_all(250_000, Protocol { faults, ..Protocol::at_any_pace(&[Queue, Queue]) });
}

#[test]
fn a_lock_is_safe_at_any_pace_though_requests_come_late_from_an_old_connection() {
    let faults = Faults { disconnects: 1, ..Faults::NONE };
    holds_in_all(500_000, Protocol { faults, ..Protocol::at_any_pace(&[Queue, Queue]) });
}

#[test]
fn a_lock_is_safe_at_any_pace_between_one_that_waits_and_one_that_does_not() {
    let faults = Faults { crashes: 1, disconnects: 1, slips: 1, ..Faults::NONE };
    holds_in_all(250_000, Protocol { faults, ..Protocol::at_any_pace(&[Queue, Once]) });
}

#[test]
fn waiters_are_served_in_order_where_nothing_goes_wrong() {
    holds_in_all(30_000, Protocol::timely(&[Queue, Queue, Queue]));
    holds_in_all(200_000, Protocol { acquisitions: 2, ..Protocol::timely(&[Queue, Queue, Once]) });
}

#[test]
fn waiters_are_served_in_time_after_a_crash() {
    let faults = Faults { crashes: 1, ..Faults::NONE };
    holds_in_all(150_000, Protocol { faults, ..Protocol::timely(&[Queue, Queue, Queue]) });
}

#[test]
fn waiters_are_served_in_time_after_a_connection_was_lost() {
    let faults = Faults { disconnects: 1, ..Faults::NONE };
    holds_in_all(150_000, Protocol { faults, acquisitions: 2, ..Protocol::timely(&[Queue, Queue]) });
}

#[test]
fn waiters_are_served_in_time_after_a_lost_message_a_pause_a_delay_and_a_crash() {
    let faults = Faults { crashes: 1, lost_wakeups: 1, pauses: 1, delays: 1, ..Faults::NONE };
    holds_in_all(50_000, Protocol { faults, ..Protocol::timely(&[Queue, Queue]) });
}

/// Visits every state, and at least `fewest` of them, so that a model that has lost its ways does not pass.
fn holds_in_all(fewest: usize, model: Protocol) {
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    for (property, path) in checker.discoveries() {
        let is_broken = matches!(checker.discovery_classification(property), DiscoveryClassification::Counterexample);
        assert!(!is_broken, "{property:?} does not hold after {:#?}", path.into_actions());
    }
    checker.assert_properties();
    let visited = checker.unique_state_count();
    println!("{visited} states");
    assert!(visited >= fewest, "only {visited} states were visited");
}
