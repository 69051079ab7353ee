//! What child processes do, by name: see `harness::process`.

use crate::selftest;

type Role = fn(&[&str]);

const ROLES: &[(&str, Role)] = &[
    ("selftest: count", selftest::processes::count),
    ("selftest: clock", selftest::clock::tell_time),
    ("selftest: hold", selftest::processes::hold),
];

/// Runs a role to its end.
pub(crate) fn play(name: &str, arguments: &[&str]) {
    match ROLES.iter().find(|(known, _)| *known == name) {
        Some((_, role)) => role(arguments),
        None => panic!("no role `{name}`"),
    }
}
