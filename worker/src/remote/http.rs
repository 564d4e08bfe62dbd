//! One HTTP request to the artifact endpoint. No pool: a layer is asked for once per revision.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use ramen_source::layer::LayerError;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use url::{Host, Url};

/// For a connection, with TLS.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Between two pieces of an answer.
const PIECE_TIME: Duration = Duration::from_secs(30);
/// From a request to the head of its answer; the endpoint stores what it was sent in between.
const ANSWER_TIME: Duration = Duration::from_mins(2);
/// Of the text with which the endpoint says no.
const MAX_TEXT: usize = 1024;
/// Largest token file.
const MAX_TOKEN: u64 = 4096;

/// The body of a request.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Why the endpoint gave or took nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    /// The token cannot be read.
    #[error("cannot read the token for the artifact endpoint from {path}")]
    Token {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No connection.
    #[error("cannot connect to the artifact endpoint {endpoint}")]
    Connect {
        /// Where.
        endpoint: String,
        /// Why.
        source: io::Error,
    },
    /// The connection broke, or the endpoint went silent.
    #[error("the artifact endpoint {endpoint} broke off: {message}")]
    Broken {
        /// Where.
        endpoint: String,
        /// How.
        message: String,
    },
    /// The token does not open it.
    #[error(
        "the artifact endpoint {endpoint} refuses the token (HTTP {status}); the operator gives it out anew"
    )]
    Refused {
        /// Where.
        endpoint: String,
        /// 401 or 403.
        status: u16,
    },
    /// It is not there.
    #[error("the artifact endpoint {endpoint} does not have it")]
    Missing {
        /// Where.
        endpoint: String,
    },
    /// Another answer.
    #[error("the artifact endpoint {endpoint} answers HTTP {status}: {text}")]
    Status {
        /// Where.
        endpoint: String,
        /// The status.
        status: u16,
        /// What it says.
        text: String,
    },
    /// The archive cannot be kept, or is not what was asked for.
    #[error(transparent)]
    Layer(#[from] LayerError),
}

impl RemoteError {
    /// Whether the same request may succeed a little later.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Broken { .. } => true,
            Self::Status { status, .. } => *status >= 500 || matches!(status, 408 | 409 | 429),
            // What was received was damaged on its way.
            Self::Layer(error) => matches!(error, LayerError::DigestMismatch { .. }),
            Self::Token { .. } | Self::Refused { .. } | Self::Missing { .. } => false,
        }
    }
}

/// One endpoint.
#[derive(Debug)]
pub(crate) struct Http {
    base: Url,
    token_file: PathBuf,
    tls: OnceLock<Arc<ClientConfig>>,
}

impl Http {
    pub(crate) fn new(base: Url, token_file: PathBuf) -> Self {
        Self {
            base,
            token_file,
            tls: OnceLock::new(),
        }
    }

    /// For messages: the address has no credentials.
    pub(crate) fn endpoint(&self) -> String {
        self.base.to_string()
    }

    pub(crate) fn broken(&self, message: impl Into<String>) -> RemoteError {
        RemoteError::Broken {
            endpoint: self.endpoint(),
            message: message.into(),
        }
    }

