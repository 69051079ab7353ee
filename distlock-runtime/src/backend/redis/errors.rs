use std::error::Error;
use std::io;
use std::sync::Arc;

use redis::{Client, ConnectionAddr, ErrorKind, RedisError, ServerErrorKind};

use super::scripts::Source;
use crate::backend::BackendError;

/// Tells what an error of a command says about the command: was it carried out, will it work later?
pub(super) fn explain(error: RedisError, address: &str) -> BackendError {
    let text = describe(&error, address);
    let explained = match error.kind() {
        _ if is_about_certificates(&error) => BackendError::lasting(text),
        _ if error.is_connection_dropped() => BackendError::interrupted(text),
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::UnexpectedReturnType => BackendError::unanswered(text),
        ErrorKind::Server(kind) => server(kind, &error, text),
        ErrorKind::Extension => extension(&error, text),
        _ => BackendError::lasting(text),
    };
    explained.with_source(error)
}

/// The same, where we know better than the server which right it misses: the names of all keys and channels begin with
/// `prefix`, and a script is ours.
pub(super) fn explain_with(error: RedisError, address: &str, prefix: &str, script: Option<&Source>) -> BackendError {
    let Some(right) = missing_right(&error, prefix, script) else { return explain(error, address) };
    let detail = error.detail().unwrap_or_default();
    let text = format!("{address} lacks {right} for its user (README, `The server`): {detail}");
    BackendError::lasting(text).with_source(error)
}

/// The right that a user lacks, as it stands in a rule, unless the server itself names it.
fn missing_right(error: &RedisError, prefix: &str, script: Option<&Source>) -> Option<String> {
    let detail = error.detail()?;
    // Of a script, a server tells the line. Before 7.0 it does not even do that.
    let line = || detail.split_once("@user_script:")?.1.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    if detail.contains("can't run this command") {
        let command = line().zip(script).and_then(|(line, script)| script.command_of_line(line));
        return Some(command.map_or_else(
            || "one of the rights that waiting and fencing tokens need".to_owned(),
            |command| format!("the right `+{}`", command.to_ascii_lowercase()),
        ));
    }
    if !detail.contains("no permissions") && !detail.contains("can't access") {
        return None;
    }
    if detail.contains("the keys") {
        return Some(format!("the right `~{prefix}*`"));
    }
    detail.contains("the channels").then(|| format!("the right `&{prefix}*`"))
}

/// Tells the same of an error while connecting, when no command can have been carried out.
pub(super) fn explain_connect(error: RedisError, address: &str) -> BackendError {
    explain(error, address).nothing_done()
}

/// Whether the connection should not be used again: it is broken, or its answers may be out of step.
pub(super) fn spoils_connection(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Parse | ErrorKind::AuthenticationFailed)
        || error.code() == Some("NOAUTH")
}

/// Whether the server says that it is no primary.
pub(super) fn is_demoted(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown))
}

fn server(kind: ServerErrorKind, error: &RedisError, text: String) -> BackendError {
    match kind {
        // Where a cluster is what we are connected to, this is not where it ends.
        ServerErrorKind::NoPerm | ServerErrorKind::CrossSlot | ServerErrorKind::Moved => BackendError::lasting(text),
        // It may have come upon that after it had begun to write.
        _ if is_non_local(error) => BackendError::unanswered(text),
        // "ERR" is what most mistakes of ours would be; this one is the server's.
        ServerErrorKind::ResponseError if !mentions(error, "max number of clients") => BackendError::lasting(text),
        _ => BackendError::passing(text),
    }
}

fn extension(error: &RedisError, text: String) -> BackendError {
    match error.code() {
        _ if is_wrong_type(error) => BackendError::foreign("a value that is not a string"),
        Some("NOFENCE") => {
            let helper = error.detail().unwrap_or_default();
            BackendError::foreign(format!("no number under `{helper}`, where the last fencing token is kept"))
        }
        Some("WRONGPASS" | "NOAUTH" | "DENIED") => BackendError::lasting(text),
        // BUSY, MISCONF, OOM, NOREPLICAS and what later servers may add: states of the server, not of our request.
        _ => BackendError::passing(text),
    }
}

