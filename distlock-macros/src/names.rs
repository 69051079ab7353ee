//! The names of the arguments, and the names that people will try.

use crate::{suggest, words};

/// The arguments that there are, with a value to show for each, in the order of the documentation.
const ARGUMENTS: &[(&str, &str)] = &[
    ("key", "\"order:<id>\""),
    ("global", ""),
    ("keys", "[\"account:<from>\", \"account:<to>\"]"),
    ("ttl", "\"30s\""),
    ("retry", "3"),
    ("backoff", "\"50ms..800ms\""),
    ("wait", "\"5s\""),
    ("watchdog", "false"),
    ("max_hold", "\"5m\""),
    ("on_lost", "finish"),
    ("or_else", "|error| .."),
    ("lease", "lease"),
    ("fencing_token", "token"),
    ("mode", "read"),
    ("permits", "3"),
    ("reentrant", "false"),
    ("manager", "self.locks"),
    ("crate", "my::distlock"),
];

/// What other libraries, and habit, call our arguments.
const ALIASES: &[(&str, &[&str])] = &[
    ("key", &["name", "id", "lock", "lock_name", "resource"]),
    ("ttl", &["expire", "expires", "expiry", "lease_time", "duration", "ex", "px"]),
    ("retry", &["retries", "attempts", "tries", "max_retries", "max_attempts"]),
    ("backoff", &["delay", "interval", "retry_delay", "retry_interval", "sleep"]),
    ("wait", &["timeout", "fair", "queue", "wait_time", "wait_timeout", "acquire_timeout"]),
    ("watchdog", &["renew", "auto_renew", "renewal", "keep_alive", "heartbeat"]),
    ("max_hold", &["max_lease", "hold", "max_time", "deadline"]),
    ("or_else", &["fallback", "on_error", "on_busy", "default"]),
    ("fencing_token", &["token", "fence", "fencing"]),
    ("manager", &["client", "redis", "pool", "connection", "backend"]),
    ("mode", &["access", "kind", "lock_mode", "rw_lock", "rwlock"]),
    ("permits", &["limit", "concurrency", "max_concurrency", "max_holders", "semaphore", "slots"]),
];

/// The argument that is meant by `name`: itself, one that goes by that name elsewhere, or the nearest in spelling.
pub(crate) fn meant(name: &str) -> Option<&'static str> {
    let mut names = ARGUMENTS.iter().map(|(name, _)| *name);
    let alias = ALIASES.iter().find(|(_, others)| others.contains(&name));
    match alias {
        Some((meant, _)) => names.find(|known| known == meant),
        None if words::mode_called(name).is_some() => Some("mode"),
        None => suggest::nearest(name, names),
    }
}

/// What to say of an argument that doesn't exist.
pub(crate) fn unknown(name: &str) -> String {
    match meant(name) {
        // It could be any of three.
        _ if name == "timeout" => {
            "unknown argument `timeout`; how long the lease lasts is `ttl`, how long to wait for the \
             lock is `wait`, how long to hold it at most is `max_hold`"
                .to_owned()
        }
        _ if name == "prefix" => {
            "unknown argument `prefix`; what all keys begin with is the manager's, set by `LockManager::builder().prefix(..)`"
                .to_owned()
        }
        Some(meant) => {
            let value = words::mode_called(name).map(|mode| format!(" = {mode}"));
            let value = value.unwrap_or_default();
            format!("unknown argument `{name}`; did you mean `{meant}{value}`?")
        }
        None => {
            let list: Vec<String> = ARGUMENTS.iter().map(|(name, _)| format!("`{name}`")).collect();
            format!("unknown argument `{name}`; there are {}", list.join(", "))
        }
    }
}

/// A value to show for an argument.
pub(crate) fn example(name: &str) -> &'static str {
    let found = ARGUMENTS.iter().find(|(known, _)| *known == name);
    found.map_or("..", |(_, example)| example)
}

#[cfg(test)]
mod tests {
    use super::{ALIASES, ARGUMENTS, meant, unknown, words};

    #[test]
    fn an_argument_is_guessed_from_what_others_call_it() {
        let table = [
            ("timeout", Some("wait")),
            ("expiry", Some("ttl")),
            ("lease_time", Some("ttl")),
            ("retries", Some("retry")),
            ("resource", Some("key")),
            ("interval", Some("backoff")),
            ("fair", Some("wait")),
            ("wachdog", Some("watchdog")),
            ("tll", Some("ttl")),
            ("retyr", Some("retry")),
            ("rwlock", Some("mode")),
            ("shared", Some("mode")),
            ("write", Some("mode")),
            ("semaphore", Some("permits")),
            ("permit", Some("permits")),
            ("colour", None),
        ];
        for (name, argument) in table {
            assert_eq!(meant(name), argument, "for `{name}`");
        }
    }

    #[test]
    fn a_mode_in_place_of_a_name_is_told_with_its_name() {
        assert_eq!(unknown("shared"), "unknown argument `shared`; did you mean `mode = read`?");
        assert_eq!(unknown("rwlock"), "unknown argument `rwlock`; did you mean `mode`?");
    }

    #[test]
    fn an_alias_means_an_argument_and_is_none_itself() {
        let is_argument = |name: &str| ARGUMENTS.iter().any(|(known, _)| *known == name);
        for (argument, aliases) in ALIASES {
            assert!(is_argument(argument), "`{argument}`");
            assert!(!aliases.iter().any(|alias| is_argument(alias)), "of `{argument}`");
            assert!(!aliases.iter().any(|alias| words::mode_called(alias).is_some()), "of `{argument}`");
        }
    }
}
