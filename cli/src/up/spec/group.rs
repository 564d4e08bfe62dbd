//! One group as its task needs it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ramen_gateway::upstreams::UpstreamSpec;
use ramen_group::AccessRules;
use ramen_rollout::Settings;

use crate::up::group::Key;
use crate::up::source::Source;

/// All that the loop needs to know about a group.
#[derive(Debug, Clone)]
pub(in crate::up) struct GroupSpec {
    pub(in crate::up) key: Key,
    pub(in crate::up) source: Source,
    /// Changes when the source becomes another one.
    pub(in crate::up) source_fingerprint: String,
    /// Changes when the same tree could deploy differently.
    pub(in crate::up) deploy_fingerprint: String,
    /// How often the source is asked; a folder is watched instead.
    pub(in crate::up) interval: Duration,
    pub(in crate::up) suspended: bool,
    /// Revisions kept for a way back.
    pub(in crate::up) history: usize,
    pub(in crate::up) python: Option<String>,
    pub(in crate::up) allow_sdist: bool,
    pub(in crate::up) deploy_timeout_secs: Option<u64>,
    /// Keys from a Secret; generated when absent.
    pub(in crate::up) keys: Option<BTreeMap<String, Vec<u8>>>,
    /// Who may use what over HTTP.
    pub(in crate::up) access: Option<Arc<AccessRules>>,
    /// Settings of the worker.
    pub(in crate::up) worker_env: Vec<(String, OsString)>,
    /// Settings of the deploy step, such as the package index.
    pub(in crate::up) deploy_env: Vec<(String, OsString)>,
    /// Where the worker listens; a free port of loopback when absent.
    pub(in crate::up) listen: Option<SocketAddr>,
    /// `RAMEN_SECRET_*`.
    pub(in crate::up) secrets: Vec<(String, OsString)>,
    /// Other MCP servers, which the gateway offers beside its tools.
    pub(in crate::up) upstreams: Vec<UpstreamSpec>,
}

impl GroupSpec {
    /// Whether its worker alone is not the group that callers are to see.
    pub(in crate::up) fn through_gateway(&self) -> bool {
        self.access.is_some() || !self.upstreams.is_empty()
    }

    /// What makes a deploy of the same tree another one.
    pub(in crate::up) fn settings(&self) -> Settings {
        let python = self.python.as_deref().unwrap_or("default");
        Settings {
            source: self.source_fingerprint.clone(),
            runtime: format!("python {python}, ramen {}", env!("CARGO_PKG_VERSION")),
            spec: self.deploy_fingerprint.clone(),
            suspended: self.suspended,
            history: self.history,
            ..Settings::default()
        }
    }
}
