//! What a URL says: which kind of place it names, and how to speak there.

use std::sync::Arc;

use redis::{ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use super::client::Certificates;
use super::parts::Parts;
use super::{invalid, service};
use crate::LockError;
use crate::backend::redis::Target;

pub(super) fn target(url: &str, certificates: &Certificates) -> Result<Target, LockError> {
    let scheme = check_scheme(url)?;
    if let Some(scheme) = scheme.strip_suffix("-sentinel") {
        return Ok(Target::Service(Arc::new(service::service(url, scheme, certificates)?)));
    }
    if !scheme.contains("unix") {
        check_parts(&Parts::of(url))?;
    }
    let info = url.into_connection_info().map_err(|error| {
        let form = "it has the form `redis://[user:password@]host[:port][/db]`";
        invalid("url", format!("{form}, and can't be read otherwise: {error}"))
    })?;
    let client = certificates.client(settled(info, url.contains("protocol=")))?;
    Ok(Target::Server(Arc::new(client)))
}

/// Refuses what would be ignored, or what is meant for another scheme.
fn check_parts(parts: &Parts<'_>) -> Result<(), LockError> {
    if !parts.name.is_empty() {
        return Err(invalid("url", "a name (`#..`) is for `redis-sentinel://`, where it is that of the service"));
    }
    if parts.hosts.contains(',') {
        let several = "`redis-sentinel://`, `redis-cluster://` and `redlock://`";
        return Err(invalid("url", format!("several hosts are for {several}")));
    }
    match parts.query.strip_prefix('?') {
        None | Some("") => Ok(()),
        Some(query) if query.split('&').all(|part| part.starts_with("protocol=")) => Ok(()),
        Some(_) => Err(invalid("url", "its query may only be `?protocol=resp2` or `?protocol=resp3`")),
    }
}

/// What we say of ourselves, and how we speak unless the URL says how.
pub(super) fn settled(info: ConnectionInfo, has_protocol: bool) -> ConnectionInfo {
    let mut settings = info.redis_settings().clone().set_lib_name("distlock", env!("CARGO_PKG_VERSION"));
    if !has_protocol {
        settings = settings.set_protocol(ProtocolVersion::RESP3);
    }
    info.set_redis_settings(settings)
}

/// The scheme, if it is one of ours.
pub(super) fn check_scheme(url: &str) -> Result<String, LockError> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme).to_ascii_lowercase();
    match scheme.as_str() {
        "memory" => Err(invalid("url", "`memory://` takes nothing behind it")),
        "redis" | "redis+unix" | "unix" | "redis-sentinel" | "redis-cluster" => Ok(scheme),
        "rediss" | "rediss-sentinel" | "rediss-cluster" if cfg!(feature = "tls") => Ok(scheme),
        "rediss" | "rediss-sentinel" | "rediss-cluster" => {
            Err(invalid("url", format!("`{scheme}://` needs the feature `tls` of distlock")))
        }
        // The URL itself stays out of the text: it may have a password.
        _ => {
            let schemes = "`redis://`, `rediss://`, `redis+unix://`, `redis-sentinel://`, `redis-cluster://`, `redlock://` or `memory://`";
            Err(invalid("url", format!("it must begin with {schemes}")))
        }
    }
}
