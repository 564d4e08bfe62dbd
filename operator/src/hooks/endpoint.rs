//! The HTTP of it, in the order of the module above.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, Method, Request, StatusCode, header};
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::coalesce::{Traffic, WINDOW};
use super::payload::{self, Pushed, Said};
use super::receivers::{Receiver, Receivers};
use super::refs::Follows;
use super::repository::Repository;
use super::sender::Sender;
use super::{Groups, Limits};
use crate::group::GroupKey;
use crate::inbound::{self, Answer, Bounds, later, single, text};

const BOUNDS: Bounds = Bounds {
    connections: 128,
    head: Duration::from_secs(10),
    connection: Duration::from_mins(1),
    head_bytes: 32 * 1024,
};
/// How old the list of groups may be that hooks are matched with: a group that is younger looks anyway.
const FRESH: Duration = Duration::from_secs(1);

pub(super) async fn serve(
    listener: TcpListener,
    receivers: Receivers,
    limits: Limits,
    groups: Arc<dyn Groups>,
    stop: CancellationToken,
) {
    let port = Arc::new(Port {
        receivers: Mutex::new(receivers),
        limits,
        traffic: Mutex::default(),
        known: Mutex::default(),
        late: Notify::new(),
        groups,
    });
    let handler = {
        let port = Arc::clone(&port);
        move |request| {
            let port = Arc::clone(&port);
            async move { port.answer(request).await }
        }
    };
    tokio::select! {
        () = inbound::serve(listener, BOUNDS, stop, handler) => {}
        () = port.look_late() => {}
    }
}

struct Port {
    receivers: Mutex<Receivers>,
    limits: Limits,
    traffic: Mutex<Traffic>,
    known: Mutex<Option<(Instant, Arc<[Known]>)>>,
    /// Hints wait for the end of a window.
    late: Notify,
    groups: Arc<dyn Groups>,
}

