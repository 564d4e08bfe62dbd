//! One loaded revision: what it offers, its hosts, and how a call runs in it.
//!
//! A generation never changes. A reload makes a new one beside it and swaps a pointer; calls that
//! began in the old one end there. Another revision of the same layers is one with the same hosts.

mod failures;
mod manager;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ramen_group::{DesiredState, GroupCatalog, SecretTable};
use ramen_mcp::catalog::ResourceEntry;
use ramen_mcp::{McpError, Options, Outcome, ResourceRead, Server, ToolCall};
use ramen_redact::Redactor;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tracing::Instrument;

use self::failures::Failures;
use crate::answer;
use crate::gate::Permit;
use crate::hosts::pool::{Pool, PoolCallError};
use crate::hosts::{CallOptions, HostEvent, Reply, ReplyStatus};
use crate::metrics::{CallOutcome, Metrics};
use crate::{packages, telemetry};

pub(crate) use manager::Setting;
pub use manager::{Manager, NotLoaded, ReloadError};

/// One loaded revision.
pub struct Generation {
    pub(crate) number: u64,
    pub(crate) desired: DesiredState,
    pub(crate) server: Server,
    pub(crate) catalog: Arc<GroupCatalog>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) secrets: Arc<SecretTable>,
    pub(crate) redactor: Arc<Redactor>,
    pub(crate) call_timeout: Duration,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) failures: Arc<Failures>,
    /// Home of the hosts; removed with the last generation that has them.
    pub(crate) home: Arc<TempDir>,
}

/// What a transport adds to a call.
#[derive(Default)]
pub(crate) struct CallContext {
    /// The caller's own deadline.
    pub(crate) deadline: Option<Instant>,
    /// The place among all calls; held until the host is free again.
    pub(crate) permit: Option<Permit>,
    /// Where progress and log messages go.
    pub(crate) events: Option<mpsc::Sender<HostEvent>>,
}

/// Why a call has no response of MCP.
#[derive(Debug)]
pub(crate) enum Lost {
    /// The caller's deadline passed.
    Deadline,
    /// No host answered.
    Host(PoolCallError),
}

impl Lost {
    pub(crate) fn status(&self) -> tonic::Status {
        match self {
            Self::Deadline => tonic::Status::deadline_exceeded("no result before the deadline"),
            Self::Host(error) if error.was_before_the_call() => {
                ramen_proto::not_begun(error.to_string())
            }
            Self::Host(error) => tonic::Status::unavailable(error.to_string()),
        }
    }
}

/// What answers for a catalog.
fn served(catalog: GroupCatalog) -> (Server, Arc<GroupCatalog>) {
    let catalog = Arc::new(catalog);
    let server = Server::new(Arc::clone(&catalog) as _, Options::default());
    (server, catalog)
}

enum End {
    Reply(Reply),
    /// Over the tool's own limit, or the worker's.
    Overdue(Duration),
}

impl Generation {
    /// What it offers, under another revision: with the hosts that it has.
    pub(crate) fn relabelled(&self, desired: DesiredState) -> Self {
        let catalog = self.catalog.with_version(desired.version());
        let (server, catalog) = served(catalog);
        Self {
            number: self.number,
            desired,
            server,
            catalog,
            pool: Arc::clone(&self.pool),
            secrets: Arc::clone(&self.secrets),
            redactor: Arc::clone(&self.redactor),
            call_timeout: self.call_timeout,
            metrics: Arc::clone(&self.metrics),
            failures: Arc::clone(&self.failures),
            home: Arc::clone(&self.home),
        }
    }

    /// Runs a tool; its response.
    pub(crate) async fn call_tool(
        &self,
        call: &ToolCall,
        context: CallContext,
    ) -> Result<Bytes, Lost> {
        let arguments = match answer::arguments(call, &self.secrets) {
            Ok(arguments) => arguments,
            Err(fault) => {
                let package = packages::tool_id(call.tool);
                self.failures.tell(self.label(package), "SecretError", None);
                return Ok(answer::secret_reply(&self.server, call, &fault));
            }
        };
        let tool = self.catalog.tool_at(call.tool);
        let limit = tool.and_then(|tool| tool.timeout);
        let name = tool.map(|tool| tool.name.as_str());
        let span = tracing::debug_span!("tools/call", otel.kind = "server", tool = name);
        telemetry::adopt(&span, call.trace.as_deref());
        let package = packages::tool_id(call.tool);
        let run = self.run(package, arguments, limit, context);
        match run.instrument(span).await? {
            End::Reply(reply) => Ok(answer::tool_reply(
                &self.server,
                call,
                &reply,
                &self.redactor,
            )),
            End::Overdue(limit) => Ok(self
                .server
                .tool_reply(call, Outcome::Error(&overdue(limit)))),
        }
    }

