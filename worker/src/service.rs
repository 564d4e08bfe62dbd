//! The services on the gRPC port, behind the gate.

mod admin;
mod session;

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use ramen_listener::Open;
use ramen_mcp::{
    Connection, McpError, ParamCopies, RequestId, ResourceRead, Step, ToolCall, envelope,
};
use tokio::sync::{Notify, watch};
use tonic::Status;
use tonic::service::Routes;
use tower::ServiceExt;

use crate::gate::{Gate, Permit, Refusal};
use crate::generation::{CallContext, Generation, Lost, Manager};
use crate::health::Checks;
use crate::metrics::{CallOutcome, Metrics};
use crate::names;
use crate::wire::{self, Body, SlowReader};

/// The fast call.
const CALL: &str = "/ramen.v1.Mcp/Call";
/// How long the bytes of a request may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(20);

/// Everything a request needs, shared by all connections.
pub(crate) struct Front {
    pub(crate) gate: Arc<Gate>,
    pub(crate) manager: Arc<Manager>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Front {
    /// What `/metrics` says now.
    pub(crate) fn metrics_text(&self) -> String {
        let current = self.manager.current();
        let hosts = current
            .as_ref()
            .map_or(0, |current| *current.pool.ready().borrow());
        let generation = current.map_or(0, |current| current.number);
        self.metrics
            .text(self.gate.in_flight.taken(), hosts, generation)
    }
}

/// The caller, as a session sees it.
#[derive(Clone)]
struct Peer {
    /// For later checks.
    address: IpAddr,
    /// Ends the connection.
    end: Arc<Notify>,
}

fn nothing_loaded() -> Status {
    ramen_proto::not_begun("no revision of the group is loaded yet")
}

/// A gateway in front says that a request came over HTTP by naming its protocol version; then the
/// client's copies of arguments, which it passes on, are judged here, where the schemas are known.
fn over_http(connection: Connection, headers: &HeaderMap) -> Connection {
    if !headers.contains_key(names::PROTOCOL_VERSION_HEADER) {
        return connection;
    }
    let copies = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().strip_prefix(names::PARAM_PREFIX)?;
        Some((name.to_owned(), value.to_str().ok()?.to_owned()))
    });
    connection.with_params(ParamCopies(copies.collect()))
}

/// The answer of a call, if it is not too large; what is names the request's id.
fn sized(id: &RequestId, answer: Result<Bytes, Lost>) -> Result<Bytes, Status> {
    match answer {
        Ok(answer) if answer.len() > names::MAX_MESSAGE => {
            let id: String = id.raw().chars().take(64).collect();
            Err(wire::too_large(
                &format!("the response to id {id}"),
                answer.len(),
            ))
        }
        Ok(answer) => Ok(answer),
        Err(lost) => Err(lost.status()),
    }
}

