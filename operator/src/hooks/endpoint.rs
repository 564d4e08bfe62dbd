//! The HTTP of it, in the order of the module above.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, Method, Request, StatusCode, header};
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Groups;
use super::coalesce::{Traffic, once};
use super::payload::{self, Said};
use super::receivers::{Receiver, Receivers};
use super::repository::Repository;
use super::sender::Sender;
use crate::group::GroupKey;
use crate::inbound::{self, Answer, Bounds, later, single, text};

const BOUNDS: Bounds = Bounds {
    connections: 128,
    head: Duration::from_secs(10),
    connection: Duration::from_mins(1),
    head_bytes: 32 * 1024,
};
/// Of a body.
pub(super) const MAX_BODY: usize = 1024 * 1024;
/// For a body.
const BODY_TIME: Duration = Duration::from_secs(10);

pub(super) async fn serve(
    listener: TcpListener,
    dir: PathBuf,
    groups: Arc<dyn Groups>,
    stop: CancellationToken,
) {
    let port = Arc::new(Port {
        receivers: Mutex::new(Receivers::new(dir)),
        traffic: Mutex::default(),
        groups,
    });
    let handler = move |request| {
        let port = Arc::clone(&port);
        async move { port.answer(request).await }
    };
    inbound::serve(listener, BOUNDS, stop, handler).await;
}

struct Port {
    receivers: Mutex<Receivers>,
    traffic: Mutex<Traffic>,
    groups: Arc<dyn Groups>,
}

/// Receiver, and the group that the path names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) receiver: String,
    pub(super) group: Option<GroupKey>,
}

impl Place {
    pub(super) fn parse(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix("/v1/hooks/")?.split('/');
        let mut part = || parts.next();
        let (receiver, namespace, group, more) = (part()?, part(), part(), part());
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let name = |text: &str| !text.is_empty() && text.len() <= 253 && text.bytes().all(plain);
        let group = match (namespace, group, more) {
            (None, None, None) => None,
            (Some(namespace), Some(group), None) if name(namespace) && name(group) => {
                Some(GroupKey::new(namespace, group))
            }
            _ => return None,
        };
        name(receiver).then(|| Self {
            receiver: receiver.to_owned(),
            group,
        })
    }
}

impl Port {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let Some(place) = Place::parse(request.uri().path()) else {
            return text(StatusCode::NOT_FOUND, "not found");
        };
        if request.method() != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "hooks are sent with POST");
        }
        let (head, body) = request.into_parts();
        let body = match inbound::whole(body, MAX_BODY, BODY_TIME).await {
            Ok(body) => body,
            Err(fault) => return fault.answer(),
        };
        let receiver = guard(&self.receivers).get(&place.receiver, Instant::now());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        let judged = judge(receiver.as_ref(), &head.headers, &body, now);
        let sender = receiver
            .as_ref()
            .map_or("", |receiver| receiver.sender.as_str());
        let delivery = receiver
            .as_ref()
            .and_then(|receiver| receiver.sender.delivery(&head.headers))
            .unwrap_or_default();
        let (answer, outcome, matched) = match judged {
            Err(refusal) => (refusal.answer(), "refused", 0),
            Ok(said) => self.heed(&place, delivery, said),
        };
        // A name that nobody made is the sender's text: it is no label.
        if receiver.is_some() {
            self.groups.counted(&place.receiver, outcome);
            tracing::info!(
                receiver = place.receiver,
                sender,
                delivery,
                outcome,
                matched,
                status = answer.status().as_u16(),
                "a hook came in"
            );
        }
        answer
    }

    /// A hook that is believed.
    fn heed(&self, place: &Place, delivery: &str, said: Said) -> (Answer, &'static str, usize) {
        let pushed = match said {
            Said::Unreadable => {
                let answer = text(StatusCode::BAD_REQUEST, "the body is not a JSON object");
                return (answer, "refused", 0);
            }
            Said::Other => return (text(StatusCode::OK, "ignored"), "ignored", 0),
            Said::Push(repositories) => repositories,
        };
        {
            let mut traffic = guard(&self.traffic);
            let now = Instant::now();
            if !delivery.is_empty() && !traffic.is_new(&place.receiver, delivery, now) {
                return (text(StatusCode::OK, "known"), "ignored", 0);
            }
            if !traffic.admits(&place.receiver, now) {
                let answer = text(StatusCode::TOO_MANY_REQUESTS, "too many hooks");
                return (later(answer, 1), "limited", 0);
            }
            let receivers = guard(&self.receivers);
            traffic.retain(|name| receivers.has(name));
        }
        let all = self.groups.all();
        let hinted = once(matching(&all, place, &pushed));
        for group in &hinted {
            self.groups.look(group);
        }
        let outcome = if hinted.is_empty() {
            "unmatched"
        } else {
            "accepted"
        };
        // The same words whether there is such a group or not.
        (
            text(StatusCode::ACCEPTED, "accepted"),
            outcome,
            hinted.len(),
        )
    }
}

fn matching<'a>(
    all: &'a [(GroupKey, String)],
    place: &'a Place,
    pushed: &'a [Repository],
) -> impl Iterator<Item = GroupKey> + 'a {
    all.iter()
        .filter(move |(key, address)| match &place.group {
            Some(group) => key == group,
            None => Repository::parse(address).is_some_and(|own| pushed.contains(&own)),
        })
        .map(|(key, _)| key.clone())
}

/// Why a hook is not heeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no such receiver.
    Unknown,
    /// It has no secret.
    NotReady,
    /// The signature.
    Unproved,
    /// Not JSON by its own word.
    MediaType,
}

impl Refusal {
    fn answer(self) -> Answer {
        match self {
            Self::Unknown => text(StatusCode::NOT_FOUND, "not found"),
            Self::NotReady => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the receiver has no secret",
            ),
            Self::Unproved => text(StatusCode::UNAUTHORIZED, "the signature is not accepted"),
            Self::MediaType => text(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "set the content type of the webhook to application/json",
            ),
        }
    }
}

/// What is done before a body is read as JSON, and then that. Pure.
pub(super) fn judge(
    receiver: Option<&Receiver>,
    headers: &HeaderMap,
    body: &[u8],
    now: u64,
) -> Result<Said, Refusal> {
    let Some(receiver) = receiver else {
        // As long as for a receiver that is there.
        let _ = Sender::GitHub.verify(headers, body, &["no-secret".into()], now);
        return Err(Refusal::Unknown);
    };
    if receiver.secrets.is_empty() {
        return Err(Refusal::NotReady);
    }
    let proof = receiver
        .sender
        .verify(headers, body, &receiver.secrets, now);
    if let Err(doubt) = proof {
        tracing::debug!(doubt = doubt.as_str(), "a hook is not believed");
        return Err(Refusal::Unproved);
    }
    let kind = single(headers, header::CONTENT_TYPE.as_str()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let no_body = receiver.sender == Sender::Generic && body.is_empty();
    if !no_body && !kind.eq_ignore_ascii_case("application/json") {
        return Err(Refusal::MediaType);
    }
    Ok(payload::read(receiver.sender, headers, body))
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
