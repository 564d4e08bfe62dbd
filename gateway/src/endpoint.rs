//! `POST /<namespace>/<group>/mcp`: Streamable HTTP of both eras on one URL, without sessions.
//!
//! Each request says its own era. What the protocol asks of HTTP is judged here, the rest by the
//! worker. JSON is answered unless the request asked for something that streams, and even then until
//! something did.
//!
//! `notifications/cancelled` is accepted and does nothing: clients that share a key also share the
//! numbers of their requests, so one could cancel another's. A client that goes away cancels its call.

mod hide;
mod reply;
mod source;
mod stream;
mod upstream;

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode};
use http_body::Body as HttpBody;
use ramen_group::{Allowed, CidrSet};
use ramen_mcp::names::method;
use ramen_mcp::server::climb;
use ramen_mcp::{Connection, Era, Listen, McpError, Message, Reject, RequestId, code, envelope};

pub(crate) use hide::Target;
use hide::{List, Next, Shortened};

use crate::access::{Entry, Welcome};
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
use crate::recent::{Called, Noted};
use crate::upstreams::Part;

/// One request that came through the gate.
struct Call<'g> {
    gateway: &'g Gateway,
    group: Arc<Group>,
    path: &'g str,
    caller: Caller,
    /// Where the caller is.
    address: IpAddr,
    parts: Parts,
    accepts: Accepts,
    place: Place,
    /// Remembers it, when it is one to remember.
    noted: Option<Arc<Noted>>,
}

