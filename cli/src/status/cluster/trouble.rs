//! What went wrong between this program and the cluster, in words that say what to do.

use std::io;

use kube::config::KubeconfigError;
use ramen_redact::chain;

use crate::exit::Failure;

/// Whether there is no kubeconfig at all, as opposed to one that is broken.
pub(super) fn is_missing(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(error, _) => error.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

pub(super) fn no_kubeconfig() -> Failure {
    Failure::usage(
        "there is no kubeconfig: set KUBECONFIG, name a file with --kubeconfig, or make ~/.kube/config \
         (as for kubectl); groups of this machine are shown by `ramen up`",
    )
}

/// A file that cannot be read or understood.
pub(super) fn kubeconfig(error: &KubeconfigError) -> Failure {
    Failure::usage(match error {
        KubeconfigError::ReadConfig(error, file) => {
            format!("the kubeconfig {} cannot be read: {error}", file.display())
        }
        KubeconfigError::Parse(_) => {
            format!("the kubeconfig is no good YAML: {}", chain(error))
        }
        error => format!("the kubeconfig cannot be used: {}", chain(error)),
    })
}

/// A context, or what it names, that is not there.
pub(super) fn context(error: &KubeconfigError, contexts: &[String]) -> Failure {
    let there = if contexts.is_empty() {
        "it has none".to_owned()
    } else {
        format!("it has {}", contexts.join(", "))
    };
    Failure::usage(match error {
        KubeconfigError::LoadContext(name) => {
            format!("the kubeconfig has no context {name:?}: {there}")
        }
        KubeconfigError::CurrentContextNotSet => {
            format!("the kubeconfig names no current context: choose one with --context; {there}")
        }
        error => format!("the kubeconfig cannot be used: {}", chain(error)),
    })
}

/// A request that was not answered, or refused.
pub(super) fn request(error: &kube::Error, address: &str) -> Failure {
    let kube::Error::Api(status) = error else {
        return Failure::transport(format!(
            "the API server at {address} cannot be reached: {}",
            root(error)
        ));
    };
    let named = status
        .details
        .as_ref()
        .map_or("", |details| details.name.as_str());
    let message = status.message.trim();
    match status.code {
        401 => Failure::transport(format!(
            "{address} refuses the credentials of the kubeconfig ({message}): log in again"
        )),
        403 => Failure::transport(format!(
            "{message}; ask for `get`, `list` and `watch` on it"
        )),
        404 if named.is_empty() => Failure::transport(format!(
            "the cluster at {address} knows no McpGroups: install the chart ramen-crds, or choose another context"
        )),
        404 => Failure::usage(format!(
            "there is no group {named:?} in this namespace (`ramen status -A` lists all)"
        )),
        code => Failure::transport(format!(
            "the API server at {address} answers {code}: {message}"
        )),
    }
}

/// The innermost cause: that is where the operating system or TLS speaks.
fn root(error: &kube::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use kube::core::response::StatusDetails;

    use super::*;

    #[test]
    fn each_refusal_says_what_to_do() {
        let status = |code: u16, name: &str, message: &str| {
            let details = StatusDetails {
                name: name.to_owned(),
                group: String::new(),
                kind: String::new(),
                uid: String::new(),
                causes: Vec::new(),
                retry_after_seconds: 0,
            };
            let status = Status {
                code,
                message: message.to_owned(),
                details: Some(details),
                ..Status::default()
            };
            request(&kube::Error::Api(status.boxed()), "https://c:6443")
        };
        for (failure, code, says) in [
            (status(401, "", "Unauthorized"), 6, "log in again"),
            (
                status(403, "", "mcpgroups.ramen.dev is forbidden"),
                6,
                "ask for `get`",
            ),
            (
                status(404, "", "the server could not find it"),
                6,
                "install the chart ramen-crds",
            ),
            (status(404, "demo", "not found"), 2, "no group \"demo\""),
            (status(500, "", "boom"), 6, "answers 500: boom"),
        ] {
            assert_eq!(failure.code(), code, "{failure}");
            assert!(failure.to_string().contains(says), "{failure}");
        }
    }

    #[test]
    fn a_missing_file_is_told_from_a_broken_one() {
        let missing = io::Error::from(io::ErrorKind::NotFound);
        assert!(is_missing(&KubeconfigError::ReadConfig(
            missing,
            "x".into()
        )));
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let denied = KubeconfigError::ReadConfig(denied, "/etc/kube".into());
        assert!(!is_missing(&denied));
        assert!(kubeconfig(&denied).to_string().contains("/etc/kube"));
    }

    #[test]
    fn a_wrong_context_is_told_with_those_that_are_there() {
        let error = KubeconfigError::LoadContext("prod".to_owned());
        let said = context(&error, &["dev".to_owned(), "stage".to_owned()]);
        assert_eq!(
            said.to_string(),
            "the kubeconfig has no context \"prod\": it has dev, stage"
        );
    }
}
