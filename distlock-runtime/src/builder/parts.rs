//! URLs with several hosts: `scheme://[user:password@]h1[:port],h2[:port],..[/db][?query][#name]`.
//!
//! No text here quotes what can't be told from a part of a password: one that is not percent-encoded may be anywhere.

use redis::{ConnectionInfo, IntoConnectionInfo};

use super::invalid;
use crate::LockError;

/// The parts of a URL, as they are written there.
pub(super) struct Parts<'a> {
    /// With the `@` behind them, or empty.
    pub(super) credentials: &'a str,
    pub(super) hosts: &'a str,
    /// With the slash before it, or empty.
    pub(super) path: &'a str,
    /// With the question mark before it, or empty.
    pub(super) query: &'a str,
    pub(super) name: &'a str,
}

impl<'a> Parts<'a> {
    pub(super) fn of(url: &'a str) -> Parts<'a> {
        let rest = url.split_once("://").map_or("", |(_, rest)| rest);
        let (rest, name) = rest.split_once('#').unwrap_or((rest, ""));
        let (rest, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (credentials, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        Parts { credentials, hosts, path, query, name }
    }

    /// Makes each host of the list a URL of its own, with `port` where it has none. `what` the hosts are is for messages, as
    /// is the whole URL's `form`.
    pub(super) fn addresses(&self, scheme: &str, what: &str, port: u16, form: &str) -> Result<Vec<String>, LockError> {
        if self.credentials.trim_end_matches('@').contains('@') {
            let reason = "user and password stand in front of all hosts, once, and an `@` in them is written `%40`";
            return Err(invalid("url", reason));
        }
        let mut addresses: Vec<String> = Vec::new();
        for (at, host) in self.hosts.split(',').enumerate() {
            let bad = |why: &str| invalid("url", format!("its {what} no. {} {why}: it has the form {form}", at + 1));
            let address = address(scheme, port, host).map_err(bad)?;
            if addresses.contains(&address) {
                return Err(invalid("url", format!("its {what} no. {} stands there twice", at + 1)));
            }
            addresses.push(address);
        }
        Ok(addresses)
    }
}

fn address(scheme: &str, port: u16, host: &str) -> Result<String, &'static str> {
    if host.is_empty() {
        return Err("has no name");
    }
    let has_port = !host.ends_with(']') && host.contains(':');
    let address = if has_port { host.to_ascii_lowercase() } else { format!("{}:{port}", host.to_ascii_lowercase()) };
    let url = format!("{scheme}://{address}");
    let parsed = redis::parse_redis_url(&url).ok_or("can't be read")?;
    if parsed.port().unwrap_or(0) == 0 {
        return Err("has no port from 1 to 65535");
    }
    Ok(url)
}

pub(super) fn read(url: &str, form: &str) -> Result<ConnectionInfo, LockError> {
    url.into_connection_info()
        .map_err(|error| invalid("url", format!("it has the form {form}, and can't be read otherwise: {error}")))
}