    /// Reads a resource; its response.
    pub(crate) async fn read_resource(
        &self,
        read: &ResourceRead,
        context: CallContext,
    ) -> Result<Bytes, Lost> {
        let ResourceEntry::Fixed(index) = read.target.entry else {
            let error = McpError::internal("resource templates have no code");
            return Ok(error.body(&read.id));
        };
        let resource = self.catalog.resource_at(index);
        let limit = resource.and_then(|resource| resource.timeout);
        let name = resource.map(|resource| resource.name.as_str());
        let span = tracing::debug_span!("resources/read", otel.kind = "server", resource = name);
        telemetry::adopt(&span, read.trace.as_deref());
        let package = packages::resource_id(self.catalog.group(), index);
        let run = self.run(package, Bytes::from_static(b"{}"), limit, context);
        match run.instrument(span).await? {
            End::Reply(reply) => Ok(answer::resource_reply(
                &self.server,
                read,
                &reply,
                &self.redactor,
            )),
            End::Overdue(limit) => Ok(self
                .server
                .resource_reply(read, Outcome::Error(&overdue(limit)))),
        }
    }

    async fn run(
        &self,
        package: u32,
        arguments: Bytes,
        own_limit: Option<Duration>,
        context: CallContext,
    ) -> Result<End, Lost> {
        let begin = Instant::now();
        let limit = own_limit.map_or(self.call_timeout, |own| own.min(self.call_timeout));
        let ours = begin + limit;
        let deadline = context.deadline.map_or(ours, |theirs| theirs.min(ours));
        let options = CallOptions {
            events: context.events,
            deadline: Some(deadline),
            hold: context.permit.map(|permit| Box::new(permit) as _),
        };
        let mut watched = Watched {
            metrics: &self.metrics,
            begin,
            outcome: CallOutcome::Cancelled,
        };
        let call = self.pool.call(package, arguments, options);
        let answer = match call {
            Ok(call) => tokio::time::timeout_at(deadline.into(), call.reply()).await,
            Err(error) => Ok(Err(error)),
        };
        let (outcome, end) = match answer {
            Ok(Ok(reply)) if reply.status == ReplyStatus::Error => {
                let (text, place) = ramen_frame::error_parts(&reply.payload);
                let kind = failures::kind_of(text);
                self.failures.tell(self.label(package), &kind, place);
                (CallOutcome::ToolError, Ok(End::Reply(reply)))
            }
            Ok(Ok(reply)) => (CallOutcome::Ok, Ok(End::Reply(reply))),
            Ok(Err(error)) => {
                let package = self.label(package);
                tracing::warn!(package, %error, "a call was lost");
                (CallOutcome::HostLost, Err(Lost::Host(error)))
            }
            Err(_) if deadline < ours => (CallOutcome::Deadline, Err(Lost::Deadline)),
            Err(_) => {
                self.failures
                    .tell(self.label(package), "TimeoutError", None);
                (CallOutcome::Deadline, Ok(End::Overdue(limit)))
            }
        };
        watched.outcome = outcome;
        end
    }

    /// `tools/search`.
    fn label(&self, package: u32) -> &str {
        packages::label(self.catalog.group(), package).unwrap_or("?")
    }
}

/// Counts a call however it ends, also when its future is dropped.
struct Watched<'a> {
    metrics: &'a Metrics,
    begin: Instant,
    outcome: CallOutcome,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.metrics.call(self.outcome, self.begin.elapsed());
    }
}

fn overdue(limit: Duration) -> String {
    format!("TimeoutError: no result within {} s", limit.as_secs_f64())
}
