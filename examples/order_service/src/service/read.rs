//! What is read of a request, so that what can't be read is told like everything else, and what can't be stored goes no further.

use axum::Json;
use axum::extract::rejection::{JsonRejection, StringRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _};

use crate::error::Error;

/// Also as part of a lock's key it is then within what the locks take.
const LONGEST_NAME: usize = 200;

/// A body of JSON.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Error;

    async fn from_request(request: Request, state: &S) -> Result<Self, Error> {
        Ok(Body(Json::from_request(request, state).await?.0))
    }
}

/// A body as it came.
pub(super) struct Text(pub(super) String);

impl<S: Send + Sync> FromRequest<S> for Text {
    type Rejection = Error;

    async fn from_request(request: Request, state: &S) -> Result<Self, Error> {
        Ok(Text(String::from_request(request, state).await?))
    }
}

impl From<JsonRejection> for Error {
    fn from(why: JsonRejection) -> Error {
        unreadable(why.status(), why.body_text())
    }
}

impl From<StringRejection> for Error {
    fn from(why: StringRejection) -> Error {
        unreadable(why.status(), why.body_text())
    }
}

fn unreadable(status: StatusCode, why: String) -> Error {
    match status {
        StatusCode::UNSUPPORTED_MEDIA_TYPE | StatusCode::PAYLOAD_TOO_LARGE => Error::Unreadable { status, why },
        _ => Error::Unreadable { status: StatusCode::UNPROCESSABLE_ENTITY, why },
    }
}

/// The one name in a path. What can't be one is not there.
pub(super) struct Id(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let name = path.ok().map(|Path(name)| name).filter(|name| is_name(name));
        name.map(Id).ok_or(Error::NotFound("thing"))
    }
}

/// A name in a body.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Name(pub(super) String);

impl TryFrom<String> for Name {
    type Error = serde_json::Error;

    fn try_from(name: String) -> serde_json::Result<Name> {
        let why = "a name is 1 to 200 bytes, not blank, and without control characters";
        if is_name(&name) { Ok(Name(name)) } else { Err(serde_json::Error::custom(why)) }
    }
}

/// Postgres stores no NUL, and nobody can read the others.
fn is_name(text: &str) -> bool {
    text.len() <= LONGEST_NAME && !text.trim().is_empty() && !text.chars().any(char::is_control)
}

/// One that can't be read is not as good as none: its sender relies on it.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Error> {
    let Some(key) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let key = key.to_str().ok().filter(|key| (1..=255).contains(&key.len()));
    key.map(|key| Some(key.to_owned())).ok_or(Error::Invalid("an idempotency key is 1 to 255 visible ASCII characters"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_be_stored_and_read() {
        for good in ["a", "socks, red", "a/b", "\u{1f600}", &"x".repeat(200)] {
            assert!(is_name(good), "{good:?}");
        }
        for bad in ["", " ", "\u{a0}\t", "a\0b", "a\nb", "\u{85}", &"x".repeat(201), &"\u{1f600}".repeat(51)] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }
}
