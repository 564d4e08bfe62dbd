//! Golden calls: `mcp/tests.yaml` through the same checks and the same rendering as a client's call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ramen_group::{
    Finding, Golden, GoldenCase, GoldenTests, Group, GroupCatalog, Reason, ReportPackage,
    SecretTable,
};
use ramen_mcp::envelope;
use ramen_mcp::model::Implementation;
use ramen_mcp::{Connection, Options, Server, Step, ToolCall};
use serde_json::{Value, json};

use crate::answer;
use crate::hosts::{CallOptions, EndCause, HostProcess};

use super::import::{Importer, Listener};
use super::log::cut;
use super::progress::Phase;

/// The longest time of a call whose descriptor says nothing.
const CALL: Duration = Duration::from_mins(1);
/// Bytes of the answer in a message.
const GIVEN: usize = 600;
/// Bytes of a message about one case.
const MESSAGE: usize = 1500;

/// Runs golden calls.
pub(crate) struct GoldenRun<'a> {
    catalog: Arc<GroupCatalog>,
    server: Server,
    secrets: &'a SecretTable,
    importer: &'a Importer,
    listener: &'a Listener,
    failed: &'a BTreeMap<u32, Finding>,
    /// Tools that have a folder, served or not.
    known: BTreeSet<String>,
}

impl<'a> GoldenRun<'a> {
    /// Serves the packages of `group` but `failed`.
    pub(crate) fn new(
        group: Group,
        secrets: &'a SecretTable,
        importer: &'a Importer,
        listener: &'a Listener,
        failed: &'a BTreeMap<u32, Finding>,
    ) -> Self {
        let exclude: Vec<String> = failed
            .values()
            .filter_map(|finding| finding.package.clone())
            .collect();
        let known = group.packages.iter().map(ReportPackage::id).collect();
        let info = Implementation {
            name: "ramen-worker".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            title: None,
            description: None,
            website_url: None,
            icons: Vec::new(),
        };
        let catalog = Arc::new(GroupCatalog::new(group.without(&exclude), info));
        let server = Server::new(Arc::clone(&catalog) as _, Options::default());
        Self {
            catalog,
            server,
            secrets,
            importer,
            listener,
            failed,
            known,
        }
    }

    /// Runs every case, one after the other. Gives the host back, if it still lives.
    pub(crate) async fn run(
        &self,
        tests: &GoldenTests,
        mut host: Option<HostProcess>,
    ) -> (Golden, Vec<Finding>, Option<HostProcess>) {
        let mut golden = Golden::default();
        let mut findings = Vec::new();
        let total = tests.cases.len() as u64;
        let mut without_tool: BTreeMap<String, u32> = BTreeMap::new();
        for (number, case) in tests.cases.iter().enumerate() {
            let progress = self.importer.progress;
            progress.step(Phase::Test, number as u64, Some(total), None, &case.name);
            if self.catalog.group().tool(&case.tool).is_none() {
                golden.failed += 1;
                *without_tool
                    .entry(format!("tools/{}", case.tool))
                    .or_default() += 1;
                continue;
            }
            if host.is_none() {
                host = self.restart().await;
            }
            match self.case(case, &mut host).await {
                Ok(()) => golden.passed += 1,
                Err(why) => {
                    golden.failed += 1;
                    let why = cut(&self.importer.log.clean(&why), MESSAGE);
                    let message = format!("`{}`: {why}", case.name);
                    findings.push(
                        Finding::group(Reason::GoldenFailed, message).at_path("mcp/tests.yaml"),
                    );
                }
            }
        }
        // A tool that nobody ever heard of is an entry of the scan.
        for (package, calls) in without_tool {
            if self.known.contains(&package) {
                let calls = if calls == 1 {
                    "its golden call"
                } else {
                    "its golden calls"
                };
                let message = format!("{calls} cannot run: the package has an entry of its own");
                let finding = Finding::package(package, Reason::GoldenFailed, message);
                findings.push(finding.at_path("mcp/tests.yaml"));
            }
        }
        let message = format!("{} passed, {} failed", golden.passed, golden.failed);
        self.importer
            .progress
            .step(Phase::Test, total, Some(total), None, &message);
        (golden, findings, host)
    }

    async fn restart(&self) -> Option<HostProcess> {
        let (host, report, _) = self.importer.start(self.failed, self.listener).await.ok()?;
        report.ok().map(|_| host)
    }

    async fn case(&self, case: &GoldenCase, host: &mut Option<HostProcess>) -> Result<(), String> {
        let request = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": case.tool, "arguments": case.args},
        });
        let body = Bytes::from(request.to_string());
        let message = envelope::parse(&body).map_err(|reject| reject.error.to_string())?;
        let answer = match self.server.step(&message, &mut Connection::unary()) {
            Step::Reply(bytes) => bytes,
            Step::CallTool(call) => self.call(&call, host).await?,
            _ => return Err("the call was not taken as a tool call".into()),
        };
        let answer: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        match (answer.get("result"), answer.get("error")) {
            (Some(result), _) => case
                .expect
                .check(result)
                .map_err(|why| format!("{why}; the call gave {}", cut(&result.to_string(), GIVEN))),
            (None, Some(error)) => {
                let message = error
                    .get("message")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                Err(format!(
                    "answered with an error instead of a result: {message}"
                ))
            }
            (None, None) => Err("answered with neither result nor error".into()),
        }
    }

    async fn call(&self, call: &ToolCall, host: &mut Option<HostProcess>) -> Result<Bytes, String> {
        let running = host.as_ref().ok_or("the host could not be started again")?;
        let tool = self
            .catalog
            .tool_at(call.tool)
            .ok_or("there is no such tool")?;
        let package = self
            .importer
            .load
            .packages
            .iter()
            .find(|package| package.dir == tool.dir);
        let package = package.ok_or("the tool has no code")?;
        let arguments = match answer::arguments(call, self.secrets) {
            Ok(arguments) => arguments,
            Err(fault) => return Ok(answer::secret_reply(&self.server, call, &fault)),
        };
        let left = self
            .importer
            .deadline
            .saturating_duration_since(Instant::now());
        let limit = tool.timeout.unwrap_or(CALL).min(left);
        self.listener.runs(package.id);
        let handle = match running.call(package.id, &arguments, CallOptions::default()) {
            Ok(handle) => handle,
            Err(error) => {
                // It ended between two cases: the next one gets another.
                *host = None;
                return Err(error.to_string());
            }
        };
        match tokio::time::timeout(limit, handle.reply()).await {
            Ok(Ok(reply)) => {
                let redactor = self.importer.log.redactor();
                Ok(answer::tool_reply(&self.server, call, &reply, redactor))
            }
            Ok(Err(error)) => {
                *host = None;
                Err(error.to_string())
            }
            Err(_) => {
                if let Some(stuck) = host.take() {
                    stuck.kill(EndCause::Overdue);
                }
                Err(format!("no answer within {} s", limit.as_secs_f32()))
            }
        }
    }
}