/// A group, as hooks are matched with it.
struct Known {
    key: GroupKey,
    repository: Option<Repository>,
    follows: Follows,
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

/// What became of a hook, for metrics and the log.
struct Judged {
    answer: Answer,
    outcome: &'static str,
    /// Groups that it is about.
    matched: usize,
}

impl Judged {
    fn new(status: StatusCode, line: &str, outcome: &'static str) -> Self {
        Self {
            answer: text(status, line),
            outcome,
            matched: 0,
        }
    }
}

impl Port {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let Some(place) = Place::parse(request.uri().path()) else {
            return text(StatusCode::NOT_FOUND, "not found");
        };
        if request.method() != Method::POST {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "hooks are sent with POST");
            let allowed = http::HeaderValue::from_static("POST");
            answer.headers_mut().insert(header::ALLOW, allowed);
            return answer;
        }
        let (head, body) = request.into_parts();
        let body = inbound::whole(body, self.limits.body, self.limits.body_time).await;
        let receiver = guard(&self.receivers).get(&place.receiver, Instant::now());
        let sender = receiver.as_ref().map(|receiver| receiver.sender);
        let delivery = sender
            .and_then(|sender| sender.delivery(&head.headers))
            .unwrap_or_default();
        let judged = match &body {
            Err(fault) => Judged {
                answer: fault.answer(),
                outcome: "refused",
                matched: 0,
            },
            Ok(body) => match judge(receiver.as_ref(), &head.headers, body, unix_now()) {
                Err(refusal) => refusal.judged(),
                Ok(said) => self.heed(&place, delivery, said),
            },
        };
        // A name that nobody made is the sender's text: it is no label, and in no log.
        let name = receiver.as_ref().map_or("", |_| place.receiver.as_str());
        self.groups.counted(name, judged.outcome);
        if let Some(sender) = sender {
            tracing::info!(
                receiver = place.receiver,
                sender = sender.as_str(),
                delivery,
                outcome = judged.outcome,
                matched = judged.matched,
                status = judged.answer.status().as_u16(),
                "a hook came in"
            );
        }
        judged.answer
    }

    /// A hook that is believed.
    fn heed(&self, place: &Place, delivery: &str, said: Said) -> Judged {
        let pushed = match said {
            Said::Unreadable(fault) => {
                return Judged::new(StatusCode::BAD_REQUEST, fault, "refused");
            }
            Said::Other => return Judged::new(StatusCode::OK, "ignored", "ignored"),
            Said::Push(pushed) => pushed,
        };
        if place.group.is_none() && pushed.repositories.is_empty() {
            let fault = "the body names no repository, and the path no group";
            return Judged::new(StatusCode::BAD_REQUEST, fault, "refused");
        }
        let now = Instant::now();
        let known = self.known(now);
        let matched: Vec<&GroupKey> = known
            .iter()
            .filter(|known| known.is_meant(place, &pushed))
            .map(|known| &known.key)
            .collect();
        let (admitted, hinted) = {
            let mut traffic = guard(&self.traffic);
            if !delivery.is_empty() && !traffic.is_new(&place.receiver, delivery, now) {
                return Judged::new(StatusCode::OK, "known", "ignored");
            }
            let receivers = guard(&self.receivers);
            traffic.retain(|name| receivers.has(name));
            let admitted = traffic.admits(&place.receiver, now);
            let hinted: Vec<&GroupKey> = matched
                .iter()
                .copied()
                .filter(|group| traffic.hint(group, &place.receiver, admitted, now))
                .collect();
            (admitted, hinted)
        };
        for group in &hinted {
            self.groups.look(group, &place.receiver);
        }
        if hinted.len() < matched.len() {
            self.late.notify_one();
        }
        let mut judged = if admitted {
            // The same words whether there is such a group or not.
            let outcome = if matched.is_empty() {
                "unmatched"
            } else {
                "accepted"
            };
            Judged::new(StatusCode::ACCEPTED, "accepted", outcome)
        } else {
            let mut limited =
                Judged::new(StatusCode::TOO_MANY_REQUESTS, "too many hooks", "limited");
            limited.answer = later(limited.answer, 1);
            limited
        };
        judged.matched = matched.len();
        judged
    }

    fn known(&self, now: Instant) -> Arc<[Known]> {
        let mut cached = guard(&self.known);
        if let Some((at, known)) = &*cached
            && now.saturating_duration_since(*at) < FRESH
        {
            return Arc::clone(known);
        }
        let all = self.groups.all().into_iter();
        let known: Arc<[Known]> = all
            .map(|group| Known {
                repository: Repository::parse(&group.address),
                key: group.key,
                follows: group.follows,
            })
            .collect();
        *cached = Some((now, Arc::clone(&known)));
        known
    }

    /// Gives the hints that had to wait, for ever.
    async fn look_late(&self) {
        loop {
            self.late.notified().await;
            tokio::time::sleep(WINDOW).await;
            let (due, more) = {
                let mut traffic = guard(&self.traffic);
                (traffic.take_late(Instant::now()), traffic.has_late())
            };
            for (group, receiver) in &due {
                self.groups.look(group, receiver);
            }
            if more {
                self.late.notify_one();
            }
        }
    }
}

impl Known {
    /// A path that names a group means it whatever the body says.
    fn is_meant(&self, place: &Place, pushed: &Pushed) -> bool {
        if let Some(group) = &place.group {
            return self.key == *group;
        }
        let repository = self.repository.as_ref();
        repository.is_some_and(|own| pushed.repositories.contains(own))
            && self.follows.is_moved_by(&pushed.refs)
    }
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
    fn judged(self) -> Judged {
        let (status, line) = match self {
            Self::Unknown => (StatusCode::NOT_FOUND, "not found"),
            Self::NotReady => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the receiver has no secret",
            ),
            Self::Unproved => (StatusCode::UNAUTHORIZED, "the signature is not accepted"),
            Self::MediaType => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "set the content type of the webhook to application/json",
            ),
        };
        Judged::new(status, line, "refused")
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

fn unix_now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
