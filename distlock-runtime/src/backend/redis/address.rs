use std::fmt;

use redis::{Client, ConnectionAddr, ConnectionInfo, RedisResult};

/// Where a server is, as other servers write it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// Reads `host:port`. A host may have colons itself, and may be missing.
    pub(crate) fn parse(text: &str) -> Option<Address> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Some(Address { host: host.to_owned(), port: port.parse().ok()? })
    }

    /// A client of the server there, with the settings in `like`, whose own address does not matter.
    pub(crate) fn client(&self, like: &ConnectionInfo) -> RedisResult<Client> {
        let Address { host, port } = self.clone();
        let at = match like.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Client::open(like.clone().set_addr(at))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn hosts_may_be_names_addresses_of_both_kinds_or_missing() {
        let read = |text| Address::parse(text).map(|address| (address.to_string(), address.host));
        assert_eq!(read("10.0.0.1:6379"), Some(("10.0.0.1:6379".to_owned(), "10.0.0.1".to_owned())));
        assert_eq!(read("2001:db8::1:6379"), Some(("[2001:db8::1]:6379".to_owned(), "2001:db8::1".to_owned())));
        assert_eq!(read("[::1]:6379"), Some(("[::1]:6379".to_owned(), "::1".to_owned())));
        assert_eq!(read(":6379"), Some((":6379".to_owned(), String::new())));
        assert_eq!((read("host"), read("host:x"), read("host:70000")), (None, None, None));
    }
}