/// Answers one request. Dropping the future cancels what it does.
pub(crate) async fn answer<B>(
    gateway: &Gateway,
    group: Option<Arc<Group>>,
    path: &str,
    peer: IpAddr,
    request: Request<B>,
) -> Answer
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let (parts, body) = request.into_parts();
    let access = group.as_ref().map(|group| group.access());
    let nowhere = CidrSet::default();
    let ranges = access.as_ref().map_or(&nowhere, |access| &access.ranges);
    let entry = Entry {
        access: access.as_deref(),
        oidc: gateway.oidc.as_deref(),
        path,
    };
    let entered = match gateway
        .door
        .enter(&parts, peer, &entry, ranges, door::ONLY_POST)
        .await
    {
        Ok(entered) => entered,
        Err(refusal) => return gateway.refuse(refusal, path, &parts.headers),
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
    let mut call = Call {
        gateway,
        group,
        path,
        caller: entered.caller,
        address: entered.address,
        parts,
        accepts,
        place: entered.place,
        noted: None,
    };
    match envelope::parse(&body) {
        Ok(Message::Request(request)) => {
            let noted = call.called(&request);
            let noted = noted.map(|called| Arc::new(gateway.recent.begin(called)));
            call.noted.clone_from(&noted);
            let answer = call.request(&request, &body).await;
            if let Some(noted) = noted {
                noted.answered(&answer);
            }
            answer
        }
        // A client has nothing else to say that would change anything here.
        Ok(Message::Notification(_) | Message::Response(_)) => answer::empty(StatusCode::ACCEPTED),
        Err(reject) => rejected(&reject),
    }
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
    /// What is remembered of it: what runs code or gives something out; lists and the like are noise.
    fn called(&self, request: &envelope::Request<'_>) -> Option<Called> {
        let name = match &*request.method {
            method::TOOLS_CALL | method::PROMPTS_GET => request.params.name(),
            method::RESOURCES_READ => request.params.uri(),
            _ => return None,
        };
        let name = name.and_then(envelope::text);
        let (group, caller) = (&self.group.name, &self.caller.id);
        let name = name.as_deref();
        Some(Called::new(group, caller, &request.method, name))
    }

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
        let mut ask = match self.ask(request, era) {
            Ok(ask) => ask,
            Err(error) => return refuse(Some(era), request, &error),
        };
        let mut body = body.clone();
        if let Some((target, token)) = hide::target(request) {
            ask.hidden = !target.is_in(&self.caller.allowed);
            if ask.hidden {
                body = hide::for_nobody(&body, token);
            }
            ask.target = Some(target);
        }
        let runs_code = matches!(
            &*request.method,
            method::TOOLS_CALL | method::RESOURCES_READ
        );
        let wants_events = runs_code && request.params.meta().wants_notifications();
        // What the server can do depends on the way: only where events can go, changes are told.
        let discovers = request.method == method::DISCOVER;
        // What is hidden is asked of a worker: nobody has it.
        if !ask.hidden {
            let part = self.group.upstreams.part(request).await;
            if !matches!(part, Part::None) {
                return self.beside(part, request, ask, body, wants_events).await;
            }
        }
        if self.accepts.events && (wants_events || discovers) {
            self.stream(ask, body).await
        } else {
            self.unary(ask, request, body).await
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
            target: None,
            hidden: false,
            keys,
            carried: Carried {
                caller,
                copies,
                zone,
            },
        })
    }

    async fn unary(self, ask: Ask, request: &envelope::Request<'_>, body: Bytes) -> Answer {
        let reply = match self.page(&ask, request, body).await {
            Ok(reply) => reply,
            Err(status) => return reply::failed(&ask, &status),
        };
        match (List::of(&request.method), self.recheck(&ask)) {
            (_, Err(refusal)) => self.refuse(refusal),
            (Some(list), Ok(allowed)) if !allowed.is_everything() => {
                self.shortened(&ask, request, list, reply).await
            }
            (_, Ok(_)) => self.respond(&ask, reply),
        }
    }

    /// The answer of a worker.
    async fn worker(&self, ask: &Ask, body: Bytes) -> Result<Bytes, tonic::Status> {
        let limit = self.gateway.call_timeout;
        let pool = &self.group.pool;
        pool.call(&ask.keys, &ask.carried, body, limit).await
    }

    /// The same; of a list with what upstreams have in it.
    async fn page(
        &self,
        ask: &Ask,
        request: &envelope::Request<'_>,
        body: Bytes,
    ) -> Result<Bytes, tonic::Status> {
        match self.worker(ask, body.clone()).await {
            Ok(reply) if List::of(&request.method).is_some() => {
                Ok(self.group.upstreams.merge(ask.era, &body, reply).await)
            }
            Ok(reply) => Ok(reply),
            // Boxed, so that what is rare does not make every call larger.
            Err(status) => Box::pin(self.instead(ask, &body, false, status)).await,
        }
    }

    /// All pages of a list as one, without what the caller may not use: where a page ends would name something of it.
    async fn shortened(
        self,
        ask: &Ask,
        request: &envelope::Request<'_>,
        list: List,
        mut page: Bytes,
    ) -> Answer {
        let mut all = Shortened::new(list);
        for _ in 0..hide::MAX_PAGES {
            let allowed = match self.recheck(ask) {
                Ok(allowed) => allowed,
                Err(refusal) => return self.refuse(refusal),
            };
            if !matches!(reply::code_of(&page, &ask.id), Ok(None)) {
                return self.respond(ask, page);
            }
            let next = match all.take(&page, &allowed) {
                None => return reply::unusable(ask, "its list cannot be read"),
                Some(Next::Nothing) => {
                    return match all.finish(&ask.id) {
                        Some(whole) => self.respond(ask, whole),
                        None => reply::unusable(ask, "its list is too long"),
                    };
                }
                Some(Next::Page(cursor)) => hide::at_cursor(request, &cursor),
            };
            let Some(next) = next else {
                return reply::unusable(ask, "its cursor cannot be used");
            };
            page = match self.page(ask, request, next).await {
                Ok(page) => page,
                Err(status) => return reply::failed(ask, &status),
            };
        }
        // A part of the list would look like all of it.
        reply::unusable(ask, "its list does not end")
    }

    /// The one answer of a request, after another look at the caller.
    fn respond(self, ask: &Ask, reply: Bytes) -> Answer {
        if let Err(refusal) = self.recheck(ask) {
            return self.refuse(refusal);
        }
        let answer = match reply::code_of(&reply, &ask.id) {
            Ok(None) => {
                let outcome = ask.outcome_of(&reply);
                outcome.mark(if self.accepts.json {
                    answer::json(StatusCode::OK, reply)
                } else {
                    stream::single(&reply)
                })
            }
            Ok(Some(code)) => {
                let reply = ask.put_back(reply);
                Outcome::Error.mark(answer::json(status_of(Some(ask.era), code), reply))
            }
            Err(why) => reply::unusable(ask, why),
        };
        answer::holding(answer, self.place)
    }

    /// What the caller may use now: a key may go, and rules may change, while a tool runs.
    fn recheck(&self, ask: &Ask) -> Result<Allowed, Refusal> {
        let access = self.group.access();
        access.judge(&self.caller, self.address, ask.shown())
    }

    fn refuse(&self, refusal: Refusal) -> Answer {
        self.gateway.refuse(refusal, self.path, &self.parts.headers)
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
        // Boxed: the task of a listener would keep its place three times.
        let welcome = Welcome::new(&self.group, &self.caller, self.address, None);
        let welcome = Box::new(welcome);
        let stopping = self.gateway.stopping.clone();
        let counted = self.gateway.metrics.listening();
        tokio::spawn(async move {
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
    /// What it is about, where rules can be about it.
    target: Option<Target>,
    /// That is kept from the caller; a worker is asked for something that is not there.
    hidden: bool,
    keys: Credentials,
    carried: Carried,
}

impl Ask {
    /// What it is about and the caller may use.
    fn shown(&self) -> Option<&Target> {
        self.target.as_ref().filter(|_| !self.hidden)
    }

    /// What a result of it comes to.
    fn outcome_of(&self, result: &[u8]) -> Outcome {
        let calls = matches!(self.target, Some(Target::Tool(_)));
        if calls && reply::is_error(result) {
            Outcome::ToolError
        } else {
            Outcome::Ok
        }
    }

    /// An error of a worker as it goes out: one of something hidden names what was asked for.
    fn put_back(&self, reply: Bytes) -> Bytes {
        match &self.target {
            Some(target) if self.hidden => hide::put_back(target, self.era, &self.id, reply),
            _ => reply,
        }
    }
}

fn refuse(era: Option<Era>, request: &envelope::Request<'_>, error: &McpError) -> Answer {
    let answer = answer::json(status_of(era, error.code), error.body(&request.id));
    Outcome::Invalid.mark(answer)
}
