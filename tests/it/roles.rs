//! What child processes do, by name: see `harness::process`.

#[cfg(feature = "tls")]
use crate::tls;
use crate::{
    clock, connecting, exclusion, fencing, going_down, isolated, kinds, observing, selftest, sentinel, waiting,
};

type Role = fn(&[&str]);

const ROLES: &[(&str, Role)] = &[
    ("clock: hold", clock::hold_until_told),
    ("clock: hold many", clock::hold_many),
    ("clock: try once", clock::try_once),
    ("connecting: install twice", connecting::install_twice),
    ("exclusion: work", exclusion::work),
    ("going down", going_down::go_down),
    ("isolated: hold", isolated::hold_until_lost),
    ("isolated: take over", isolated::take_over),
    ("kinds: hold and tell", kinds::hold_and_tell),
    ("kinds: wait to write", kinds::wait_to_write),
    ("kinds: work", kinds::work),
    ("observing: lock with a broken recorder", observing::broken::lock_with_a_broken_recorder),
    ("selftest: count", selftest::processes::count),
    ("selftest: clock", selftest::clock::tell_time),
    ("selftest: hold", selftest::processes::hold),
    ("sentinel: lock on a sign", sentinel::lock_on_a_sign),
    ("fencing: fence", fencing::fence_in_a_child),
    #[cfg(feature = "tls")]
    ("tls: lock once", tls::lock_once),
    ("waiting: lock many keys", waiting::lock_many_keys),
    ("waiting: wait", waiting::wait_in_a_child),
];

/// Runs a role to its end.
fn play(name: &str, arguments: &[&str]) {
    match ROLES.iter().find(|(known, _)| *known == name) {
        Some((_, role)) => role(arguments),
        None => panic!("no role `{name}`"),
    }
}

/// Where a child begins. As a test of its own it has nothing to do.
#[test]
fn child_entry() {
    let Some((role, arguments)) = harness::process::role() else {
        return;
    };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // libtest's own `test ... ` stands on the line already.
    println!();
    play(&role, &arguments);
}
