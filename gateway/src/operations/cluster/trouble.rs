//! What went wrong at the API server, in the terms of the operations.

use std::fmt::Display;

use super::PATIENCE;
use crate::operations::OpError;

/// A request to the API server, with what to answer when it fails.
pub(super) trait OrAnswer<T> {
    /// Waits for it, but not for ever. `verb` and `object` say what was tried.
    async fn or_answer(self, verb: &str, object: &impl Display) -> Result<T, OpError>;
}

impl<T, F: Future<Output = Result<T, kube::Error>>> OrAnswer<T> for F {
    async fn or_answer(self, verb: &str, object: &impl Display) -> Result<T, OpError> {
        match tokio::time::timeout(PATIENCE, self).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(answer(&error, verb, object)),
            Err(_) => Err(OpError::Unavailable(
                "the API server does not answer in time".into(),
            )),
        }
    }
}

/// The API server's own words where they are meant for whoever asked; else they are for the log.
pub(super) fn answer(error: &kube::Error, verb: &str, object: &impl Display) -> OpError {
    let kube::Error::Api(status) = error else {
        let error = ramen_redact::chain(error);
        tracing::warn!(verb, %object, error, "the API server could not be asked");
        return OpError::Unavailable("the API server cannot be asked now".into());
    };
    let words = format!("cannot {verb} {object}: {}", status.message);
    match status.code {
        404 => OpError::no_group(object),
        403 => OpError::Forbidden(words.into()),
        409 => OpError::Conflict(words.into()),
        400 | 413 | 422 => OpError::Invalid(words.into()),
        429 | 500.. => {
            tracing::warn!(verb, %object, code = status.code, error = status.message, "the API server refused");
            OpError::Unavailable("the API server cannot do it now; try again later".into())
        }
        // 401: the gateway's own account, nothing that the caller could change.
        _ => OpError::Internal(words.into()),
    }
}
