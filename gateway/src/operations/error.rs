//! What an operation answers instead of a result, and the API's envelope for it.

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;

use crate::answer::envelope;
use crate::reference::Reference;

/// Why an operation did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// The caller may not.
    #[error("forbidden: {0}")]
    Forbidden(Cow<'static, str>),
    /// There is no such thing, or none that the caller may know of.
    #[error("not found: {0}")]
    NotFound(Cow<'static, str>),
    /// What was asked makes no sense.
    #[error("invalid: {0}")]
    Invalid(Cow<'static, str>),
    /// What was asked does not fit the state that things are in.
    #[error("conflict: {0}")]
    Conflict(Cow<'static, str>),
    /// It cannot be done now.
    #[error("unavailable: {0}")]
    Unavailable(Cow<'static, str>),
    /// The result is larger than one may be.
    #[error("the result is too large: {0} bytes")]
    TooLarge(usize),
    /// Something failed on our side. The text is for the log alone.
    #[error("internal: {0}")]
    Internal(Cow<'static, str>),
}

impl OpError {
    /// There is no such group; the same words for one that the caller may not know of.
    pub fn no_group(name: &impl std::fmt::Display) -> Self {
        Self::NotFound(format!("there is no group {name}").into())
    }

    /// All words that programs read.
    pub(crate) const CODES: &[&str] = &[
        "forbidden",
        "not_found",
        "invalid",
        "conflict",
        "unavailable",
        "result_too_large",
        "internal",
    ];

    /// The word that programs read.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Forbidden(_) => "forbidden",
            Self::NotFound(_) => "not_found",
            Self::Invalid(_) => "invalid",
            Self::Conflict(_) => "conflict",
            Self::Unavailable(_) => "unavailable",
            Self::TooLarge(_) => "result_too_large",
            Self::Internal(_) => "internal",
        }
    }

    /// The status of the JSON API.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooLarge(_) | Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Whether it hides a tool from a list; any other error fails the list.
    pub fn hides(&self) -> bool {
        matches!(self, Self::Forbidden(_) | Self::NotFound(_))
    }

    /// The API's error envelope. An internal error is logged under a reference, which is all that the
    /// caller learns of it.
    pub fn envelope(&self, operation: &str) -> Bytes {
        match self {
            Self::Internal(why) => {
                let reference = Reference::new();
                tracing::error!(operation, %reference, error = &**why, "an operation failed");
                envelope(
                    self.code(),
                    "something failed on our side",
                    Some(reference.as_str()),
                )
            }
            Self::TooLarge(size) => envelope(
                self.code(),
                &format!("the result has {size} bytes, which is more than one may have"),
                None,
            ),
            Self::Forbidden(why)
            | Self::NotFound(why)
            | Self::Invalid(why)
            | Self::Conflict(why)
            | Self::Unavailable(why) => envelope(self.code(), why, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_a_code_a_status_and_an_envelope() {
        for (error, code, status) in [
            (OpError::Forbidden("no".into()), "forbidden", 403),
            (OpError::NotFound("no".into()), "not_found", 404),
            (OpError::Invalid("no".into()), "invalid", 400),
            (OpError::Conflict("no".into()), "conflict", 409),
            (OpError::Unavailable("no".into()), "unavailable", 503),
            (OpError::TooLarge(3), "result_too_large", 500),
            (OpError::Internal("secret".into()), "internal", 500),
        ] {
            assert_eq!((error.code(), error.status().as_u16()), (code, status));
            assert!(OpError::CODES.contains(&code));
            let body: serde_json::Value = serde_json::from_slice(&error.envelope("a.b")).unwrap();
            assert_eq!(body["error"]["code"], code);
            assert_eq!(body["error"]["ref"].is_string(), code == "internal");
            assert!(!body.to_string().contains("secret"));
        }
    }
}
