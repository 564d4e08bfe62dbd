//! Which redirects are followed: those to the same scheme, host and port, and from `http` to
//! `https` of the same host.

use http::{Response, header};
use hyper::body::Incoming;
use url::Url;

use super::INFO_REFS;
use crate::git::{GitError, session::Session};

/// The error for a redirect that is not followed.
pub(super) fn refused(session: &Session, to: &Url, message: &str) -> GitError {
    let port = to.port().map(|port| format!(":{port}")).unwrap_or_default();
    let host = to.host_str().unwrap_or_default();
    GitError::Redirect {
        url: session.url(),
        to: format!("{}://{host}{port}", to.scheme()),
        message: message.to_owned(),
    }
}

/// Where a redirect leads, if it may be followed.
pub(super) fn target(
    session: &Session,
    from: &Url,
    response: &Response<Incoming>,
    lists: bool,
) -> Result<Url, GitError> {
    let location = response
        .headers()
        .get(header::LOCATION)
        .and_then(|l| l.to_str().ok());
    let Some(to) = location.and_then(|location| from.join(location).ok()) else {
        let message = "a redirect without a usable target".to_owned();
        return Err(GitError::NotGit {
            url: session.url(),
            message,
        });
    };
    let refuse = |message| Err(refused(session, &to, message));
    if !lists {
        return refuse("the pack must come from where the refs came from");
    }
    if from.host() != to.host() || !matches!(to.scheme(), "http" | "https") {
        return refuse("it is another host");
    }
    let same_port = from.port_or_known_default() == to.port_or_known_default();
    let upgrade = from.scheme() == "http" && to.scheme() == "https";
    if from.scheme() == "https" && to.scheme() == "http" {
        return refuse("it goes from https to plain http");
    }
    if !upgrade && !same_port {
        return refuse("it is another port");
    }
    if !to.path().ends_with(INFO_REFS) {
        return refuse("it leads to something that is no repository, such as a login page");
    }
    let mut to = to.clone();
    to.set_fragment(None);
    if to
        .set_username("")
        .and_then(|()| to.set_password(None))
        .is_err()
    {
        return refuse("it has no host");
    }
    to.set_query(Some("service=git-upload-pack"));
    Ok(to)
}
