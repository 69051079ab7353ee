//! `redlock://[user:password@]h1,h2,h3[/db][?..]`, and lists of URLs.

use tracing::warn;

use super::client::Certificates;
use super::{invalid, target};
use crate::LockError;
use crate::backend::redis::{RedisBackend, Target};
use crate::backend::redlock::RedlockBackend;

const SCHEME: &str = "redlock://";

pub(super) fn is_one(url: &str) -> bool {
    url.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
}

/// The URLs of the servers, which have all but the host in common.
pub(super) fn each_url(url: &str) -> Vec<String> {
    let rest = url.get(SCHEME.len()..).unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (user, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    hosts.split(',').filter(|host| !host.is_empty()).map(|host| format!("redis://{user}{host}{path}")).collect()
}

/// Locks over the servers that these URLs name.
pub(super) fn over_several(
    urls: &[String],
    certificates: &Certificates,
    over_redis: impl Fn(Target) -> RedisBackend,
) -> Result<RedlockBackend, LockError> {
    let mut nodes: Vec<RedisBackend> = Vec::with_capacity(urls.len());
    let mut addresses: Vec<String> = Vec::with_capacity(urls.len());
    for (at, url) in urls.iter().enumerate() {
        let target = target(url, certificates)?;
        let Target::Server(client) = &target else {
            let reason = format!("server no. {} of a Redlock is a service; name its servers one by one", at + 1);
            return Err(invalid("redlock", reason));
        };
        let address = client.get_connection_info().addr().to_string();
        if addresses.contains(&address) {
            return Err(invalid("redlock", format!("{address} stands there twice; each server has one vote")));
        }
        addresses.push(address);
        nodes.push(over_redis(target));
    }
    check_number(nodes.len())?;
    Ok(RedlockBackend::new(nodes))
}

fn check_number(servers: usize) -> Result<(), LockError> {
    if servers < 3 {
        let reason = format!(
            "it needs at least three independent servers, and there are {servers}: of fewer, none may fail. Add servers, \
             or use one with `redis://`"
        );
        return Err(invalid("redlock", reason));
    }
    if servers > RedlockBackend::MOST {
        return Err(invalid("redlock", format!("at most {} servers are possible", RedlockBackend::MOST)));
    }
    if servers.is_multiple_of(2) {
        warn!(target: "distlock", servers, "an even number of servers survives no more losses than one less would");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{each_url, is_one};

    #[test]
    fn the_servers_have_all_but_the_host_in_common() {
        assert!(is_one("redlock://a,b,c") && is_one("Redlock://a") && !is_one("redis://a") && !is_one("r"));
        assert_eq!(each_url("redlock://a,b:1"), ["redis://a", "redis://b:1"]);
        assert_eq!(
            each_url("redlock://u:p@a,b/2?protocol=resp2"),
            ["redis://u:p@a/2?protocol=resp2", "redis://u:p@b/2?protocol=resp2"]
        );
    }
}
