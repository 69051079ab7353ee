//! `redis-cluster://[user:password@]h1:6379,h2:6379`.

use super::parts::{self, Parts};
use super::{LockManagerBuilder, invalid, settled};
use crate::LockError;
use crate::backend::cluster::Access;
use crate::backend::redis::{Address, Inspector};

const FORM: &str = "`redis-cluster://[user:password@]host[:port],..`";

/// Reads a URL whose scheme is known already. `scheme` is what connections to a single server would have: `redis` or `rediss`.
pub(super) fn access(url: &str, scheme: &str, builder: &LockManagerBuilder) -> Result<Access, LockError> {
    let parts = Parts::of(url);
    if !parts.name.is_empty() {
        return Err(invalid("url", format!("there is no name (`#..`) of a cluster: it has the form {FORM}")));
    }
    if !matches!(parts.path, "" | "/" | "/0") {
        return Err(invalid("url", "a cluster has no databases but 0, so there can't be a number behind the hosts"));
    }
    let has_protocol = protocol(parts.query)?;
    let urls = parts.addresses(scheme, "node", 6379, FORM)?;
    let host = |url: &String| url.split_once("://").and_then(|(_, address)| Address::parse(address));
    let seeds: Vec<Address> = urls.iter().filter_map(host).collect();
    let any = seeds.first().map_or_else(String::new, Address::to_string);
    let like = parts::read(&format!("{scheme}://{}{any}{}", parts.credentials, parts.query), FORM)?;
    Ok(Access {
        seeds,
        like: builder.certificates.client(settled(like, has_protocol))?.get_connection_info().clone(),
        prefix: builder.prefix.clone(),
        connect_timeout: builder.connect_timeout,
        inspector: Inspector::new(builder.skipped.clone()),
        replica_acks: builder.replica_acks,
    })
}

/// Whether the query says how to speak, which is all that it may say.
fn protocol(query: &str) -> Result<bool, LockError> {
    match query.strip_prefix('?') {
        None | Some("") => Ok(false),
        Some("protocol=resp2" | "protocol=2" | "protocol=resp3" | "protocol=3") => Ok(true),
        Some(_) => Err(invalid("url", "its query may only be `?protocol=resp2` or `?protocol=resp3`")),
    }
}

#[cfg(test)]
mod tests {
    use super::access;
    use crate::LockManager;

    fn read(rest: &str) -> Result<String, String> {
        let access = access(&format!("redis-cluster://{rest}"), "redis", &LockManager::builder());
        let access = access.map_err(|error| error.to_string())?;
        Ok(access.seeds.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn the_list_may_have_names_addresses_and_ports() {
        assert_eq!(read("h1,h2:5,[::1]:7,[::2]").unwrap(), "h1:6379 h2:5 [::1]:7 [::2]:6379");
        assert_eq!(read("u:p%40@h1/?protocol=resp2").unwrap(), "h1:6379");
    }

    #[test]
    fn each_mistake_is_told_without_what_may_be_a_password() {
        for (url, told) in [
            ("u:secret@h1,,h2", "no. 2 has no name"),
            ("u:secret@h1,h1:6379", "no. 2 stands there twice"),
            ("u:secret@h1/3", "no databases"),
            ("u:se/secret@h1", "no databases"),
            ("h1?secret=1", "may only be"),
            ("h1#secret", "no name"),
            ("u:secret@h1:0", "no port"),
            ("", "no. 1 has no name"),
        ] {
            let text = read(url).unwrap_err();
            assert!(text.contains(told) && !text.contains("secret"), "{url}: {text}");
        }
    }
}
