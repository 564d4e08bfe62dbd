//! An issuer of the test: describes itself, shows its keys, and signs whatever it is told to.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ramen_gateway::Oidc;
use ramen_gateway::oidc::Settings;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::signer::Signer;

/// Where the gateway of the test says it is.
pub(crate) const PUBLIC: &str = "https://mcp.example.com";

pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

#[derive(Default)]
struct Shared {
    keys: Mutex<Vec<Value>>,
    fetched: AtomicUsize,
    down: AtomicBool,
    /// Another name than its own in its description.
    liar: AtomicBool,
}

pub(crate) struct Issuer {
    pub(crate) address: SocketAddr,
    pub(crate) signer: Signer,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Issuer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let signer = Signer::new("first");
        let shared = Arc::<Shared>::default();
        *shared.keys.lock().unwrap() = vec![signer.jwk()];
        let served = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let shared = Arc::clone(&served);
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let shared = Arc::clone(&shared);
                        async move { Ok::<_, Infallible>(shared.answer(address, &request)) }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self {
            address,
            signer,
            shared,
            task,
        }
    }

    pub(crate) fn name(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How often its keys were asked for.
    pub(crate) fn fetched(&self) -> usize {
        self.shared.fetched.load(Ordering::SeqCst)
    }

    pub(crate) fn show(&self, keys: Vec<Value>) {
        *self.shared.keys.lock().unwrap() = keys;
    }

    pub(crate) fn fail(&self, down: bool) {
        self.shared.down.store(down, Ordering::SeqCst);
    }

    pub(crate) fn lie(&self) {
        self.shared.liar.store(true, Ordering::SeqCst);
    }

    /// Who judges its tokens.
    pub(crate) fn oidc(&self) -> Arc<Oidc> {
        self.oidc_with("")
    }

    /// The same with more lines of settings.
    pub(crate) fn oidc_with(&self, more: &str) -> Arc<Oidc> {
        Arc::new(Oidc::new(self.settings(more)))
    }

    pub(crate) fn settings(&self, more: &str) -> Settings {
        Settings::parse(&self.text(more), None).unwrap()
    }

    /// A file of settings that trusts it, with more lines.
    pub(crate) fn text(&self, more: &str) -> String {
        let issuer = self.name();
        format!("publicUrl: {PUBLIC}\nclockSkewSecs: 10\nissuers:\n- issuer: {issuer}\n{more}")
    }

    /// Claims of a good token for all groups.
    pub(crate) fn claims(&self) -> Value {
        json!({"iss": self.name(), "sub": "ann", "aud": PUBLIC, "iat": now(), "exp": now() + 300, "groups": ["staff"]})
    }

    /// A token with these claims.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.signer.sign(&self.signer.header(), claims)
    }

    /// A good token.
    pub(crate) fn good(&self) -> String {
        self.token(&self.claims())
    }

    /// A good token that nobody saw before.
    pub(crate) fn fresh(&self) -> String {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let mut claims = self.claims();
        claims["jti"] = COUNT.fetch_add(1, Ordering::SeqCst).into();
        self.token(&claims)
    }
}

impl Shared {
    fn answer(&self, address: SocketAddr, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let json = |value: &Value| Response::new(Full::new(Bytes::from(value.to_string())));
        let mut nothing = Response::new(Full::default());
        *nothing.status_mut() = StatusCode::NOT_FOUND;
        if self.down.load(Ordering::SeqCst) {
            *nothing.status_mut() = StatusCode::BAD_GATEWAY;
            self.fetched.fetch_add(1, Ordering::SeqCst);
            return nothing;
        }
        match request.uri().path() {
            "/.well-known/openid-configuration" => {
                let host = if self.liar.load(Ordering::SeqCst) {
                    "login.example".to_owned()
                } else {
                    address.to_string()
                };
                json(
                    &json!({"issuer": format!("http://{host}"), "jwks_uri": format!("http://{address}/keys")}),
                )
            }
            "/keys" => {
                self.fetched.fetch_add(1, Ordering::SeqCst);
                json(&json!({"keys": *self.keys.lock().unwrap()}))
            }
            _ => nothing,
        }
    }
}
