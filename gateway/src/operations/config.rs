//! The operations endpoint as it is configured, and everything that is refused about it, by name.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use ramen_group::{CidrSet, OutputSchema};
use ramen_mcp::model::{Implementation, Json, Tool, ToolAnnotations};

use super::check::{Authorize, Context, Gate, GateError, Guard};
use crate::metrics::Metrics;

use super::descriptor::{Descriptor, is_null_schema, is_object_schema, is_tool_name, tool_name};

/// Largest result of one call unless the configuration says otherwise.
pub const DEFAULT_MAX_RESULT: usize = 2 * 1024 * 1024;
/// What a response may have besides three times the result.
const ROOM: usize = 64 * 1024;
/// What every agent is told first.
const INSTRUCTIONS: &str = "These tools are the operations of a Ramen platform. Each answers with one JSON object. A refusal is a tool error that holds {\"error\":{\"code\",\"message\",\"ref\"?}}: `forbidden` and `not_found` do not change by trying again.";

/// Builds the context of a request.
pub type MakeContext = Arc<dyn Fn(&Parts, std::net::IpAddr) -> Context + Send + Sync>;

/// Longest name of an agent's session.
const MAX_SESSION: usize = 128;

/// The context of a request as it is: its peer, and the session that an agent names in
/// `Ramen-Agent-Session`.
pub fn plain_context() -> MakeContext {
    Arc::new(|parts, peer| {
        let mut sessions = parts.headers.get_all("ramen-agent-session").iter();
        let session = sessions.next().and_then(|session| session.to_str().ok());
        let only = sessions.next().is_none();
        let session = session.filter(|name| only && !name.is_empty() && name.len() <= MAX_SESSION);
        Context {
            actor: None,
            authorize: None,
            peer,
            agent_session: session.map(str::to_owned),
        }
    })
}

/// How the endpoint is configured.
#[derive(Clone)]
pub struct Config {
    /// The gate of the JSON API, which is this one's too.
    pub gate: Gate,
    /// Builds the context of a request.
    pub context: Option<MakeContext>,
    /// The application's policy; required, [`super::DefaultPolicy`] keeps the default.
    pub authorize: Option<Arc<dyn Authorize>>,
    /// Checks what an answer discloses as it goes out.
    pub guard: Option<Arc<dyn Guard>>,
    /// Whether there has to be one.
    pub guarded: bool,
    /// Name of the server.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What agents are told after the endpoint's own instructions.
    pub instructions: String,
    /// Largest result of one call in bytes; 0: 2 MiB.
    pub max_result: usize,
    /// Where callers may be.
    pub ranges: CidrSet,
}

/// Why a configuration is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Nothing builds the context of a request.
    #[error("nothing builds the context of a request")]
    NoContext,
    /// There is no policy.
    #[error("no policy authorizes: pass the default policy to keep the default")]
    NoAuthorize,
    /// The gate cannot judge.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// A guard needs a verifier that judges again.
    #[error("there is a guard, and the gate's verifier does not judge again")]
    GuardWithoutRechecker,
    /// A guard was asked for.
    #[error("a guard is required, and there is none")]
    GuardedWithoutGuard,
    /// A required guard needs a verifier that judges again.
    #[error("a guard is required, and the gate's verifier does not judge again")]
    GuardedWithoutRechecker,
    /// A descriptor has no id.
    #[error("descriptor {0} has an empty id")]
    EmptyId(usize),
    /// A descriptor's access is none.
    #[error("{0}: the access is not a resource and a verb like groups:read")]
    BadAccess(String),
    /// A descriptor's input is no object.
    #[error("{0}: the input is not the schema of an object")]
    BadInput(String),
    /// A descriptor's result is neither an object nor nothing.
    #[error("{0}: the result is neither the schema of an object nor exactly {{\"type\":\"null\"}}")]
    BadResult(String),
    /// A descriptor does nothing.
    #[error("{0}: nothing is invoked")]
    NoInvoke(String),
    /// A descriptor's flags contradict each other.
    #[error("{0}: {1}")]
    BadFlags(String, &'static str),
    /// A tool's name breaks the rule.
    #[error("{0}: the tool name `{1}` does not match ^[a-z][a-z0-9_]{{0,63}}$")]
    BadToolName(String, String),
    /// Two operations would be one tool.
    #[error("{0} and {1} are both the tool `{2}`")]
    SameToolName(String, String, String),
    /// A tool cannot be served.
    #[error("{0}: {1}")]
    Tool(String, String),
}

/// The operations, ready to be served.
pub struct Operations {
    pub(super) gate: Gate,
    pub(super) context: MakeContext,
    pub(super) authorize: Arc<dyn Authorize>,
    pub(super) guard: Option<Arc<dyn Guard>>,
    pub(super) info: Implementation,
    pub(super) instructions: String,
    pub(super) max_result: usize,
    pub(super) ranges: CidrSet,
    pub(super) served: Vec<Arc<Served>>,
    pub(super) by_tool: HashMap<String, usize>,
    pub(super) metrics: Option<Arc<Metrics>>,
}

