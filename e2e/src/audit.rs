//! Who asked the API server for what: its audit log, from a moment on.

use std::{
    collections::BTreeMap,
    env,
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde::Deserialize;

/// One request that was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `system:serviceaccount:NAMESPACE:NAME`, for example.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, …
    pub verb: String,
    /// `pods`, `mcpgroups/status`; a path such as `/readyz` where there is no resource.
    pub resource: String,
    /// Empty for what has none.
    pub namespace: String,
    /// Empty for lists and watches.
    pub name: String,
    /// The HTTP status.
    pub code: u16,
    /// A right is missing. A 403 without that is of a rule that things obey: nothing is made in a namespace that ends.
    pub forbidden: bool,
}

impl Call {
    /// It may have changed something.
    pub fn writes(&self) -> bool {
        matches!(
            self.verb.as_str(),
            "create" | "update" | "patch" | "delete" | "deletecollection"
        )
    }
}

/// A place in the audit log.
#[derive(Debug, Clone)]
pub struct Audit {
    log: PathBuf,
    from: u64,
}

impl Audit {
    /// From now on. A request is in the log before its answer is sent, so what was asked before is not counted, and what
    /// was answered is.
    ///
    /// # Errors
    /// When the test does not run in a cluster of `e2e/cluster`.
    pub fn start() -> anyhow::Result<Self> {
        let cluster = env::var_os("RAMEN_CLUSTER_DIR")
            .context("the audit log needs a test that runs through `cluster exec`")?;
        Self::of(&Path::new(&cluster).join("log/audit.log"))
    }

    fn of(log: &Path) -> anyhow::Result<Self> {
        let from = log
            .metadata()
            .with_context(|| format!("no audit log at {}", log.display()))?
            .len();
        Ok(Self {
            log: log.to_owned(),
            from,
        })
    }

    /// Everything since. A watch is in it once it has ended.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn calls(&self) -> anyhow::Result<Vec<Call>> {
        let mut log = File::open(&self.log)?;
        log.seek(SeekFrom::Start(self.from.saturating_sub(1)))?;
        let mut text = String::new();
        log.read_to_string(&mut text)?;
        // A line may have been half written at the start: it is a call of before.
        let since = match text.split_once('\n') {
            Some((_, since)) if self.from > 0 => since,
            _ => text.as_str(),
        };
        // The last line may be half written: it is no call yet.
        let whole = since.rfind('\n').map_or("", |end| &since[..end]);
        whole.lines().map(parse).collect()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: User,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

fn parse(line: &str) -> anyhow::Result<Call> {
    let entry: Entry = serde_json::from_str(line).context("a line of the audit log")?;
    let object = entry.object_ref.unwrap_or_default();
    let resource = if object.resource.is_empty() {
        let path = entry.request_uri.split('?').next();
        path.unwrap_or_default().to_owned()
    } else if object.subresource.is_empty() {
        object.resource
    } else {
        format!("{}/{}", object.resource, object.subresource)
    };
    Ok(Call {
        user: entry.user.username,
        verb: entry.verb,
        resource,
        namespace: object.namespace,
        name: object.name,
        code: entry.response_status.map_or(0, |status| status.code),
        forbidden: entry
            .annotations
            .get("authorization.k8s.io/decision")
            .is_some_and(|decision| decision == "forbid"),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_whole_lines_after_the_start_are_calls() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("audit.log");
        let line = r#"{"verb":"patch","requestURI":"/apis/x/status?force=true","user":{"username":"admin"},
            "objectRef":{"resource":"mcpgroups","subresource":"status","namespace":"a","name":"b"},
            "responseStatus":{"code":403},"annotations":{"authorization.k8s.io/decision":"forbid"}}"#
            .replace('\n', " ");
        fs::write(&log, format!("{line}\n")).unwrap();
        let audit = Audit::of(&log).unwrap();
        assert_eq!(audit.calls().unwrap(), []);
        let ready = r#"{"verb":"get","requestURI":"/readyz?verbose","user":{}}"#;
        // Allowed, and refused by an admission.
        let ends = line.replace("forbid", "allow");
        fs::write(&log, format!("{line}\n{line}\n{ready}\n{ends}\n{{\"verb\"")).unwrap();
        let calls = audit.calls().unwrap();
        assert_eq!(calls.len(), 3);
        assert_eq!(calls[0].resource, "mcpgroups/status");
        assert!(calls[0].writes() && calls[0].code == 403 && calls[0].forbidden);
        assert_eq!(calls[1].resource, "/readyz");
        assert!(!calls[1].writes() && !calls[1].forbidden);
        assert!(calls[2].code == 403 && !calls[2].forbidden);
    }
}
