//! `redis-sentinel://[user:password@]h1:26379,h2:26379/db?sentinel_user=..&sentinel_password=..#service`.

use redis::{Client, RedisConnectionInfo};

use super::client::Certificates;
use super::parts::{self, Parts};
use super::{invalid, settled};
use crate::LockError;
use crate::backend::redis::Service;

const FORM: &str = "`redis-sentinel://[user:password@]host[:port],..[/db]#service`";

/// Reads a URL whose scheme is known already. `scheme` is what connections to a single server would have: `redis` or `rediss`.
pub(super) fn service(url: &str, scheme: &str, certificates: &Certificates) -> Result<Service, LockError> {
    let Parts { credentials, path, query, name, .. } = Parts::of(url);
    check_name(name)?;
    let addresses = Parts::of(url).addresses(scheme, "sentinel", 26379, FORM)?;
    let any = addresses.first().map_or("", |address| address.trim_start_matches(scheme).trim_start_matches("://"));
    let login = Login::of(scheme, query)?;
    let primary = parts::read(&format!("{scheme}://{credentials}{any}{path}{query}"), FORM)?;
    let primary = settled(primary, login.has_protocol);

    let mut sentinels: Vec<Client> = Vec::with_capacity(addresses.len());
    for address in &addresses {
        let info = parts::read(address, FORM)?;
        sentinels.push(certificates.client(info.set_redis_settings(login.settings()))?);
    }
    let primary = certificates.client(primary)?.get_connection_info().clone();
    Ok(Service::new(name.to_owned(), sentinels, primary))
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

fn check_name(name: &str) -> Result<(), LockError> {
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::client::Certificates;
    use super::service;

    fn described(rest: &str) -> String {
        match service(&format!("redis-sentinel://{rest}"), "redis", &Certificates::default()) {
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
