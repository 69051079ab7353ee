//! What can be checked about a server when we connect to it. It is told by a warning, and never in the way.

use std::time::Duration;

use redis::Value;
use tracing::{debug, warn};

use super::live::Live;

/// The oldest version that distlock is tested with.
const TESTED: (u32, u32) = (7, 0);

pub(super) async fn inspect(live: &Live, timeout: Duration) {
    let address = live.address();
    match live.send(&redis::cmd("INFO"), timeout).await {
        Ok(Value::BulkString(text)) => warn_about(&String::from_utf8_lossy(&text), address),
        Ok(Value::VerbatimString { text, .. }) => warn_about(&text, address),
        Ok(_) => debug!(target: "distlock", address, "the server was not inspected: INFO has an unknown form"),
        Err(error) => debug!(target: "distlock", address, %error, "the server was not inspected"),
    }
}

fn warn_about(info: &str, address: &str) {
    for finding in findings(info) {
        warn!(target: "distlock", address, "{finding}");
    }
}

fn findings(info: &str) -> Vec<String> {
    let field = |name: &str| {
        info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':').map(str::to_owned))
    };
    let mut findings = Vec::new();
    if let Some(version) = field("redis_version").filter(|version| older_than(version, TESTED)) {
        findings.push(format!("Redis {version} is older than what distlock is tested with, which is 7.0"));
    }
    if let Some(policy) = field("maxmemory_policy").filter(|policy| policy != "noeviction") {
        findings.push(format!("maxmemory-policy is {policy}: short of memory, the server evicts locks that are held"));
    }
    if field("role").as_deref() == Some("slave") {
        findings.push("this server is a replica: it takes no locks until it is promoted".to_owned());
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
        assert!(
            findings("# Server\r\nredis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n").is_empty()
        );
        assert!(findings("").is_empty());
    }

    #[test]
    fn each_danger_is_named() {
        let found = findings("redis_version:6.2.14\r\nmaxmemory_policy:allkeys-lru\r\nrole:slave\r\n");
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("6.2.14") && found[1].contains("allkeys-lru") && found[2].contains("replica"));
    }
}
