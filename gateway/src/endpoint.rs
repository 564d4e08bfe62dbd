//! `POST /<namespace>/<group>/mcp`: Streamable HTTP of both eras on one URL, without sessions.
//!
//! Each request says its own era. What the protocol asks of HTTP is judged here, the rest by the
//! worker. JSON is answered unless the request asked for something that streams, and even then until
//! something did.
//!
//! `notifications/cancelled` is accepted and does nothing: clients that share a key also share the
//! numbers of their requests, so one could cancel another's. A client that goes away cancels its call.

mod reply;
mod source;
mod stream;
mod upstream;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode};
use http_body::Body as HttpBody;
use ramen_group::CidrSet;
use ramen_mcp::names::method;
use ramen_mcp::server::climb;
use ramen_mcp::{Connection, Era, Listen, McpError, Message, Reject, RequestId, code, envelope};
use ramen_redact::KeySet;

use crate::answer::{self, Answer, Refusal};
use crate::callers::Place;
use crate::copies;
use crate::door::{self, Caller};
use crate::gateway::Gateway;
use crate::groups::Group;
use crate::listen;
use crate::media::{self, Accepts};
use crate::metrics::Outcome;
use crate::names::ZONE_HEADER;
use crate::pool::{Carried, Credentials};
use crate::recent::Ended;
use crate::upstreams::Part;

/// One request that came through the gate.
struct Call<'g> {
    gateway: &'g Gateway,
    group: Arc<Group>,
    caller: Caller,
    peer: IpAddr,
    parts: Parts,
    accepts: Accepts,
    place: Place,
}

/// Answers one request. Dropping the future cancels what it does.
pub(crate) async fn answer<B>(
    gateway: &Gateway,
    group: Option<Arc<Group>>,
    peer: IpAddr,
    request: Request<B>,
) -> Answer
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let (parts, body) = request.into_parts();
    let access = group.as_ref().map(|group| group.access());
    // A group that is not there has no keys, so nobody learns that it is not there.
    let (no_keys, nowhere) = (KeySet::empty(), CidrSet::default());
    let (keys, ranges) = access.as_ref().map_or((&no_keys, &nowhere), |access| {
        (&access.keys, &access.ranges)
    });
    let entered = match gateway
        .door
        .enter(&parts, peer, keys, ranges, door::ONLY_POST)
        .await
    {
        Ok(entered) => entered,
        Err(refusal) => return refusal.answer(),
    };
    let Some(group) = group else {
        return Refusal::Credential.answer();
    };
    let accepts = match media::judge(&parts.headers) {
        Ok(accepts) => accepts,
        Err(answer) => return *answer,
    };
    let body = match door::read(body).await {
        Ok(body) => body,
        Err(refusal) => return refusal.answer(),
    };
    let call = Call {
        gateway,
        group,
        caller: entered.caller,
        peer,
        parts,
        accepts,
        place: entered.place,
    };
    match envelope::parse(&body) {
        Ok(Message::Request(request)) => {
            let (group, caller) = (Arc::clone(&call.group), Arc::clone(&call.caller.id));
            let begin = Instant::now();
            let answer = call.request(&request, &body).await;
            note(gateway, &group, &caller, &request, answer.status(), begin);
            answer
        }
        // A client has nothing else to say that would change anything here.
        Ok(Message::Notification(_) | Message::Response(_)) => answer::empty(StatusCode::ACCEPTED),
        Err(reject) => rejected(&reject),
    }
}

/// Remembers what ran code or gave something out; lists and the like are noise.
fn note(
    gateway: &Gateway,
    group: &Group,
    caller: &Arc<str>,
    request: &envelope::Request<'_>,
    status: StatusCode,
    begin: Instant,
) {
    let name = match &*request.method {
        method::TOOLS_CALL | method::PROMPTS_GET => request.params.name(),
        method::RESOURCES_READ => request.params.uri(),
        _ => return,
    };
    let name = name.and_then(envelope::text);
    gateway.recent.note(&Ended {
        group: &group.name,
        caller,
        method: &request.method,
        name: name.as_deref(),
        status: status.as_u16(),
        took: begin.elapsed(),
    });
}

/// A message that cannot be taken.
pub(crate) fn rejected(reject: &Reject) -> Answer {
    let body = reject
        .answer()
        .unwrap_or_else(|| reject.error.body_of_notification());
    answer::json(StatusCode::BAD_REQUEST, body)
}

/// The status of a JSON-RPC error: modern clients are told by it, legacy ones look into the body.
pub(crate) fn status_of(era: Option<Era>, code: i32) -> StatusCode {
    match era {
        Some(Era::Legacy(_)) => StatusCode::OK,
        Some(Era::Modern) | None => {
            StatusCode::from_u16(code::http_status(code)).unwrap_or(StatusCode::OK)
        }
    }
}

