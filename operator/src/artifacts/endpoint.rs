//! The HTTP of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body as _, Incoming};
use ramen_group::{LayerRef, Report};
use ramen_redact::bearer_token;
use ramen_source::layer::{self, LayerError};
use ramen_source::store::StoreError;
use ramen_source::{Digest, Kind, Store};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::place::{Place, What};
use super::registry::Grant;
use super::sending::Sending;
use super::token::ONE_TIME;
use super::{Artifacts, report, scope};
use crate::inbound::{self, Answer, Bounds, later, single, text};
use crate::ports::Leads;

const BOUNDS: Bounds = Bounds {
    connections: 256,
    head: Duration::from_secs(10),
    connection: Duration::from_mins(20),
    head_bytes: 16 * 1024,
};
/// Bounds of what goes through.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Layers that are read or taken at once.
    pub(super) transfers: usize,
    /// Bytes of a layer of requirements.
    pub(super) deps: u64,
}

impl Limits {
    pub(super) const DEFAULT: Self = Self {
        transfers: 32,
        deps: 4 << 30,
    };
}

/// Of a lock.
const MAX_LOCK: usize = 8 << 20;
/// Between two pieces of a layer.
const PIECE_TIME: Duration = Duration::from_secs(30);
/// For a lock or a report.
const SMALL_TIME: Duration = Duration::from_mins(1);
const DIGEST_HEADER: &str = "x-ramen-digest";
/// Where archives are while they come in.
const INCOMING: &str = "incoming";
/// After this time an archive is not coming in any more.
const STALE: Duration = Duration::from_hours(24);

pub(super) async fn serve(
    artifacts: Artifacts,
    listener: TcpListener,
    leads: Leads,
    limits: Limits,
    stop: CancellationToken,
) {
    let endpoint = Endpoint {
        artifacts,
        leads,
        transfers: Arc::new(Semaphore::new(limits.transfers)),
        limits,
    };
    let handler = move |request| {
        let endpoint = endpoint.clone();
        async move { endpoint.answer(request).await }
    };
    inbound::serve(listener, BOUNDS, stop, handler).await;
}

/// Removes what a crash left of archives that were coming in.
pub(super) fn sweep(store: &Store) {
    let Ok(entries) = std::fs::read_dir(incoming(store)) else {
        return;
    };
    for entry in entries.flatten() {
        let modified = entry.metadata().and_then(|meta| meta.modified());
        let age = modified.ok().and_then(|time| time.elapsed().ok());
        if age.is_some_and(|age| age > STALE)
            && let Err(error) = std::fs::remove_file(entry.path())
        {
            tracing::warn!(%error, "a half archive was not removed");
        }
    }
}

fn incoming(store: &Store) -> PathBuf {
    store.root().join(INCOMING)
}

#[derive(Debug, Clone)]
struct Endpoint {
    artifacts: Artifacts,
    leads: Leads,
    transfers: Arc<Semaphore>,
    limits: Limits,
}

