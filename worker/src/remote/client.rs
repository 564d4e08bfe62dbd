//! What is asked of the artifact endpoint, with retries.
//!
//! ```text
//! GET /v1/layers/{code|deps}/{digest}                the archive
//! below the address of one deploy (`--report-url` without `/report`):
//! GET, PUT locks/{inputs}                            a lock that these inputs led to before
//! GET      layers/deps/{key}                         {"key","digest","size"}
//! PUT      layers/deps/{key}  + x-ramen-digest       the archive; answers as GET does
//! PUT      report                                    report.json; closes the deploy
//! ```

use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, header};
use http_body_util::{BodyExt as _, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use ramen_group::{LayerRef, Report};
use ramen_source::cache::CacheError;
use ramen_source::layer::{Incoming, Layer, LayerError};
use ramen_source::store::{StoreError, digest_of};
use ramen_source::{Digest, Kind};
use tokio::io::AsyncReadExt as _;
use url::Url;

use super::http::{Body, Http, RemoteError};

/// Metadata with the digest of a layer that is sent.
const DIGEST_HEADER: &str = "x-ramen-digest";
/// Of an archive of code, whatever is announced.
const MAX_CODE: u64 = 512 << 20;
/// Of an archive of requirements.
const MAX_DEPS: u64 = 16 << 30;
/// Of a lock.
const MAX_LOCK: usize = 8 << 20;
/// Of a reference to a layer.
const MAX_REFERENCE: usize = 4096;
/// Pieces in which an archive is sent.
const PIECE: usize = 256 * 1024;
/// The longest pause between two tries.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// How often a request is tried.
#[derive(Debug, Clone, Copy)]
struct Patience {
    tries: u32,
    first: Duration,
    /// A token that is refused may be accepted in a moment: the operator has just started.
    refused: bool,
}

impl Patience {
    /// A worker has a revision that serves, or is asked again by whoever wants the new one.
    const SHORT: Self = Self {
        tries: 5,
        first: Duration::from_millis(200),
        refused: false,
    };
    /// A deploy job would have to be run again: about a minute.
    const LONG: Self = Self {
        tries: 16,
        first: Duration::from_millis(250),
        refused: true,
    };

    async fn each<T, F>(self, what: &str, mut work: impl FnMut() -> F) -> Result<T, RemoteError>
    where
        F: Future<Output = Result<T, RemoteError>>,
    {
        let mut pause = self.first;
        for _ in 1..self.tries {
            match work().await {
                Err(error)
                    if error.may_pass()
                        || (self.refused && matches!(error, RemoteError::Refused { .. })) =>
                {
                    let error = &error as &dyn std::error::Error;
                    tracing::debug!(what, error, "the artifact endpoint is asked again");
                }
                done => return done,
            }
            tokio::time::sleep(pause.mul_f64(jitter())).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
        work().await
    }
}

/// 0.5 to 1: many workers must not ask in step.
fn jitter() -> f64 {
    let random = std::hash::RandomState::new().build_hasher().finish();
    let part = u32::try_from(random >> 32).unwrap_or(u32::MAX);
    0.5 + f64::from(part) / f64::from(u32::MAX) / 2.0
}

/// The endpoint as a source of layers.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    http: Arc<Http>,
    patience: Patience,
}

impl Endpoint {
    pub(crate) fn new(url: Url, token_file: PathBuf) -> Self {
        Self {
            http: Arc::new(Http::new(url, token_file)),
            patience: Patience::SHORT,
        }
    }

    pub(crate) fn patient(self) -> Self {
        Self {
            patience: Patience::LONG,
            ..self
        }
    }

    /// The archive of a layer, checked against its digest, as a file in `scratch`.
    pub(crate) async fn layer(
        &self,
        kind: Kind,
        layer: &LayerRef,
        scratch: &Path,
    ) -> Result<Layer, CacheError> {
        let digest = digest_of(layer)?;
        let path = format!("/v1/layers/{kind}/{digest}");
        let limit = match (layer.size, kind) {
            (0, Kind::Code) => MAX_CODE,
            (0, Kind::Deps) => MAX_DEPS,
            (size, _) => size,
        };
        let fetched = self.patience.each("layer", || async {
            let mut answer = self.http.send(Method::GET, &path, &[], empty()).await?;
            if answer.length().is_some_and(|length| length > limit) {
                return Err(RemoteError::Layer(LayerError::TooLarge {
                    path: layer.key.clone(),
                    limit,
                    unit: "bytes",
                }));
            }
            let mut incoming = Incoming::new(scratch, limit)?;
            while let Some(piece) = answer.piece().await? {
                incoming.write(&piece).await?;
            }
            Ok(incoming.finish(digest).await?)
        });
        fetched
            .await
            .map_err(|error| failed(error, kind, layer, digest))
    }
}

fn failed(error: RemoteError, kind: Kind, layer: &LayerRef, digest: Digest) -> CacheError {
    let key = layer.key.clone();
    match error {
        RemoteError::Missing { .. } => StoreError::Missing { key, digest }.into(),
        RemoteError::Layer(source) if source.is_corrupt() => CacheError::Corrupt {
            key,
            digest,
            source: source.into(),
        },
        RemoteError::Layer(source) => CacheError::Unpack {
            key,
            source: source.into(),
        },
        error => StoreError::Read {
            what: format!("the {kind} layer {key}"),
            source: error.into(),
        }
        .into(),
    }
}

/// One deploy, as the endpoint knows it.
#[derive(Debug, Clone)]
pub(crate) struct DeployRun {
    http: Arc<Http>,
    patience: Patience,
}

impl DeployRun {
    /// From the address of the report.
    pub(crate) fn new(report: &str, token_file: PathBuf) -> Result<Self, String> {
        let mut url = super::address(report)?;
        let base = url
            .path()
            .strip_suffix("/report")
            .ok_or("the address of the report must end with /report")?
            .to_owned();
        url.set_path(&base);
        Ok(Self {
            http: Arc::new(Http::new(url, token_file)),
            patience: Patience::LONG,
        })
    }

    /// The lock that these inputs led to before.
    pub(crate) async fn lock(&self, inputs: &str) -> Result<Option<String>, RemoteError> {
        let path = format!("/locks/{inputs}");
        let got = self.patience.each("lock", || async {
            let answer = self.http.send(Method::GET, &path, &[], empty()).await?;
            answer.bytes(MAX_LOCK).await
        });
        match got.await {
            Ok(bytes) => Ok(String::from_utf8(bytes).ok()),
            Err(RemoteError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps a lock for later deploys of this group.
    pub(crate) async fn keep_lock(&self, inputs: &str, lock: &str) -> Result<(), RemoteError> {
        let path = format!("/locks/{inputs}");
        let text = Bytes::copy_from_slice(lock.as_bytes());
        let put = self.patience.each("lock", || async {
            let kind = [(header::CONTENT_TYPE.as_str(), "text/plain".to_owned())];
            let body = whole(text.clone());
            self.http.send(Method::PUT, &path, &kind, body).await?;
            Ok(())
        });
        put.await
    }

    /// The layer of requirements under a key.
    pub(crate) async fn deps(&self, key: &str) -> Result<Option<LayerRef>, RemoteError> {
        let path = format!("/layers/deps/{key}");
        let got = self.patience.each("deps", || async {
            let answer = self.http.send(Method::GET, &path, &[], empty()).await?;
            self.reference(&answer.bytes(MAX_REFERENCE).await?)
        });
        match got.await {
            Ok(layer) => Ok(Some(layer)),
            Err(RemoteError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hands over a layer of requirements.
    pub(crate) async fn put_deps(&self, key: &str, layer: &Layer) -> Result<LayerRef, RemoteError> {
        let path = format!("/layers/deps/{key}");
        let begin = Instant::now();
        let put = self.patience.each("deps", || async {
            let headers = [
                (header::CONTENT_TYPE.as_str(), "application/zstd".to_owned()),
                (header::CONTENT_LENGTH.as_str(), layer.size.to_string()),
                (DIGEST_HEADER, layer.digest.to_string()),
            ];
            let body = file(layer.path()).await?;
            let answer = self.http.send(Method::PUT, &path, &headers, body).await?;
            self.reference(&answer.bytes(MAX_REFERENCE).await?)
        });
        let reference = put.await?;
        let elapsed_ms = begin.elapsed().as_millis();
        tracing::info!(bytes = layer.size, elapsed_ms, "handed over a layer");
        Ok(reference)
    }

    /// Hands over the report, cut to what is taken. Nothing may follow it.
    pub(crate) async fn report(&self, report: &Report) -> Result<(), RemoteError> {
        let json = Bytes::from(report.to_fitting_json());
        let put = self.patience.each("report", || async {
            let kind = [(header::CONTENT_TYPE.as_str(), "application/json".to_owned())];
            let body = whole(json.clone());
            self.http.send(Method::PUT, "/report", &kind, body).await?;
            Ok(())
        });
        put.await
    }

    fn reference(&self, json: &[u8]) -> Result<LayerRef, RemoteError> {
        serde_json::from_slice(json).map_err(|error| {
            self.http
                .broken(format!("not a layer's reference: {error}"))
        })
    }
}

fn empty() -> Body {
    UnsyncBoxBody::new(Empty::new().map_err(|never| match never {}))
}

fn whole(bytes: Bytes) -> Body {
    UnsyncBoxBody::new(Full::new(bytes).map_err(|never| match never {}))
}

async fn file(path: &Path) -> Result<Body, RemoteError> {
    let opened = tokio::fs::File::open(path).await;
    let opened = opened.map_err(|source| LayerError::Read {
        path: path.to_owned(),
        source,
    })?;
    let pieces = futures::stream::try_unfold(opened, async |mut file| {
        let mut piece = Vec::with_capacity(PIECE);
        let n = (&mut file)
            .take(PIECE as u64)
            .read_to_end(&mut piece)
            .await?;
        Ok::<_, io::Error>((n > 0).then(|| (Frame::data(Bytes::from(piece)), file)))
    });
    Ok(UnsyncBoxBody::new(StreamBody::new(pieces)))
}
