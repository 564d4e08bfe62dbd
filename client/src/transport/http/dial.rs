//! Connections: pooled, over TLS where the address says so.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};

/// For a connection, without TLS.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(30);
/// Larger heads of answers are refused.
const MAX_HEADERS: usize = 64 * 1024;

/// Makes requests.
#[derive(Clone, Debug)]
pub(crate) struct Dial(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

/// Why no answer came.
#[derive(Debug)]
pub(crate) enum DialError {
    /// No connection.
    Connect(String),
    /// The connection broke, or what came over it is no HTTP.
    Broken(String),
}

impl Dial {
    /// For addresses of one kind.
    pub(crate) fn new(tls: bool) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        tcp.enforce_http(false);
        let connector = HttpsConnector::from((tcp, config(tls)));
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(8)
            .http1_max_buf_size(MAX_HEADERS)
            .build(connector);
        Self(client)
    }

    /// Sends a request and waits for the head of the answer. Redirects are not followed: what a request carries is for
    /// one address.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, DialError> {
        self.0.request(request).await.map_err(|error| {
            let text = innermost(&error);
            if error.is_connect() {
                DialError::Connect(text)
            } else {
                DialError::Broken(text)
            }
        })
    }
}

/// The text of the innermost error: that is where the system speaks.
pub(crate) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// The system's certificates are read once, and not at all for plain HTTP.
fn config(tls: bool) -> ClientConfig {
    static SYSTEM: OnceLock<ClientConfig> = OnceLock::new();
    if tls {
        SYSTEM.get_or_init(|| trust(true)).clone()
    } else {
        trust(false)
    }
}

fn trust(system: bool) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    if system {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "trusted certificates of the system cannot be read");
        }
        roots.add_parsable_certificates(found.certs);
    }
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the default versions of TLS")
        .with_root_certificates(roots)
        .with_no_client_auth()
}
