//! What can be checked about a server when we connect to it. It is told by a warning, and never in the way.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::Value;
use tracing::{debug, warn};

use super::live::Live;

/// The oldest version that distlock is tested with.
const TESTED: (u32, u32) = (7, 0);

/// What a manager looks at when it connects to a server, unless
/// [told not to](crate::LockManagerBuilder::skip_check). What it finds is a warning in the log, once for each manager.
///
/// It takes the right `+info`. Without that nothing is looked at, and nothing is amiss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServerCheck {
    /// Whether the server is older than those that distlock is tested with.
    Version,
    /// Whether the server is a replica, which takes no locks.
    Role,
    /// Whether the server evicts keys when it is short of memory (`maxmemory-policy`), and with them locks that are held.
    Eviction,
    /// Whether a restart makes the server forget the locks that are held (`appendonly no`).
    Persistence,
}

const ALL: [ServerCheck; 4] =
    [ServerCheck::Version, ServerCheck::Role, ServerCheck::Eviction, ServerCheck::Persistence];

/// Looks at servers for one manager.
#[derive(Debug, Default)]
pub(crate) struct Inspector {
    skipped: Vec<ServerCheck>,
    /// What was warned about already, of whatever server.
    told: Mutex<HashSet<String>>,
}

impl Inspector {
    pub(crate) fn new(skipped: Vec<ServerCheck>) -> Arc<Inspector> {
        Arc::new(Inspector { skipped, told: Mutex::default() })
    }

    /// Looks at the server behind a connection.
    pub(super) async fn inspect(&self, live: &Live, timeout: Duration) {
        if ALL.iter().all(|check| self.skipped.contains(check)) {
            return;
        }
        let address = live.address();
        match live.send(&redis::cmd("INFO"), timeout).await {
            Ok(Value::BulkString(text)) => self.warn_about(&String::from_utf8_lossy(&text), address),
            Ok(Value::VerbatimString { text, .. }) => self.warn_about(&text, address),
            Ok(_) => debug!(target: "distlock", address, "the server was not inspected: INFO has an unknown form"),
            Err(error) => debug!(target: "distlock", address, %error, "the server was not inspected"),
        }
    }

    fn warn_about(&self, info: &str, address: &str) {
        for (check, finding) in findings(info) {
            if self.skipped.contains(&check) {
                continue;
            }
            if self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(finding.clone()) {
                warn!(target: "distlock", address, ?check, "{finding}");
            }
        }
    }
}

fn findings(info: &str) -> Vec<(ServerCheck, String)> {
    let field = |name: &str| info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'));
    let mut findings = Vec::new();
    if let Some(version) = field("redis_version").filter(|version| older_than(version, TESTED)) {
        let text = format!("Redis {version} is older than what distlock is tested with, which is 7.0");
        findings.push((ServerCheck::Version, text));
    }
    if let Some(policy) = field("maxmemory_policy").filter(|policy| *policy != "noeviction") {
        let which = if policy.starts_with("volatile-") {
            "keys that expire, which all locks do"
        } else {
            "any keys, locks too"
        };
        let text = format!(
            "maxmemory-policy is {policy}: short of memory, the server evicts {which}, also while they are held"
        );
        findings.push((ServerCheck::Eviction, text));
    }
    if field("role") == Some("slave") {
        let text = "this server is a replica: it takes no locks until it is promoted";
        findings.push((ServerCheck::Role, text.to_owned()));
    }
    if field("aof_enabled") == Some("0") {
        let text = "appendonly is no: a restart of the server forgets locks that are held, so that until their leases \
                    would have ended a second holder is possible";
        findings.push((ServerCheck::Persistence, text.to_owned()));
    }
    findings
}

fn older_than(version: &str, limit: (u32, u32)) -> bool {
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    let version = parts.next().map(|major| (major, parts.next().unwrap_or(0)));
    version.is_some_and(|version| version < limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sound_server_is_not_worth_a_word() {
        let sound =
            "# Server\r\nredis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n";
        assert!(findings(sound).is_empty());
        assert!(findings("").is_empty());
    }

    #[test]
    fn each_danger_is_named() {
        let found = findings("redis_version:6.2.14\r\nmaxmemory_policy:allkeys-lru\r\nrole:slave\r\naof_enabled:0\r\n");
        let told = [
            (ServerCheck::Version, "6.2.14"),
            (ServerCheck::Eviction, "allkeys-lru"),
            (ServerCheck::Role, "replica"),
            (ServerCheck::Persistence, "forgets"),
        ];
        assert_eq!(found.len(), told.len(), "{found:?}");
        for ((check, text), (expected, part)) in found.iter().zip(told) {
            assert!(*check == expected && text.contains(part), "{expected:?}: {text}");
        }
    }

    #[test]
    fn policies_that_evict_what_expires_are_told_from_those_that_evict_anything() {
        let told = |policy: &str| findings(&format!("maxmemory_policy:{policy}")).remove(0).1;
        assert!(told("volatile-ttl").contains("keys that expire, which all locks do"));
        assert!(told("allkeys-random").contains("any keys, locks too"));
    }
}
