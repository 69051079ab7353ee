//! `redis-sentinel://[user:password@]h1:26379,h2:26379/db?sentinel_user=..&sentinel_password=..#service`.
//!
//! No text here quotes what can't be told from a part of a password: one that is not percent-encoded may be anywhere.

use redis::{Client, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use super::{invalid, settled, tuned};
use crate::LockError;
use crate::backend::redis::Service;

const FORM: &str = "`redis-sentinel://[user:password@]host[:port],..[/db]#service`";

/// Reads a URL whose scheme is known already. `scheme` is what connections to a single server would have: `redis` or `rediss`.
pub(super) fn service(url: &str, scheme: &str) -> Result<Service, LockError> {
    let Parts { credentials, hosts, path, query, name } = Parts::of(url)?;
    let addresses = hosts.split(',').enumerate().map(|(at, host)| sentinel_url(scheme, at + 1, host));
    let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
    let any = addresses.first().map_or("", |address| address.trim_start_matches(scheme).trim_start_matches("://"));
    let login = Login::of(scheme, query)?;
    let primary = read(&format!("{scheme}://{credentials}{any}{path}{query}"))?;
    let primary = settled(primary, login.has_protocol);

    let mut sentinels: Vec<Client> = Vec::with_capacity(addresses.len());
    for (at, address) in addresses.iter().enumerate() {
        let info = read(address)?;
        if sentinels.iter().any(|earlier| earlier.get_connection_info().addr() == info.addr()) {
            return Err(invalid("url", format!("its sentinel no. {} stands there twice", at + 1)));
        }
        sentinels.push(tuned(info.set_redis_settings(login.settings()))?);
    }
    Ok(Service::new(name.to_owned(), sentinels, tuned(primary)?.get_connection_info().clone()))
}

/// The parts of a URL, as they are written there.
struct Parts<'a> {
    /// With the `@` behind them, or empty.
    credentials: &'a str,
    hosts: &'a str,
    /// With the slash before it, or empty.
    path: &'a str,
    /// With the question mark before it, or empty.
    query: &'a str,
    name: &'a str,
}

impl<'a> Parts<'a> {
    fn of(url: &'a str) -> Result<Parts<'a>, LockError> {
        let rest = url.split_once("://").map_or("", |(_, rest)| rest);
        let (rest, name) = rest.split_once('#').unwrap_or((rest, ""));
        let (rest, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (credentials, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        if name.is_empty() {
            return Err(invalid("url", format!("the name of the service is missing: it has the form {FORM}")));
        }
        if name.contains(['?', '&', '=']) {
            return Err(invalid("url", "the query (`?..`) has to stand in front of the name of the service (`#..`)"));
        }
        // As Redis has it in the description of `sentinel monitor`.
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
            let allowed = "letters, digits, `.`, `-` and `_`";
            return Err(invalid("url", format!("the name of the service, behind `#`, may only have {allowed}")));
        }
        Ok(Parts { credentials, hosts, path, query, name })
    }
}

/// Makes one host of the list a URL of its own.
fn sentinel_url(scheme: &str, number: usize, host: &str) -> Result<String, LockError> {
    let bad = |what: &str| invalid("url", format!("its sentinel no. {number} {what}: it has the form {FORM}"));
    if host.is_empty() {
        return Err(bad("has no name"));
    }
    let has_port = !host.ends_with(']') && host.contains(':');
    let address = if has_port { host.to_owned() } else { format!("{host}:26379") };
    let url = format!("{scheme}://{address}");
    let parsed = redis::parse_redis_url(&url).ok_or_else(|| bad("can't be read"))?;
    if parsed.port().unwrap_or(0) == 0 {
        return Err(bad("has no port from 1 to 65535"));
    }
    Ok(url)
}

/// What the query says: how to log in to the sentinels.
#[derive(Default)]
struct Login {
    /// Whether it also says how to speak to the primary.
    has_protocol: bool,
    user: Option<String>,
    password: Option<String>,
}

impl Login {
    fn of(scheme: &str, query: &str) -> Result<Login, LockError> {
        let mut login = Login::default();
        let url = redis::parse_redis_url(&format!("{scheme}://any{query}"));
        for (name, value) in url.iter().flat_map(|url| url.query_pairs()) {
            let slot = match &*name {
                "sentinel_user" => &mut login.user,
                "sentinel_password" => &mut login.password,
                "protocol" if matches!(&*value, "2" | "resp2" | "3" | "resp3") => {
                    login.has_protocol = true;
                    continue;
                }
                "protocol" => return Err(invalid("url", "the `protocol` in its query is `resp2` or `resp3`")),
                _ => {
                    let known = "`sentinel_user`, `sentinel_password` and `protocol`";
                    return Err(invalid("url", format!("its query has an unknown parameter; there are {known}")));
                }
            };
            if value.is_empty() || slot.replace(value.into_owned()).is_some() {
                return Err(invalid("url", format!("`{name}` is empty, or there twice")));
            }
        }
        if login.user.is_some() && login.password.is_none() {
            return Err(invalid("url", "there is a `sentinel_user` without a `sentinel_password`"));
        }
        Ok(login)
    }

    /// The older protocol is enough for questions, and all sentinels speak it. Names of clients are another right to need.
    fn settings(&self) -> RedisConnectionInfo {
        let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        settings
    }
}

fn read(url: &str) -> Result<ConnectionInfo, LockError> {
    url.into_connection_info()
        .map_err(|error| invalid("url", format!("it has the form {FORM}, and can't be read otherwise: {error}")))
}

#[cfg(test)]
mod tests {
    use super::service;

    fn described(rest: &str) -> String {
        match service(&format!("redis-sentinel://{rest}"), "redis") {
            Ok(service) => service.describe(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_list_may_have_names_addresses_and_ports() {
        assert_eq!(described("h1,h2:5/3#s"), "the primary of `s` (sentinels: h1:26379, h2:5)");
        assert_eq!(described("u:p@[::1],[::2]:7#a.b-c_1"), "the primary of `a.b-c_1` (sentinels: ::1:26379, ::2:7)");
        assert_eq!(described("h?sentinel_user=u&sentinel_password=p%40#s"), "the primary of `s` (sentinels: h:26379)");
    }

    #[test]
    fn each_mistake_is_told_without_what_may_be_a_password() {
        for (url, told) in [
            ("u:secret@h1,h2/0", "the name of the service is missing"),
            ("h1#s?sentinel_password=secret", "in front of the name"),
            ("h1#my service", "may only have"),
            ("u:secret@h1,,h2#s", "no. 2 has no name"),
            ("u:secret@h1,h2:0#s", "no. 2 has no port from 1 to 65535"),
            ("u:secret@h1,h2:99999#s", "no. 2 can't be read"),
            ("u:se/secret@h1#s", "no. 1 can't be read"),
            ("u:secret@::1#s", "no. 1 can't be read"),
            ("u:secret@h1,h1:26379#s", "no. 2 stands there twice"),
            ("u:secret@h1/secret#s", "Invalid database number"),
            ("h1?protocol=secret#s", "is `resp2` or `resp3`"),
            ("h1?sentinel_pasword=secret#s", "unknown parameter"),
            ("h1?sentinel_password=#s", "`sentinel_password` is empty"),
            ("h1?sentinel_password=secret&sentinel_password=b#s", "there twice"),
            ("h1?sentinel_user=secret#s", "without a `sentinel_password`"),
            ("#s", "no. 1 has no name"),
        ] {
            let text = described(url);
            assert!(text.contains(told) && !text.contains("secret"), "{url}: {text}");
        }
    }
}