impl Call<'_> {
    async fn request(self, request: &envelope::Request<'_>, body: &Bytes) -> Answer {
        let copies = match copies::read(&self.parts.headers) {
            Ok(copies) => copies,
            Err(error) => return refuse(None, request, &error),
        };
        let connection = Connection::http(copies).streaming();
        let guess = connection.era(&request.method, request.params.meta()).ok();
        let era = match climb(request, &connection) {
            Ok(era) => era,
            Err(error) => return refuse(guess, request, &error),
        };
        let mut answer = if request.method == method::LISTEN {
            self.listen(request)
        } else {
            self.run(request, era, body).await
        };
        answer.extensions_mut().insert(era);
        answer
    }

    async fn run(self, request: &envelope::Request<'_>, era: Era, body: &Bytes) -> Answer {
        let ask = match self.ask(request, era) {
            Ok(ask) => ask,
            Err(error) => return refuse(Some(era), request, &error),
        };
        let runs_code = matches!(
            &*request.method,
            method::TOOLS_CALL | method::RESOURCES_READ
        );
        let wants_events = runs_code && request.params.meta().wants_notifications();
        // What the server can do depends on the way: only where events can go, changes are told.
        let discovers = request.method == method::DISCOVER;
        let part = self.group.upstreams.part(request).await;
        if !matches!(part, Part::None) {
            return self.beside(part, request, ask, body, wants_events).await;
        }
        if self.accepts.events && (wants_events || discovers) {
            self.stream(ask, body.clone()).await
        } else {
            self.unary(ask, body.clone()).await
        }
    }

    fn ask(&self, request: &envelope::Request<'_>, era: Era) -> Result<Ask, McpError> {
        let headers = &self.parts.headers;
        let version = request.params.meta().protocol_version.as_deref();
        let copies = match (era, version) {
            (Era::Modern, Some(version)) => copies::carried(headers, version)?,
            _ => Vec::new(),
        };
        let zone = zone(headers)?;
        let caller = self.caller.id.parse();
        let keys = self.group.access().worker.clone();
        let (Ok(caller), Some(keys)) = (caller, keys) else {
            return Err(McpError::internal(
                "the gateway has no usable key for the workers of this group",
            ));
        };
        Ok(Ask {
            id: request.id.clone(),
            era,
            keys,
            carried: Carried {
                caller,
                copies,
                zone,
            },
        })
    }

    async fn unary(self, ask: Ask, body: Bytes) -> Answer {
        match self.worker(&ask, body).await {
            Ok(reply) => self.respond(&ask, reply),
            Err(status) => reply::failed(&ask, &status),
        }
    }

    /// The answer of a worker.
    async fn worker(&self, ask: &Ask, body: Bytes) -> Result<Bytes, tonic::Status> {
        let limit = self.gateway.call_timeout;
        let pool = &self.group.pool;
        pool.call(&ask.keys, &ask.carried, body, limit).await
    }

    /// The one answer of a request, after another look at the caller.
    fn respond(self, ask: &Ask, reply: Bytes) -> Answer {
        if let Err(refusal) = self.recheck() {
            return refusal.answer();
        }
        let answer = match reply::code_of(&reply, &ask.id) {
            Ok(None) if !self.accepts.json => Outcome::Ok.mark(stream::single(&reply)),
            Ok(None) => answer::json(StatusCode::OK, reply),
            Ok(Some(code)) => {
                Outcome::Error.mark(answer::json(status_of(Some(ask.era), code), reply))
            }
            Err(why) => reply::unusable(ask, why),
        };
        answer::holding(answer, self.place)
    }

    /// Whether the caller would still be let in: a key may go while a tool runs.
    fn recheck(&self) -> Result<(), Refusal> {
        let access = self.group.access();
        if !access.keys.holds(&self.caller.digest) {
            return Err(Refusal::Credential);
        }
        self.gateway
            .door
            .near(&self.parts, self.peer, &access.ranges)
    }

    fn listen(self, request: &envelope::Request<'_>) -> Answer {
        if !self.accepts.events {
            let error =
                McpError::invalid_request("a subscription needs `Accept: text/event-stream`");
            return answer::json(StatusCode::NOT_ACCEPTABLE, error.body(&request.id));
        }
        let listen = match Listen::read(request, Arc::clone(&self.gateway.info)) {
            Ok(listen) => listen,
            Err(error) => return refuse(Some(Era::Modern), request, &error),
        };
        let place = match self.gateway.door.callers.stream(&self.caller.id) {
            Ok(place) => place,
            Err(refusal) => return refusal.answer(),
        };
        // The stream is no request in flight any more.
        drop(self.place);
        let (out, pieces) = stream::channel();
        let changes = listen::subscribe(&self.group);
        let (group, digest) = (self.group, self.caller.digest);
        let stopping = self.gateway.stopping.clone();
        let counted = self.gateway.metrics.listening();
        tokio::spawn(async move {
            let welcome = || group.access().keys.holds(&digest);
            listen::serve(listen, changes, out, welcome, stopping).await;
            drop((place, counted));
        });
        Outcome::Listening.mark(answer::events(pieces))
    }
}

/// The zone that a request asks for, if it does. Whether there is one of that name its workers say.
fn zone(headers: &HeaderMap) -> Result<Option<String>, McpError> {
    let mut values = headers.get_all(ZONE_HEADER).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(name) if !name.is_empty() && values.next().is_none() => Ok(Some(name.to_owned())),
        _ => Err(McpError::invalid_request(
            "`ramen-zone` is given once and names one zone",
        )),
    }
}

/// What is needed to ask a worker.
struct Ask {
    id: RequestId,
    era: Era,
    keys: Credentials,
    carried: Carried,
}

fn refuse(era: Option<Era>, request: &envelope::Request<'_>, error: &McpError) -> Answer {
    let answer = answer::json(status_of(era, error.code), error.body(&request.id));
    Outcome::Invalid.mark(answer)
}