fn describe(error: &RedisError, address: &str) -> String {
    if error.is_timeout() {
        return format!("{address} did not answer in time");
    }
    if error.kind() == ErrorKind::Parse {
        return format!("what answers at {address} is no Redis server, or speaks another protocol");
    }
    if error.code() == Some("NOAUTH") {
        return format!("{address} wants a password, as in `redis://user:password@host` (NOAUTH)");
    }
    if is_about_certificates(error) {
        let mend = "see `root_certificates` and `client_certificate` of the builder";
        return format!("{address} can't be trusted, or does not trust us: {error}; {mend}");
    }
    if error.is_io_error() {
        return format!("the connection to {address} broke or could not be made ({error})");
    }
    match (error.code(), error.detail()) {
        (Some("MOVED"), Some(detail)) => {
            format!(
                "{address} is a node of a cluster, which is connected to by `redis-cluster://`: it answered MOVED {detail}"
            )
        }
        (Some("NOPERM"), Some(detail)) => {
            format!(
                "{address} answered NOPERM {detail} (the rights that are needed: README, `The server`, and TOPOLOGIES.md)"
            )
        }
        (_, Some(detail)) if detail.contains("cluster support disabled") => {
            format!("{address} is no node of a cluster; `redis://` is for a single server ({detail})")
        }
        (Some(code), Some(detail)) => format!("{address} answered {code} {detail}"),
        (Some(code), None) => format!("{address} answered {code}"),
        _ => format!("{address}: {error}"),
    }
}

/// Whether a script met a key that is not on its node: in a cluster, while the slot is being moved.
pub(crate) fn is_non_local(error: &RedisError) -> bool {
    mentions(error, "access a non local key")
}

/// Whether TLS failed for a reason that stays until somebody mends a certificate, ours or the server's.
#[cfg(feature = "tls")]
fn is_about_certificates(error: &RedisError) -> bool {
    use rustls::AlertDescription as Alert;

    let cause = io_error(error).and_then(io::Error::get_ref);
    match cause.and_then(|cause| cause.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => true,
        Some(rustls::Error::AlertReceived(alert)) => matches!(
            alert,
            Alert::AccessDenied
                | Alert::BadCertificate
                | Alert::CertificateExpired
                | Alert::CertificateRequired
                | Alert::CertificateRevoked
                | Alert::CertificateUnknown
                | Alert::NoCertificate
                | Alert::UnknownCA
                | Alert::UnsupportedCertificate
        ),
        _ => false,
    }
}

#[cfg(not(feature = "tls"))]
fn is_about_certificates(_: &RedisError) -> bool {
    false
}

/// Adds what may be the reason to the error of a connection over TLS that ended at its beginning. A server that does not
/// accept a client says so after the client's part of the handshake is over, and what it says is lost if the `redis` crate
/// reads it before it has sent a request.
pub(super) fn with_hint_at_tls(error: RedisError, client: &Client) -> RedisError {
    let is_tls = matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. });
    let ended = |error: &io::Error| {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
    };
    if !is_tls || !io_error(&error).is_some_and(ended) {
        return error;
    }
    let hint = "as it does where the server misses or does not trust our certificate, see `client_certificate`";
    RedisError::from((ErrorKind::Io, hint, error.to_string()))
}

fn io_error(error: &RedisError) -> Option<&io::Error> {
    error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?.downcast_ref()
}

pub(super) fn is_noscript(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

pub(super) fn is_wrong_type(error: &RedisError) -> bool {
    error.code() == Some("WRONGTYPE")
}

fn mentions(error: &RedisError, text: &str) -> bool {
    error.detail().is_some_and(|detail| detail.contains(text))
}