impl Endpoint {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let method = request.method().clone();
        let Some(place) = Place::parse(request.uri().path()) else {
            return missing();
        };
        let token = token_of(&request);
        let began = std::time::Instant::now();
        let answer = match (&method, &place) {
            (&Method::GET, Place::Layer(kind, digest)) => {
                self.layer(*kind, *digest, token.as_deref()).await
            }
            // Which deploys are under way, only the replica knows that writes.
            (&Method::GET | &Method::PUT, Place::Deploy(..)) if !self.leads.now() => elsewhere(),
            (&Method::GET | &Method::PUT, Place::Deploy(deploy, what)) => {
                let registry = &self.artifacts.registry;
                let token = token.unwrap_or_default();
                match registry.open(deploy, &token) {
                    // The answer to the first one was lost on its way.
                    None if *what == What::Report && registry.is_over(deploy, &token) => nothing(),
                    None => refused(),
                    Some(grant) if method == Method::GET => self.give(&grant, what).await,
                    Some(grant) => self.take(&grant, what, request).await,
                }
            }
            _ => missing(),
        };
        tracing::debug!(
            %method,
            place = ?place,
            status = answer.status().as_u16(),
            elapsed_ms = began.elapsed().as_millis(),
            "answered"
        );
        answer
    }

    async fn layer(&self, kind: Kind, digest: Digest, token: Option<&[u8]>) -> Answer {
        let token = token.unwrap_or_default();
        let reader = self.artifacts.key.group_of(token);
        if reader.is_none() {
            match self.artifacts.registry.any(token) {
                None if !self.leads.now() && token.starts_with(ONE_TIME.as_bytes()) => {
                    return elsewhere();
                }
                None => return refused(),
                Some(grant) if !grant.reads(kind, digest) => return missing(),
                Some(_) => {}
            }
        }
        let Some(place) = self.place() else {
            return busy();
        };
        let store = self.artifacts.store.clone();
        let reference = LayerRef {
            key: digest.hex(),
            digest: digest.to_string(),
            size: 0,
        };
        let file = match store.open_layer(&reference).await {
            Ok(file) => tokio::fs::File::from_std(file),
            Err(StoreError::Missing { .. }) => {
                if !self.leads.now() {
                    // The one that writes has it made again when it is asked.
                    return elsewhere();
                }
                if let Some(group) = reader {
                    self.artifacts.miss(&group);
                }
                return missing();
            }
            Err(error) => return failed(&error),
        };
        let size = match file.metadata().await {
            Ok(meta) => meta.len(),
            Err(error) => return failed(&error),
        };
        let sending = Sending::new(file, size, digest, store, place);
        let pieces = futures::stream::try_unfold(sending, Sending::next);
        let mut answer = Answer::new(UnsyncBoxBody::new(StreamBody::new(pieces)));
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(size));
        let kind = HeaderValue::from_static("application/zstd");
        headers.insert(header::CONTENT_TYPE, kind);
        // A part of a layer could not be checked against its digest.
        let whole = HeaderValue::from_static("none");
        headers.insert(header::ACCEPT_RANGES, whole);
        answer
    }

    async fn give(&self, grant: &Grant, what: &What) -> Answer {
        let store = &self.artifacts.store;
        match what {
            What::Lock(inputs) => match store.memo(&lock_key(grant, inputs)).await {
                Ok(Some(lock)) => {
                    let mut answer = Answer::new(inbound::full(lock));
                    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
                    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
                    answer
                }
                Ok(None) => missing(),
                Err(error) => failed(&error),
            },
            What::Deps(key) => match store.find(Kind::Deps, &deps_key(grant, key)).await {
                Ok(Some(layer)) => {
                    grant.learn(&layer);
                    inbound::json(StatusCode::OK, &layer)
                }
                Ok(None) => missing(),
                Err(error) => failed(&error),
            },
            What::Report => missing(),
        }
    }

    async fn take(&self, grant: &Arc<Grant>, what: &What, request: Request<Incoming>) -> Answer {
        match what {
            What::Lock(inputs) => self.take_lock(grant, inputs, request).await,
            What::Deps(key) => self.take_deps(grant, key, request).await,
            What::Report => self.take_report(grant, request).await,
        }
    }

    async fn take_lock(&self, grant: &Grant, inputs: &str, request: Request<Incoming>) -> Answer {
        if !grant.may_keep_lock() {
            return text(StatusCode::FORBIDDEN, "too many locks for one deploy");
        }
        let body = match inbound::whole(request.into_body(), MAX_LOCK, SMALL_TIME).await {
            Ok(body) => body,
            Err(fault) => return fault.answer(),
        };
        let Ok(lock) = std::str::from_utf8(&body) else {
            return text(StatusCode::BAD_REQUEST, "not UTF-8");
        };
        let key = lock_key(grant, inputs);
        match self.artifacts.store.put_memo(&key, lock).await {
            Ok(()) => nothing(),
            Err(error) => failed(&error),
        }
    }

    async fn take_deps(&self, grant: &Arc<Grant>, key: &str, request: Request<Incoming>) -> Answer {
        let digest = single(request.headers(), DIGEST_HEADER).and_then(|text| text.parse().ok());
        let Some(digest) = digest else {
            return text(StatusCode::BAD_REQUEST, "x-ramen-digest is not a digest");
        };
        let mut body = request.into_body();
        if body.size_hint().lower() > self.limits.deps {
            return text(StatusCode::PAYLOAD_TOO_LARGE, "the layer is too large");
        }
        let receiving = match grant.begin_layer() {
            Ok(receiving) => receiving,
            Err(fault) => return later(text(StatusCode::CONFLICT, fault), 1),
        };
        let Some(_place) = self.place() else {
            return busy();
        };
        let store = &self.artifacts.store;
        let archive = match receive(store, &mut body, digest, self.limits.deps).await {
            Ok(archive) => archive,
            Err(answer) => return answer,
        };
        match store.put(Kind::Deps, &deps_key(grant, key), &archive).await {
            Ok(layer) => {
                tracing::info!(deploy = %grant.deploy, bytes = layer.size, "took a deps layer");
                receiving.done(&layer);
                inbound::json(StatusCode::OK, &layer)
            }
            Err(error) => failed(&error),
        }
    }

    async fn take_report(&self, grant: &Grant, request: Request<Incoming>) -> Answer {
        let body = request.into_body();
        let body = match inbound::whole(body, Report::MAX_BYTES, SMALL_TIME).await {
            Ok(body) => body,
            Err(fault) => return fault.answer(),
        };
        let report = match report::read(&body, &grant.code, &grant.deps()) {
            Ok(report) => report,
            Err(fault) => {
                tracing::warn!(deploy = %grant.deploy, fault, "a report was refused");
                return text(StatusCode::UNPROCESSABLE_ENTITY, fault);
            }
        };
        let outcome = report.outcome;
        match self.artifacts.deliver(grant, report).await {
            Ok(()) => {
                tracing::info!(deploy = %grant.deploy, ?outcome, "took a report");
                nothing()
            }
            Err(error) => failed(&error),
        }
    }

    fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.transfers).try_acquire_owned().ok()
    }
}

