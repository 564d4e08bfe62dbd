//! An issuer of the test: describes itself, shows its keys, and signs whatever it is told to.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ramen_gateway::Oidc;
use ramen_gateway::oidc::Settings;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Where the gateway of the test says it is.
pub(crate) const PUBLIC: &str = "https://mcp.example.com";

/// A key that signs.
pub(crate) struct Signer {
    pub(crate) kid: String,
    pair: EcdsaKeyPair,
}

impl Signer {
    pub(crate) fn new(kid: &str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        Self {
            kid: kid.to_owned(),
            pair,
        }
    }

    /// As an issuer shows it.
    pub(crate) fn jwk(&self) -> Value {
        let point = &self.pair.public_key().as_ref()[1..];
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.kid,
            "x": part(&point[..32]), "y": part(&point[32..])})
    }

    /// A token with this header and these claims.
    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(header), part(claims));
        let signature = self
            .pair
            .sign(&SystemRandom::new(), message.as_bytes())
            .unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

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
        let text = format!(
            "publicUrl: {PUBLIC}\nclockSkewSecs: 10\nissuers:\n- issuer: {}\n{more}",
            self.name()
        );
        Arc::new(Oidc::new(Settings::parse(&text, None).unwrap()))
    }

    /// Claims of a good token for all groups.
    pub(crate) fn claims(&self) -> Value {
        json!({"iss": self.name(), "sub": "ann", "aud": PUBLIC, "iat": now(), "exp": now() + 300, "groups": ["staff"]})
    }

    /// A token with these claims.
    pub(crate) fn token(&self, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "typ": "at+jwt", "kid": self.signer.kid});
        self.signer.sign(&header, claims)
    }

    /// A good token.
    pub(crate) fn good(&self) -> String {
        self.token(&self.claims())
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