/// The tonic services.
pub(crate) fn routes(front: &Arc<Front>, reflection: bool) -> Routes {
    let health = Checks::server(front.manager.serving(), front.stopping.clone());
    let mut routes = Routes::new(health)
        .add_service(session::server(Arc::clone(front)))
        .add_service(admin::server(Arc::clone(front)));
    if reflection {
        let service = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(ramen_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1();
        match service {
            Ok(service) => routes = routes.add_service(service),
            Err(error) => tracing::error!(%error, "reflection is not offered"),
        }
    }
    routes.prepare()
}

/// A request that the gate has judged.
enum Way {
    Refused(Status),
    Call(Unary),
    /// To tonic. Boxed: its state is large.
    Routed(Pin<Box<dyn Future<Output = Response<Body>> + Send>>),
}

/// A call that may come in; its bytes are on their way.
struct Unary {
    body: Incoming,
    connection: Connection,
    permit: Permit,
    begin: Instant,
    deadline: Option<Instant>,
}

/// What a message came to at once.
enum Begun {
    Done(Result<Bytes, Status>),
    Tool(ToolCall, CallContext),
    Resource(ResourceRead, CallContext),
}

impl Front {
    /// Answers one request, which is open as long as `open`. Dropping the future cancels what it does; `end` ends the
    /// connection.
    ///
    /// The gate judges before there is a future: hyper moves the future from place to place, and one that
    /// carried the head of the request (and room for each step's own copy of it) would be copied for longer than
    /// the gate takes.
    pub(crate) fn answer(
        self: Arc<Self>,
        routes: &Routes,
        peer: IpAddr,
        end: Arc<Notify>,
        open: Open,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Body>, Infallible>> + Send + use<> {
        let way = self.way(routes, peer, &end, request);
        async move {
            let response = match way {
                Way::Refused(status) => status.into_http(),
                Way::Routed(answer) => answer.await,
                Way::Call(call) => {
                    let outcome = self.call(call).await;
                    let size = outcome.as_ref().map_or(0, Bytes::len);
                    let permit = || self.gate.in_flight.try_take();
                    wire::respond(outcome, SlowReader::watch(size, permit, &end))
                }
            };
            drop(open);
            Ok(response)
        }
    }

    fn way(
        &self,
        routes: &Routes,
        peer: IpAddr,
        end: &Arc<Notify>,
        mut request: Request<Incoming>,
    ) -> Way {
        let path = request.uri().path();
        if path == CALL {
            return match self.admit(peer, request) {
                Ok(call) => Way::Call(call),
                Err(refusal) => Way::Refused(self.refuse(refusal)),
            };
        }
        let verdict = if path.starts_with("/grpc.health.v1.Health/") {
            Ok(())
        } else if path.starts_with("/ramen.v1.Admin/") {
            self.gate.admin(request.headers(), peer)
        } else {
            self.gate.mcp(request.headers(), peer)
        };
        if let Err(refusal) = verdict {
            return Way::Refused(self.refuse(refusal));
        }
        let (address, end) = (peer, Arc::clone(end));
        request.extensions_mut().insert(Peer { address, end });
        let answer = routes.clone().oneshot(request);
        Way::Routed(Box::pin(async move {
            match answer.await {
                Ok(response) => response.map(Body::Tonic),
                Err(never) => match never {},
            }
        }))
    }

    fn refuse(&self, refusal: Refusal) -> Status {
        self.metrics.refused(refusal);
        refusal.status()
    }

    fn admit(&self, peer: IpAddr, request: Request<Incoming>) -> Result<Unary, Refusal> {
        let headers = request.headers();
        self.gate.mcp(headers, peer)?;
        let connection = over_http(Connection::unary(), headers);
        let permit = self.gate.in_flight.try_take().ok_or(Refusal::Full)?;
        let begin = Instant::now();
        let deadline = wire::timeout_of(headers).map(|timeout| begin + timeout);
        Ok(Unary {
            body: request.into_body(),
            connection,
            permit,
            begin,
            deadline,
        })
    }

    async fn call(&self, call: Unary) -> Result<Bytes, Status> {
        let last_byte = call.begin + BODY_TIME;
        let last_byte = call
            .deadline
            .map_or(last_byte, |deadline| deadline.min(last_byte));
        let read = wire::read_unary(call.body);
        let body = match tokio::time::timeout_at(last_byte.into(), read).await {
            Ok(Ok(body)) => body,
            Ok(Err(status)) => {
                self.metrics
                    .call(CallOutcome::BadTransport, call.begin.elapsed());
                return Err(status);
            }
            Err(_) => {
                self.metrics
                    .call(CallOutcome::BadTransport, call.begin.elapsed());
                return Err(Status::deadline_exceeded(
                    "the request did not arrive in time",
                ));
            }
        };
        let Some(generation) = self.manager.current() else {
            return Err(nothing_loaded());
        };
        let context = CallContext {
            deadline: call.deadline,
            permit: Some(call.permit),
            events: None,
        };
        match begin(&generation, &body, call.connection, context) {
            Begun::Done(answer) => answer,
            Begun::Tool(call, context) => {
                sized(&call.id, generation.call_tool(&call, context).await)
            }
            Begun::Resource(read, context) => {
                sized(&read.id, generation.read_resource(&read, context).await)
            }
        }
    }
}

fn begin(
    generation: &Generation,
    body: &Bytes,
    mut connection: Connection,
    context: CallContext,
) -> Begun {
    let step = match envelope::parse(body) {
        Ok(message) => generation.server.step(&message, &mut connection),
        Err(reject) => return Begun::Done(Ok(reject.answer().unwrap_or_default())),
    };
    Begun::Done(match step {
        Step::Reply(bytes) => Ok(bytes),
        Step::Silent | Step::Cancel(_) => Ok(Bytes::new()),
        Step::CallTool(call) => return Begun::Tool(call, context),
        Step::ReadResource(read) => return Begun::Resource(read, context),
        // `Connection::unary` does not stream, so the server does not offer it here.
        Step::Listen(listen) => {
            Ok(McpError::invalid_request("a subscription needs Mcp/Session").body(&listen.id))
        }
    })
}