async fn receive(
    store: &Store,
    body: &mut Incoming,
    digest: Digest,
    limit: u64,
) -> Result<layer::Layer, Answer> {
    let taken = async {
        let mut archive = layer::Incoming::new(&incoming(store), limit)?;
        loop {
            match inbound::piece(body, PIECE_TIME).await {
                Ok(Some(piece)) => archive.write(&piece).await?,
                Ok(None) => return Ok(Ok(archive.finish(digest).await?)),
                Err(fault) => return Ok(Err(fault.answer())),
            }
        }
    };
    match taken.await {
        Ok(taken) => taken,
        Err(LayerError::TooLarge { .. }) => Err(text(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the layer is too large",
        )),
        // It may have been damaged on its way: worth another try.
        Err(LayerError::DigestMismatch { .. }) => Err(text(
            StatusCode::CONFLICT,
            "the bytes are not those of x-ramen-digest",
        )),
        Err(LayerError::DiskFull { .. }) => {
            tracing::error!("no room for a layer on the disk of the store");
            Err(full())
        }
        Err(error) => Err(failed(&error)),
    }
}

fn token_of(request: &Request<Incoming>) -> Option<Vec<u8>> {
    let header = single(request.headers(), header::AUTHORIZATION.as_str())?;
    (header.len() <= 1024)
        .then(|| bearer_token(header.as_bytes()).map(<[u8]>::to_vec))
        .flatten()
}

fn lock_key(grant: &Grant, inputs: &str) -> String {
    format!("lock-{}-{inputs}", scope(&grant.deploy.group))
}

fn deps_key(grant: &Grant, key: &str) -> String {
    format!("{}-{key}", scope(&grant.deploy.group))
}

fn nothing() -> Answer {
    let mut answer = Answer::new(inbound::full(Bytes::new()));
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}

fn missing() -> Answer {
    text(StatusCode::NOT_FOUND, "not found")
}

fn refused() -> Answer {
    text(StatusCode::UNAUTHORIZED, "the token is not accepted")
}

fn busy() -> Answer {
    let answer = text(StatusCode::SERVICE_UNAVAILABLE, "too many transfers");
    later(answer, 1)
}

fn elsewhere() -> Answer {
    let answer = text(
        StatusCode::SERVICE_UNAVAILABLE,
        "another replica answers that; try again",
    );
    later(answer, 1)
}

fn full() -> Answer {
    text(
        StatusCode::INSUFFICIENT_STORAGE,
        "no room on the disk of the store",
    )
}

fn failed(error: &(dyn std::error::Error + 'static)) -> Answer {
    tracing::error!(error, "the store failed");
    match error.downcast_ref::<StoreError>() {
        Some(StoreError::DiskFull { .. }) => full(),
        Some(StoreError::InvalidKey { .. }) => text(StatusCode::BAD_REQUEST, "not a key"),
        _ => text(StatusCode::INTERNAL_SERVER_ERROR, "the store failed"),
    }
}