    /// Sends a request to a path below the base; gives an answer of 2xx.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, String)],
        body: Body,
    ) -> Result<Answer<'_>, RemoteError> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base.path().trim_end_matches('/')))
            .header(header::HOST, self.authority())
            .header(header::AUTHORIZATION, self.authorization()?)
            .header(header::CONNECTION, "close");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request
            .body(body)
            .map_err(|error| self.broken(error.to_string()))?;
        let sent = tokio::time::timeout(ANSWER_TIME, self.exchange(request)).await;
        let response = sent.map_err(|_| self.broken("no answer in time"))??;
        self.judge(response).await
    }

    fn authority(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        match self.base.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }

    fn authorization(&self) -> Result<HeaderValue, RemoteError> {
        let failed = |source| RemoteError::Token {
            path: self.token_file.clone(),
            source,
        };
        let token = read_token(&self.token_file).map_err(failed)?;
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            // Its own error might show the token.
            .map_err(|_| failed(io::Error::other("it cannot be sent in a header")))?;
        value.set_sensitive(true);
        Ok(value)
    }

    async fn exchange(&self, request: Request<Body>) -> Result<Response<Incoming>, RemoteError> {
        let failed = |source| RemoteError::Connect {
            endpoint: self.endpoint(),
            source,
        };
        let late = |_: tokio::time::error::Elapsed| failed(io::ErrorKind::TimedOut.into());
        let port = self.base.port_or_known_default().unwrap_or(80);
        let name = match self.base.host() {
            Some(Host::Domain(name)) => name.to_owned(),
            Some(Host::Ipv4(ip)) => ip.to_string(),
            Some(Host::Ipv6(ip)) => ip.to_string(),
            None => return Err(failed(io::Error::other("the address has no host"))),
        };
        let connect = TcpStream::connect((name.as_str(), port));
        let connected = tokio::time::timeout(CONNECT_TIME, connect).await;
        let stream = connected.map_err(late)?.map_err(failed)?;
        if self.base.scheme() != "https" {
            return self.over(stream, request).await;
        }
        let server = ServerName::try_from(name).map_err(|error| failed(io::Error::other(error)))?;
        let connector = TlsConnector::from(self.tls());
        let connected = tokio::time::timeout(CONNECT_TIME, connector.connect(server, stream)).await;
        let stream = connected.map_err(late)?.map_err(failed)?;
        self.over(stream, request).await
    }

    async fn over<S>(
        &self,
        stream: S,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, RemoteError>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        let broken = |error: hyper::Error| self.broken(ramen_redact::chain(&error));
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake::<_, Body>(TokioIo::new(stream))
                .await
                .map_err(broken)?;
        // Ends with the answer's body: the connection is used once.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        sender.send_request(request).await.map_err(broken)
    }

    fn tls(&self) -> Arc<ClientConfig> {
        Arc::clone(self.tls.get_or_init(|| {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            let config = ClientConfig::builder_with_provider(Arc::new(
                tokio_rustls::rustls::crypto::ring::default_provider(),
            ))
            .with_safe_default_protocol_versions()
            .expect("ring has the default versions of TLS")
            .with_root_certificates(roots)
            .with_no_client_auth();
            Arc::new(config)
        }))
    }

    async fn judge(&self, response: Response<Incoming>) -> Result<Answer<'_>, RemoteError> {
        let status = response.status();
        let endpoint = self.endpoint();
        if status.is_success() {
            return Ok(Answer {
                http: self,
                response,
            });
        }
        let code = status.as_u16();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(RemoteError::Refused {
                endpoint,
                status: code,
            });
        }
        if status == StatusCode::NOT_FOUND {
            return Err(RemoteError::Missing { endpoint });
        }
        let body = Limited::new(response.into_body(), MAX_TEXT).collect();
        let text = match tokio::time::timeout(PIECE_TIME, body).await {
            Ok(Ok(body)) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
            _ => String::new(),
        };
        let text = text.chars().filter(|c| !c.is_control()).take(300).collect();
        Err(RemoteError::Status {
            endpoint,
            status: code,
            text,
        })
    }
}

/// The token in a file; one line, trimmed.
fn read_token(file: &Path) -> io::Result<String> {
    use io::Read as _;
    let mut text = String::new();
    std::fs::File::open(file)?
        .take(MAX_TOKEN)
        .read_to_string(&mut text)?;
    let token = text.trim();
    if token.is_empty() {
        return Err(io::Error::other("the file is empty"));
    }
    Ok(token.to_owned())
}

/// An answer of 2xx.
pub(crate) struct Answer<'a> {
    http: &'a Http,
    response: Response<Incoming>,
}

impl Answer<'_> {
    /// The length that is announced.
    pub(crate) fn length(&self) -> Option<u64> {
        let value = self.response.headers().get(header::CONTENT_LENGTH)?;
        value.to_str().ok()?.parse().ok()
    }

    /// The next piece of the body.
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, RemoteError> {
        loop {
            let frame = tokio::time::timeout(PIECE_TIME, self.response.body_mut().frame()).await;
            match frame.map_err(|_| self.http.broken("it went silent"))? {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => {
                    return Err(self.http.broken(ramen_redact::chain(&error)));
                }
            }
        }
    }

    /// The whole body, when it is no more than `limit` bytes.
    pub(crate) async fn bytes(mut self, limit: usize) -> Result<Vec<u8>, RemoteError> {
        let mut all = Vec::new();
        while let Some(piece) = self.piece().await? {
            if all.len() + piece.len() > limit {
                return Err(self.http.broken(format!("it sent more than {limit} bytes")));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }
}
