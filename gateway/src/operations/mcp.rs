//! The operations as MCP tools: `POST /api/v1/mcp`, plain JSON, a server of its own for each request.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body::Body as HttpBody;
use ramen_mcp::envelope::text;
use ramen_mcp::model::{Implementation, Prompt, Resource, Tool};
use ramen_mcp::names::method;
use ramen_mcp::server::{PAGE_SIZE, climb};
use ramen_mcp::{
    ArgumentFault, Catalog, Connection, Era, McpError, Message, Options, Outcome, PromptText,
    RequestId, ResourceTarget, Server, Step, ToolCall, envelope,
};
use serde_json::json;

use super::check::{Context, Purpose, check};
use super::config::{Operations, Served};
use super::error::OpError;
use super::run::Output;
use crate::answer::{self, Answer, Refusal};
use crate::copies;
use crate::door::{self, Door, ONLY_POST};
use crate::endpoint::{rejected, status_of};
use crate::media;
use crate::reference::Reference;

impl Operations {
    /// Answers one request of an MCP client.
    pub async fn mcp<B>(&self, door: &Door, peer: IpAddr, request: Request<B>) -> Answer
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let (parts, body) = request.into_parts();
        let Some(verify) = self.gate.verify.as_deref() else {
            return Refusal::Unverified.answer();
        };
        let entered = door
            .enter(&parts, peer, verify, &self.ranges, ONLY_POST)
            .await;
        let entered = match entered {
            Ok(entered) => entered,
            Err(refusal) => return refusal.answer(),
        };
        if let Err(answer) = media::judge(&parts.headers) {
            return *answer;
        }
        let body = match door::read(body).await {
            Ok(body) => body,
            Err(refusal) => return refusal.answer(),
        };
        let mut context = (self.context)(&parts, peer);
        context.actor = Some(entered.caller);
        context.authorize = Some(Arc::clone(&self.authorize));
        let answer = match envelope::parse(&body) {
            Ok(message) => match &message {
                Message::Request(request) => {
                    self.request(&context, &parts.headers, &message, request)
                        .await
                }
                Message::Notification(_) | Message::Response(_) => {
                    answer::empty(StatusCode::ACCEPTED)
                }
            },
            Err(reject) => rejected(&reject),
        };
        match self.recheck(&context).await {
            Ok(()) => answer,
            Err(refusal) => refusal.answer(),
        }
    }

    async fn request(
        &self,
        context: &Context,
        headers: &http::HeaderMap,
        message: &Message<'_>,
        request: &envelope::Request<'_>,
    ) -> Answer {
        let refuse = |era, error: &McpError| {
            answer::json(status_of(era, error.code), error.body(&request.id))
        };
        if request.method == method::LISTEN {
            let error = McpError::method_not_found(&request.method);
            return answer::json(StatusCode::NOT_FOUND, error.body(&request.id));
        }
        let mut connection = match copies::read(headers) {
            Ok(copies) => Connection::http(copies),
            Err(error) => return refuse(None, &error),
        };
        let guess = connection.era(&request.method, request.params.meta()).ok();
        let era = match climb(request, &connection) {
            Ok(era) => era,
            Err(error) => return refuse(guess, &error),
        };
        let reply = match &*request.method {
            method::TOOLS_LIST => {
                self.list(context, message, &mut connection, &request.id)
                    .await
            }
            method::TOOLS_CALL => {
                self.call(context, message, request, era, &mut connection)
                    .await
            }
            _ => replied(self.server(Vec::new()).step(message, &mut connection)),
        };
        let status = match envelope::parse(&reply) {
            Ok(Message::Response(response)) => response
                .outcome
                .err()
                .and_then(|error| serde_json::from_str::<McpError>(error).ok())
                .map_or(StatusCode::OK, |error| status_of(Some(era), error.code)),
            _ => StatusCode::OK,
        };
        answer::json(status, reply)
    }

    /// `tools/list`: what admission and policy allow, and the guard lets out.
    async fn list(
        &self,
        context: &Context,
        message: &Message<'_>,
        connection: &mut Connection,
        id: &RequestId,
    ) -> Bytes {
        match self.listed(context, message, connection).await {
            Ok(reply) if reply.len() <= self.gate.max_response => reply,
            Ok(_) => list_failed(id, &OpError::Internal("the list is too large".into())),
            Err(error) => list_failed(id, &error),
        }
    }

    async fn listed(
        &self,
        context: &Context,
        message: &Message<'_>,
        connection: &mut Connection,
    ) -> Result<Bytes, OpError> {
        let listed = self.allowed(context).await?;
        let reply = replied(self.server(listed.clone()).step(message, connection));
        self.release_list(context, &listed).await?;
        Ok(reply)
    }

    /// The operations that the caller may know of.
    pub(super) async fn allowed(&self, context: &Context) -> Result<Vec<Arc<Served>>, OpError> {
        let mut allowed = Vec::new();
        for served in &self.served {
            match check(&self.gate, context, &served.descriptor, Purpose::List).await {
                Ok(()) => allowed.push(Arc::clone(served)),
                Err(error) if error.hides() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(allowed)
    }

    /// `tools/call`.
    async fn call(
        &self,
        context: &Context,
        message: &Message<'_>,
        request: &envelope::Request<'_>,
        era: Era,
        connection: &mut Connection,
    ) -> Bytes {
        let name = request.params.name().and_then(text);
        let known = name.and_then(|name| self.by_tool.get(&*name));
        let Some(served) = known.map(|at| &self.served[*at]) else {
            // Says what is wrong with the name.
            return replied(self.server(Vec::new()).step(message, connection));
        };
        let alone = self.server(vec![Arc::clone(served)]);
        let call = ToolCall {
            id: request.id.clone(),
            era,
            tool: 0,
            arguments: Bytes::new(),
            progress: None,
            log_level: None,
            trace: None,
        };
        let id = &served.descriptor.id;
        let reply = match self.admit(context, served).await {
            Ok(()) => match alone.step(message, connection) {
                Step::CallTool(fits) => self
                    .outcome(context, served, &fits.arguments)
                    .await
                    .and_then(|output| self.capped(&alone, &call, &output)),
                // The arguments do not fit: nothing ran.
                step => return replied(step),
            },
            Err(error) => Err(error),
        };
        self.count(served, &reply);
        reply.unwrap_or_else(|error| refused(&alone, &call, &error, id))
    }

    async fn outcome(
        &self,
        context: &Context,
        served: &Served,
        arguments: &[u8],
    ) -> Result<Output, OpError> {
        let input = serde_json::from_slice(arguments)
            .map_err(|error| OpError::Internal(error.to_string().into()))?;
        let outcome = self.invoke(context, served, input).await;
        self.release(context, served, outcome).await
    }

    fn capped(&self, server: &Server, call: &ToolCall, output: &Output) -> Result<Bytes, OpError> {
        let reply = server.tool_reply(call, Outcome::Json(output.json.as_bytes()));
        if reply.len() > self.gate.max_response {
            return Err(OpError::TooLarge(reply.len()));
        }
        Ok(reply)
    }

    /// A server for one request.
    fn server(&self, served: Vec<Arc<Served>>) -> Server {
        let options = Options {
            page_size: PAGE_SIZE.max(served.len()),
            list_ttl_ms: 0,
            public_lists: false,
        };
        let catalog = Chosen {
            info: self.info.clone(),
            instructions: self.instructions.clone(),
            tools: served.iter().map(|served| served.tool.clone()).collect(),
            served,
        };
        Server::new(Arc::new(catalog), options)
    }
}

/// A refusal: a tool error that holds the API's envelope.
fn refused(server: &Server, call: &ToolCall, error: &OpError, operation: &str) -> Bytes {
    let envelope = error.envelope(operation);
    let text = String::from_utf8_lossy(&envelope);
    server.tool_reply(call, Outcome::Error(&text))
}

/// A list that cannot be made.
fn list_failed(id: &RequestId, error: &OpError) -> Bytes {
    let reference = Reference::new();
    tracing::error!(%reference, error = error as &dyn std::error::Error, "the list of tools failed");
    McpError::internal("the list of tools cannot be made")
        .with_data(&json!({ "ref": reference.as_str() }))
        .body(id)
}

/// The answer of a step that needs nothing else.
fn replied(step: Step) -> Bytes {
    match step {
        Step::Reply(bytes) => bytes,
        // A server without resources, on a transport without streams, has no other steps.
        _ => Bytes::new(),
    }
}

/// Some of the operations, as a server of MCP sees them.
struct Chosen {
    info: Implementation,
    instructions: String,
    served: Vec<Arc<Served>>,
    tools: Vec<Tool>,
}

impl Catalog for Chosen {
    fn server_info(&self) -> &Implementation {
        &self.info
    }

    fn instructions(&self) -> Option<&str> {
        Some(&self.instructions)
    }

    fn tools(&self) -> &[Tool] {
        &self.tools
    }

    fn resources(&self) -> &[Resource] {
        &[]
    }

    fn prompts(&self) -> &[Prompt] {
        &[]
    }

    fn check_arguments(
        &self,
        tool: usize,
        arguments: &str,
    ) -> Result<Option<Bytes>, ArgumentFault> {
        self.served[tool].check_input(arguments)?;
        Ok(None)
    }

    fn resolve_resource(&self, _: &str) -> Option<ResourceTarget> {
        None
    }

    fn render_prompt(&self, _: usize, _: &[(String, String)]) -> Result<PromptText, ArgumentFault> {
        Err(ArgumentFault::whole("there is no prompt"))
    }
}

impl Served {
    /// Judges an input, the text of a JSON object.
    pub(super) fn check_input(&self, input: &str) -> Result<(), ArgumentFault> {
        if let Err(fault) = ramen_group::json::parse(input) {
            return Err(ArgumentFault::whole(format!(
                "are not good JSON: {}",
                fault.message
            )));
        }
        self.input
            .check(input)
            .map_err(|fault| match fault.place.as_str() {
                "" => ArgumentFault::whole(fault.message),
                place => ArgumentFault::of(place, fault.message),
            })
    }
}
