//! `redlock://[user:password@]h1,h2,h3[/db][?..]`, and lists of URLs.

use tracing::warn;

use super::client::Certificates;
use super::parts::Parts;
use super::{invalid, target};
use crate::LockError;
use crate::backend::redis::{RedisBackend, Target};
use crate::backend::redlock::RedlockBackend;

const SCHEME: &str = "redlock://";
const FORM: &str = "`redlock://[user:password@]h1[:port],h2[:port],h3[:port][/db][?..]`";

pub(super) fn is_one(url: &str) -> bool {
    url.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
}

/// The URLs of the servers, which have all but the host in common.
pub(super) fn each_url(url: &str) -> Result<Vec<String>, LockError> {
    let Parts { credentials, hosts, path, query, name } = Parts::of(url);
    let bad = |why: &str| Err(invalid("url", format!("{why}: it has the form {FORM}")));
    if url.contains('#') || !name.is_empty() {
        return bad("it has a `#`, which has no meaning there and is percent-encoded (`%23`) in a password");
    }
    // What stands behind an `@` that is part of a password would otherwise be taken for a host, or a host for a password.
    if path.contains('@') || query.contains('@') {
        return bad("it has an `@` behind the hosts; `/`, `?` and `@` are percent-encoded in a password");
    }
    if credentials.matches('@').count() > 1 {
        return bad(
            "it has more than one `@`; user and password stand once, and an `@` in them is percent-encoded (`%40`)",
        );
    }
    if hosts.is_empty() {
        return bad("it names no servers");
    }
    let addresses = Parts::of(url).addresses("redis", "server", 6379, FORM)?;
    let hosts = addresses.iter().filter_map(|address| address.strip_prefix("redis://"));
    Ok(hosts.map(|host| format!("redis://{credentials}{host}{path}{query}")).collect())
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
        // Names of hosts are the same in any case of letters.
        let address = client.get_connection_info().addr().to_string().to_ascii_lowercase();
        if addresses.contains(&address) {
            // Not quoted: where a password is not percent-encoded, a part of it may be taken for the host.
            let reason = format!("server no. {} stands there twice; each server has one vote", at + 1);
            return Err(invalid("redlock", reason));
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
        let each = |url| each_url(url).unwrap();
        assert_eq!(each("redlock://a,B:1"), ["redis://a:6379", "redis://b:1"]);
        assert_eq!(
            each("redlock://u:p%40@a,b/2?protocol=resp2"),
            ["redis://u:p%40@a:6379/2?protocol=resp2", "redis://u:p%40@b:6379/2?protocol=resp2"]
        );
    }

    #[test]
    fn what_may_be_part_of_a_password_is_neither_used_nor_told() {
        for url in [
            "redlock://u:geheim@a,u:geheim@b,u:geheim@c",
            "redlock://u:1,geheim,x?y@a,b,c",
            "redlock://u:1,geheim,x/1?y@a,b,c",
            "redlock://u:1,geheim.invalid,x/@a,b,c",
            "redlock://a,b,c#geheim",
            "redlock://u:1#geheim@a,b,c",
            "redlock://u:ge/geheim@a,b,c",
            "redlock://geheim:x,b,c",
            "redlock://geheim,geheim,c",
            "redlock://",
        ] {
            let error = each_url(url).unwrap_err().to_string();
            assert!(error.contains("it has the form") || error.contains("twice"), "{error}");
            assert!(!error.contains("geheim"), "{error}");
        }
    }
}
