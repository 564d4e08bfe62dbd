//! A server's side of the protocol: what to answer, and what to hand to whoever runs the code.

mod answer;
mod handshake;
mod ladder;
mod listen;
mod listing;
mod prompts;
mod reply;
mod step;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::catalog::Catalog;
use crate::envelope::{Message, Notification, Request};
use crate::era::{Connection, Era};
use crate::error::McpError;
use crate::headers::{ParamHeader, param_headers};
use crate::id::RequestId;
use crate::names::method;

use answer::Answer;
use listing::Listing;
use reply::Output;

pub use ladder::climb;
pub(crate) use reply::one_line;
pub use step::{ListKind, Listen, ResourceRead, Step, ToolCall};

/// How many entries a page of a list holds unless [`Options`] say otherwise.
pub const PAGE_SIZE: usize = 100;

/// What a server may decide.
#[derive(Clone, Debug)]
pub struct Options {
    /// Entries per page of a list.
    pub page_size: usize,
    /// How long a modern client may keep a list, in milliseconds.
    pub list_ttl_ms: u64,
    /// Whether shared caches may keep a list (`public`), or only the caller (`private`).
    pub public_lists: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            page_size: PAGE_SIZE,
            list_ttl_ms: 5_000,
            public_lists: false,
        }
    }
}

/// Serves one [`Catalog`]. Immutable: a new revision of a group is a new `Server`.
pub struct Server {
    catalog: Arc<dyn Catalog>,
    options: Options,
    /// JSON of who the server is.
    info_json: Arc<str>,
    /// Members that end every modern result.
    modern_tail: String,
    /// `ttlMs` and `cacheScope` of lists.
    list_cache: String,
    tools: Listing,
    resources: Listing,
    templates: Listing,
    prompts: Listing,
    tool_index: HashMap<String, usize>,
    prompt_index: HashMap<String, usize>,
    outputs: Vec<Output>,
    /// Of each tool, the arguments that have header copies.
    params: Vec<Vec<ParamHeader>>,
}

impl Server {
    /// A server of `catalog`; renders its lists once.
    pub fn new(catalog: Arc<dyn Catalog>, options: Options) -> Self {
        let tools = catalog.tools();
        let names = |names: Vec<&String>| {
            let pairs = names.into_iter().enumerate().rev();
            pairs
                .map(|(index, name)| (name.clone(), index))
                .collect::<HashMap<_, _>>()
        };
        let outputs: Vec<_> = tools
            .iter()
            .map(|tool| Output::of(tool.output_schema.as_ref()))
            .collect();
        let scope = if options.public_lists {
            "public"
        } else {
            "private"
        };
        let info_json = answer::info_json(catalog.server_info());
        Self {
            modern_tail: answer::modern_tail(&info_json),
            list_cache: format!(r#""ttlMs":{},"cacheScope":"{scope}""#, options.list_ttl_ms),
            tools: Listing::tools(tools, &outputs),
            resources: Listing::new(catalog.resources(), |resource| &resource.name),
            templates: Listing::new(catalog.templates(), |template| &template.name),
            prompts: Listing::new(catalog.prompts(), |prompt| &prompt.name),
            tool_index: names(tools.iter().map(|tool| &tool.name).collect()),
            prompt_index: names(
                catalog
                    .prompts()
                    .iter()
                    .map(|prompt| &prompt.name)
                    .collect(),
            ),
            params: tools
                .iter()
                .map(|tool| param_headers(tool.input_schema.get()))
                .collect(),
            outputs,
            info_json: info_json.into(),
            options,
            catalog,
        }
    }

    /// What it serves.
    pub fn catalog(&self) -> &Arc<dyn Catalog> {
        &self.catalog
    }

    /// Answers a message, or says what has to be done for it. Never blocks, never panics.
    ///
    /// `connection` lives as long as the stream; for a unary call make a new one each time.
    pub fn step(&self, message: &Message<'_>, connection: &mut Connection) -> Step {
        match message {
            Message::Request(request) => self
                .request(request, connection)
                .unwrap_or_else(|error| Step::Reply(error.body(&request.id))),
            Message::Notification(notification) => Self::notification(notification),
            Message::Response(_) => Step::Silent,
        }
    }

    fn notification(notification: &Notification<'_>) -> Step {
        if notification.method != method::CANCELLED {
            return Step::Silent;
        }
        let params = &notification.params;
        let id = params
            .request_id()
            .and_then(|token| RequestId::from_token(params.share(token)));
        id.map_or(Step::Silent, |id| Step::Cancel(id.key()))
    }

    fn request(
        &self,
        request: &Request<'_>,
        connection: &mut Connection,
    ) -> Result<Step, McpError> {
        let era = ladder::climb(request, connection)?;
        let reply = match (&*request.method, era) {
            (method::TOOLS_CALL, _) => return self.call_tool(request, era, connection),
            (method::RESOURCES_READ, _) => return self.read_resource(request, era, connection),
            (method::LISTEN, Era::Modern) => {
                return listen::start(request, Arc::clone(&self.info_json));
            }
            (method::TOOLS_LIST, _) => self.list(request, era, "tools", &self.tools)?,
            (method::RESOURCES_LIST, _) => self.list(request, era, "resources", &self.resources)?,
            (method::TEMPLATES_LIST, _) => {
                self.list(request, era, "resourceTemplates", &self.templates)?
            }
            (method::PROMPTS_LIST, _) => self.list(request, era, "prompts", &self.prompts)?,
            (method::PROMPTS_GET, _) => self.get_prompt(request, era)?,
            (method::COMPLETE, _) => self.complete(request, era)?,
            (method::DISCOVER, Era::Modern) => self.discover(request, connection),
            (method::INITIALIZE, Era::Legacy(_)) => self.initialize(request, connection),
            (method::SET_LEVEL, Era::Legacy(_)) => self.set_level(request, era, connection)?,
            (method::PING, Era::Legacy(_)) => self.answer(&request.id, 0).finish(era),
            _ => return Err(McpError::method_not_found(&request.method)),
        };
        Ok(Step::Reply(reply))
    }

    fn list(
        &self,
        request: &Request<'_>,
        era: Era,
        member: &'static str,
        listing: &Listing,
    ) -> Result<Bytes, McpError> {
        let page = listing.page(era, request.params.cursor(), self.options.page_size)?;
        let mut answer = self.answer(&request.id, page.items.len() + self.modern_tail.len());
        answer.member(member, |out| {
            out.push(b'[');
            out.extend_from_slice(page.items);
            out.push(b']');
        });
        if let Some(cursor) = page.next {
            answer.json("nextCursor", &cursor);
        }
        if era.is_modern() {
            answer.raw_members(&self.list_cache);
        }
        Ok(answer.finish(era))
    }

    /// Starts the response to this request; `room` is about how long the result gets.
    fn answer<'s>(&'s self, id: &RequestId, room: usize) -> Answer<'s> {
        Answer::new(id, &self.modern_tail, room)
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("info", self.catalog.server_info())
            .finish_non_exhaustive()
    }
}
