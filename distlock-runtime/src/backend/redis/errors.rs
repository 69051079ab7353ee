use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::backend::BackendError;

/// Tells what an error of a command says about the command: was it carried out, will it work later?
pub(super) fn explain(error: RedisError, address: &str) -> BackendError {
    let text = describe(&error, address);
    let explained = match error.kind() {
        _ if error.is_connection_dropped() => BackendError::interrupted(text),
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::UnexpectedReturnType => BackendError::unanswered(text),
        ErrorKind::Server(kind) => server(kind, &error, text),
        ErrorKind::Extension => extension(&error, text),
        _ => BackendError::lasting(text),
    };
    explained.with_source(error)
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
        ServerErrorKind::NoPerm | ServerErrorKind::CrossSlot => BackendError::lasting(text),
        // "ERR" is what most mistakes of ours would be; this one is the server's.
        ServerErrorKind::ResponseError if !mentions(error, "max number of clients") => BackendError::lasting(text),
        _ => BackendError::passing(text),
    }
}

fn extension(error: &RedisError, text: String) -> BackendError {
    match error.code() {
        Some("WRONGTYPE") => BackendError::foreign("a value that is not a string"),
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
    if error.is_io_error() {
        return format!("the connection to {address} broke or could not be made ({error})");
    }
    match (error.code(), error.detail()) {
        (_, Some(detail)) if detail.contains("can't run this command") => format!(
            "{address} lacks a right for its user, of those that waiting and fencing tokens need (README, `The server`): {detail}"
        ),
        (Some(code), Some(detail)) => format!("{address} answered {code} {detail}"),
        (Some(code), None) => format!("{address} answered {code}"),
        _ => format!("{address}: {error}"),
    }
}

pub(super) fn is_noscript(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

fn mentions(error: &RedisError, text: &str) -> bool {
    error.detail().is_some_and(|detail| detail.contains(text))
}
