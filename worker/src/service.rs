//! The services on the gRPC port, behind the gate.

mod admin;
mod session;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use ramen_mcp::{Connection, McpError, ParamCopies, RequestId, Step, envelope};
use tokio::sync::{Notify, watch};
use tonic::Status;
use tonic::service::Routes;
use tower::ServiceExt;

use crate::gate::{Gate, Permit, Refusal};
use crate::generation::{CallContext, Lost, Manager};
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

/// The caller, as later checks of a session see it.
#[derive(Clone, Copy)]
struct Peer(IpAddr);

fn nothing_loaded() -> Status {
    Status::unavailable("no revision of the group is loaded yet")
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

impl Front {
    /// Answers one request. Dropping the future cancels what it does; `end` ends the connection.
    pub(crate) async fn answer(
        self: Arc<Self>,
        routes: Routes,
        peer: IpAddr,
        end: Arc<Notify>,
        mut request: Request<Incoming>,
    ) -> Response<Body> {
        let path = request.uri().path();
        if path == CALL {
            let outcome = self.unary(peer, request).await;
            let size = outcome.as_ref().map_or(0, Bytes::len);
            let permit = || self.gate.in_flight.try_take();
            return wire::respond(outcome, SlowReader::watch(size, permit, &end));
        }
        let verdict = if path.starts_with("/grpc.health.v1.Health/") {
            Ok(())
        } else if path.starts_with("/ramen.v1.Admin/") {
            self.gate.admin(request.headers(), peer)
        } else {
            self.gate.mcp(request.headers(), peer)
        };
        if let Err(refusal) = verdict {
            return self.refuse(refusal).into_http();
        }
        request.extensions_mut().insert(Peer(peer));
        // Boxed: its state is large, and the fast call above must not carry it around.
        match Box::pin(routes.oneshot(request)).await {
            Ok(response) => response.map(Body::Tonic),
            Err(never) => match never {},
        }
    }

    fn refuse(&self, refusal: Refusal) -> Status {
        self.metrics.refused(refusal);
        refusal.status()
    }

    async fn unary(&self, peer: IpAddr, request: Request<Incoming>) -> Result<Bytes, Status> {
        let headers = request.headers();
        self.gate
            .mcp(headers, peer)
            .map_err(|refusal| self.refuse(refusal))?;
        let connection = over_http(Connection::unary(), headers);
        let permit = self
            .gate
            .in_flight
            .try_take()
            .ok_or_else(|| self.refuse(Refusal::Full))?;
        let begin = Instant::now();
        let deadline = wire::timeout_of(headers).map(|timeout| begin + timeout);
        let last_byte = deadline.map_or(begin + BODY_TIME, |deadline| {
            deadline.min(begin + BODY_TIME)
        });
        let read = wire::read_unary(request.into_body());
        let body = match tokio::time::timeout_at(last_byte.into(), read).await {
            Ok(Ok(body)) => body,
            Ok(Err(status)) => {
                self.metrics
                    .call(CallOutcome::BadTransport, begin.elapsed());
                return Err(status);
            }
            Err(_) => {
                self.metrics
                    .call(CallOutcome::BadTransport, begin.elapsed());
                return Err(Status::deadline_exceeded(
                    "the request did not arrive in time",
                ));
            }
        };
        self.message(body, connection, deadline, permit).await
    }

    async fn message(
        &self,
        body: Bytes,
        mut connection: Connection,
        deadline: Option<Instant>,
        permit: Permit,
    ) -> Result<Bytes, Status> {
        let Some(generation) = self.manager.current() else {
            return Err(Status::unavailable(
                "no revision of the group is loaded yet",
            ));
        };
        let step = match envelope::parse(&body) {
            Ok(message) => generation.server.step(&message, &mut connection),
            Err(reject) => return Ok(reject.answer().unwrap_or_default()),
        };
        let context = CallContext {
            deadline,
            permit: Some(permit),
            events: None,
        };
        match step {
            Step::Reply(bytes) => Ok(bytes),
            Step::Silent | Step::Cancel(_) => Ok(Bytes::new()),
            Step::CallTool(call) => sized(&call.id, generation.call_tool(&call, context).await),
            Step::ReadResource(read) => {
                sized(&read.id, generation.read_resource(&read, context).await)
            }
            // `Connection::unary` does not stream, so the server does not offer it here.
            Step::Listen(listen) => {
                Ok(McpError::invalid_request("a subscription needs Mcp/Session").body(&listen.id))
            }
        }
    }
}
