//! Connections: pooled, over TLS where the address says so, and only to addresses that may be connected to.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use tower_service::Service;

use crate::client::Addresses;

/// For a connection, without TLS.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(30);
/// Larger heads of answers are refused.
const MAX_HEADERS: usize = 64 * 1024;

/// Makes requests.
#[derive(Clone, Debug)]
pub(crate) struct Dial {
    client: Client<HttpsConnector<HttpConnector<Checked<GaiResolver>>>, Full<Bytes>>,
    addresses: Option<Addresses>,
}

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
    pub(crate) fn new(tls: bool, addresses: Option<Addresses>) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(Checked {
            names: GaiResolver::new(),
            addresses: addresses.clone(),
        });
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        // A stream that waits for a host which vanished without a word ends within a minute.
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        tcp.set_keepalive_interval(Some(Duration::from_secs(10)));
        tcp.set_keepalive_retries(Some(3));
        tcp.enforce_http(false);
        let connector = HttpsConnector::from((tcp, config(tls)));
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(8)
            .http1_max_buf_size(MAX_HEADERS)
            .build(connector);
        Self { client, addresses }
    }

    /// Sends a request and waits for the head of the answer. Redirects are not followed: what a request carries is for
    /// one address.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, DialError> {
        // An address in the place of a name is not looked up, so it is judged here.
        let host = request.uri().host().unwrap_or_default();
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        if let (Some(addresses), Ok(address)) = (&self.addresses, literal.parse::<IpAddr>())
            && !addresses.allow(address)
        {
            return Err(DialError::Connect(not_allowed(address)));
        }
        self.client.request(request).await.map_err(|error| {
            let text = innermost(&error);
            if error.is_connect() {
                DialError::Connect(text)
            } else {
                DialError::Broken(text)
            }
        })
    }
}

fn not_allowed(address: IpAddr) -> String {
    format!("the address {address} is not allowed by the configuration of this program")
}

/// Looks names up and judges every address that they have. One that is not allowed spoils the name: it may be there to
/// get around the rule.
#[derive(Clone, Debug)]
struct Checked<R> {
    names: R,
    addresses: Option<Addresses>,
}

impl<R, A> Service<Name> for Checked<R>
where
    R: Service<Name, Response = A, Error = io::Error>,
    R::Future: Send + 'static,
    A: Iterator<Item = SocketAddr>,
{
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.names.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (found, addresses) = (self.names.call(name), self.addresses.clone());
        Box::pin(async move {
            let found: Vec<_> = found.await?.collect();
            if let Some(addresses) = addresses
                && let Some(bad) = found.iter().find(|found| !addresses.allow(found.ip()))
            {
                return Err(io::Error::other(not_allowed(bad.ip())));
            }
            Ok(found.into_iter())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A name service of the test: each question gets the next answer.
    #[derive(Clone)]
    struct Names(Vec<Vec<&'static str>>);

    impl Service<Name> for Names {
        type Response = std::vec::IntoIter<SocketAddr>;
        type Error = io::Error;
        type Future = std::future::Ready<io::Result<Self::Response>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Name) -> Self::Future {
            let all = self.0.remove(0).into_iter();
            let all: Vec<_> = all
                .map(|ip| (ip.parse::<IpAddr>().unwrap(), 0).into())
                .collect();
            std::future::ready(Ok(all.into_iter()))
        }
    }

    fn v4() -> Addresses {
        Addresses::new(|address| !address.is_loopback())
    }

    #[tokio::test]
    async fn every_address_of_a_name_is_judged_each_time_it_is_looked_up() {
        let mut checked = Checked {
            names: Names(vec![
                vec!["192.0.2.1", "192.0.2.2"],
                vec!["192.0.2.1", "127.0.0.1"],
                vec!["127.0.0.1"],
            ]),
            addresses: Some(v4()),
        };
        let name: Name = "rebound.example".parse().unwrap();
        let first: Vec<_> = checked.call(name.clone()).await.unwrap().collect();
        assert_eq!(
            first.len(),
            2,
            "these are the addresses that are connected to"
        );
        for _ in 0..2 {
            let error = checked.call(name.clone()).await.unwrap_err().to_string();
            assert!(error.contains("127.0.0.1 is not allowed"), "{error}");
        }
    }

    #[tokio::test]
    async fn an_address_in_the_place_of_a_name_is_judged_too() {
        let dial = Dial::new(false, Some(v4()));
        for url in [
            "http://127.0.0.1:9/",
            "http://[::1]:9/",
            "http://localhost:9/",
        ] {
            let request = Request::get(url).body(Full::default()).unwrap();
            match dial.send(request).await {
                Err(DialError::Connect(why)) => assert!(why.contains("is not allowed"), "{why}"),
                other => panic!("{url}: {other:?}"),
            }
        }
    }
}