/// One operation with what was made of it.
pub(super) struct Served {
    pub(super) descriptor: Descriptor,
    pub(super) tool: Tool,
    pub(super) input: OutputSchema,
    /// `None`: the result is null.
    pub(super) result: Option<OutputSchema>,
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operations")
            .field("tools", &self.by_tool.len())
            .finish_non_exhaustive()
    }
}

/// Builds the endpoint, with one tool for each descriptor; mount it at `/api/v1/mcp`.
pub fn new(config: Config, descriptors: Vec<Descriptor>) -> Result<Operations, ConfigError> {
    let Config {
        mut gate,
        context,
        authorize,
        guard,
        guarded,
        name,
        version,
        instructions,
        max_result,
        ranges,
    } = config;
    let context = context.ok_or(ConfigError::NoContext)?;
    let authorize = authorize.ok_or(ConfigError::NoAuthorize)?;
    gate.validate()?;
    let rechecks = gate.rechecker().is_some();
    match (&guard, rechecks) {
        (None, _) if guarded => return Err(ConfigError::GuardedWithoutGuard),
        (Some(_), false) if guarded => return Err(ConfigError::GuardedWithoutRechecker),
        (Some(_), false) => return Err(ConfigError::GuardWithoutRechecker),
        _ => {}
    }
    let max_result = if max_result == 0 {
        DEFAULT_MAX_RESULT
    } else {
        max_result
    };
    // A result goes out twice, as value and as text, and escaping makes the text longer.
    gate.max_response = gate
        .max_response
        .max(max_result.saturating_mul(3).saturating_add(ROOM));
    let (mut served, mut by_tool) = (Vec::new(), HashMap::new());
    for (at, descriptor) in descriptors.into_iter().enumerate() {
        let one = Served::of(at, descriptor)?;
        let (id, tool) = (&one.descriptor.id, one.tool.name.clone());
        if let Some(first) = by_tool.insert(tool.clone(), at) {
            let first: &Arc<Served> = &served[first];
            return Err(ConfigError::SameToolName(
                first.descriptor.id.clone(),
                id.clone(),
                tool,
            ));
        }
        served.push(Arc::new(one));
    }
    let instructions = [INSTRUCTIONS, instructions.trim()].join("\n\n");
    Ok(Operations {
        gate,
        context,
        authorize,
        guard,
        info: Implementation {
            name,
            version,
            ..Implementation::default()
        },
        instructions: instructions.trim().to_owned(),
        max_result,
        ranges,
        served,
        by_tool,
        metrics: None,
    })
}

impl Operations {
    /// The same, and how each ended is counted.
    #[must_use]
    pub fn counted(mut self, metrics: &Arc<Metrics>) -> Self {
        for served in &self.served {
            metrics.operates(&served.descriptor.id);
        }
        self.metrics = Some(Arc::clone(metrics));
        self
    }

    /// Largest body of an answer, in bytes.
    pub fn max_response(&self) -> usize {
        self.gate.max_response
    }
}

impl Served {
    fn of(at: usize, descriptor: Descriptor) -> Result<Self, ConfigError> {
        let id = descriptor.id.clone();
        if id.is_empty() {
            return Err(ConfigError::EmptyId(at));
        }
        if !descriptor.access.is_valid() {
            return Err(ConfigError::BadAccess(id));
        }
        if !is_object_schema(&descriptor.input) {
            return Err(ConfigError::BadInput(id));
        }
        let nothing = is_null_schema(&descriptor.result);
        if !nothing && !is_object_schema(&descriptor.result) {
            return Err(ConfigError::BadResult(id));
        }
        if descriptor.invoke.is_none() {
            return Err(ConfigError::NoInvoke(id));
        }
        descriptor
            .flags
            .check()
            .map_err(|why| ConfigError::BadFlags(id.clone(), why))?;
        let name = tool_name(&id);
        if !is_tool_name(&name) {
            return Err(ConfigError::BadToolName(id, name));
        }
        let refused = |what: &str, faults: Vec<String>| {
            ConfigError::Tool(
                id.clone(),
                format!("the {what} cannot be served: {}", faults.join("; ")),
            )
        };
        let input = OutputSchema::parse(&descriptor.input.to_string())
            .map_err(|faults| refused("input", faults))?;
        let result = (!nothing)
            .then(|| OutputSchema::parse(&descriptor.result.to_string()))
            .transpose()
            .map_err(|faults| refused("result", faults))?;
        let flags = descriptor.flags;
        let tool = Tool {
            name,
            title: None,
            description: Some(descriptor.summary.clone()),
            input_schema: Json::from(&descriptor.input),
            output_schema: result.is_some().then(|| Json::from(&descriptor.result)),
            annotations: Some(ToolAnnotations {
                title: None,
                read_only_hint: Some(flags.read_only),
                destructive_hint: Some(flags.destructive),
                idempotent_hint: Some(flags.idempotent),
                open_world_hint: Some(false),
            }),
            icons: Vec::new(),
            meta: None,
        };
        Ok(Self {
            descriptor,
            tool,
            input,
            result,
        })
    }
}
