//! The rules with one flaw each: the checker finds a state that breaks what the flaw puts at risk. So every property can
//! fail, and every rule that is left out here is needed.

use stateright::{Checker, HasDiscoveries, Model};

use crate::client::Way::Queue;
use crate::flaw::Flaw;
use crate::model::{Faults, Protocol};
use crate::properties::{ENDED_IS_ENDED, IN_ORDER, NOBODY_ELSES, NOTHING_LEFT, ONE_BODY, SERVED, UNDER_ITS_LOCK};

#[test]
fn a_release_that_does_not_compare_the_value_frees_a_lock_of_somebody_else() {
    breaks(&[NOBODY_ELSES, UNDER_ITS_LOCK, ONE_BODY], twice_in_time(Flaw::ReleaseOfAnyLock, Faults::NONE));
}

#[test]
fn a_body_that_begins_with_the_wake_up_outlives_the_time_to_claim() {
    breaks(&[UNDER_ITS_LOCK, ONE_BODY], at_any_pace(Flaw::BodyAtHandOver, Faults::NONE));
}

#[test]
fn a_lease_that_counts_from_the_answer_outlives_the_lock() {
    breaks(&[UNDER_ITS_LOCK, ONE_BODY], at_any_pace(Flaw::LeaseFromReply, Faults::NONE));
}

#[test]
fn a_lease_without_drift_outlives_the_lock_on_a_faster_clock() {
    let faults = Faults { slips: 1, ..Faults::NONE };
    breaks(&[UNDER_ITS_LOCK, ONE_BODY], at_any_pace(Flaw::NoDrift, faults));
}

#[test]
fn a_body_that_takes_no_answer_for_an_extension_outlives_its_lease() {
    let faults = Faults { disconnects: 1, ..Faults::NONE };
    breaks(&[ENDED_IS_ENDED, UNDER_ITS_LOCK, ONE_BODY], at_any_pace(Flaw::DeadlineIgnored, faults));
}

#[test]
fn an_extension_after_the_deadline_brings_back_a_lease_that_ended() {
    breaks(&[ENDED_IS_ENDED], at_any_pace(Flaw::LateExtensionCounts, Faults::NONE));
}

#[test]
fn a_value_that_is_used_again_is_freed_by_a_late_release() {
    let faults = Faults { disconnects: 1, ..Faults::NONE };
    breaks(&[UNDER_ITS_LOCK, ONE_BODY], twice_in_time(Flaw::ValueReused, faults));
}

#[test]
fn a_lock_handed_to_a_dead_waiter_for_good_serves_nobody() {
    let faults = Faults { crashes: 1, ..Faults::NONE };
    breaks(&[SERVED, NOTHING_LEFT], twice_in_time(Flaw::HandOverForGood, faults));
}

#[test]
fn a_dead_waiter_that_keeps_its_turn_holds_up_the_others() {
    let faults = Faults { crashes: 1, ..Faults::NONE };
    breaks(&[SERVED], twice_in_time(Flaw::DeadWaitersServed, faults));
}

#[test]
fn a_queue_taken_from_the_wrong_end_serves_out_of_order() {
    let flaw = Flaw::LastComeFirstServed;
    breaks(&[IN_ORDER], Protocol { flaw, ..Protocol::timely(&[Queue, Queue, Queue]) });
}

#[test]
fn a_queue_without_expiry_outlives_its_last_waiter() {
    let faults = Faults { crashes: 1, ..Faults::NONE };
    breaks(&[NOTHING_LEFT], twice_in_time(Flaw::QueueKeptForGood, faults));
}

fn at_any_pace(flaw: Flaw, faults: Faults) -> Protocol {
    Protocol { faults, flaw, ..Protocol::at_any_pace(&[Queue, Queue]) }
}

fn twice_in_time(flaw: Flaw, faults: Faults) -> Protocol {
    Protocol { acquisitions: 2, faults, flaw, ..Protocol::timely(&[Queue, Queue]) }
}

fn breaks(properties: &[&'static str], model: Protocol) {
    let flaw = model.flaw;
    let all = HasDiscoveries::AllOf(properties.iter().copied().collect());
    let checker = model.checker().finish_when(all).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    for property in properties {
        assert!(checker.discovery(property).is_some(), "{flaw:?} was not found to break {property:?}");
    }
}
