//! Google Cloud Storage as far as a store uses it. Its XML interface is S3's protocol with a login of its own, conditions by an object's
//! generation, and a 404 where nothing was to be deleted: that is put in front of a server of S3's protocol.

use std::{
    fs, io,
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use s3s::{Body, HttpError, HttpRequest, HttpResponse, service::S3Service};
use serde_json::{Value, json};

use super::{
    bucket::{Answer, BUCKET, Server, refusal},
    run,
};

/// What an account may be used for.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const IF_GENERATION: HeaderName = HeaderName::from_static("x-goog-if-generation-match");
const GENERATION: HeaderName = HeaderName::from_static("x-goog-generation");

/// The server, with one bucket and one service account; it ends when dropped, with everything in it.
#[derive(Debug)]
pub struct Gcs {
    server: Server,
    pem: String,
}

impl Gcs {
    /// Its bucket.
    pub const BUCKET: &str = BUCKET;
    /// Its account.
    pub const ACCOUNT: &str = "operator@ramen.example";

    /// Starts one at this address; port 0 is any.
    pub async fn start(address: SocketAddr) -> io::Result<Self> {
        let mut server = Server::new(address)?;
        let pem = private_key(server.scratch())?;
        let front = Arc::new(Front {
            account: public_key(&pem)?,
            files: server.files()?.build(),
        });
        let answers = move |request: HttpRequest| -> Answer {
            let front = Arc::clone(&front);
            Box::pin(async move { front.answer(request).await })
        };
        server.listen(Arc::new(answers)).await?;
        Ok(Self { server, pem })
    }

    /// What a client is told in its variables.
    pub fn variables(&self) -> Vec<(String, String)> {
        self.variables_with(&self.pem)
    }

    /// The same with a key that is not the account's.
    pub fn variables_of_a_stranger(&self) -> io::Result<Vec<(String, String)>> {
        let dir = tempfile::tempdir()?;
        Ok(self.variables_with(&private_key(dir.path())?))
    }

    fn variables_with(&self, pem: &str) -> Vec<(String, String)> {
        let account = json!({
            "type": "service_account", "client_email": Self::ACCOUNT, "private_key": pem,
            "private_key_id": "1", "gcs_base_url": self.server.url(),
        });
        [
            ("GOOGLE_SERVICE_ACCOUNT_KEY", account.to_string()),
            ("GOOGLE_ALLOW_HTTP", "true".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

fn private_key(dir: &Path) -> io::Result<String> {
    let file = dir.join("account.pem");
    let kind = ["genpkey", "-algorithm", "RSA", "-pkeyopt"];
    run(Command::new("openssl")
        .args(kind)
        .args(["rsa_keygen_bits:2048", "-out"])
        .arg(&file))?;
    fs::read_to_string(&file)
}

fn public_key(pem: &str) -> io::Result<Vec<u8>> {
    let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).map_err(io::Error::other)?;
    let pair = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der())
        .map_err(|error| io::Error::other(error.to_string()))?;
    Ok(pair.public_key().as_ref().to_vec())
}

struct Front {
    account: Vec<u8>,
    files: S3Service,
}

impl Front {
    async fn answer(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if !self.is_logged_in(request.headers()) {
            let message = "Authentication required.";
            return Ok(refusal(
                StatusCode::UNAUTHORIZED,
                "AuthenticationRequired",
                message,
            ));
        }
        let headers = request.headers_mut();
        headers.remove(header::AUTHORIZATION);
        if let Some(generation) = headers.remove(IF_GENERATION) {
            // 0: where there is none yet. A store asks for nothing else.
            if generation != "0" {
                let message = "Only 0 is known as a generation.";
                return Ok(refusal(
                    StatusCode::NOT_IMPLEMENTED,
                    "NotImplemented",
                    message,
                ));
            }
            headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        if request.method() == Method::DELETE && request.uri().query().is_none() {
            let mut look = Request::new(Body::empty());
            *look.method_mut() = Method::HEAD;
            look.uri_mut().clone_from(request.uri());
            if self.files.call(look).await?.status() == StatusCode::NOT_FOUND {
                let message = "The specified key does not exist.";
                return Ok(refusal(StatusCode::NOT_FOUND, "NoSuchKey", message));
            }
        }
        let mut answer = self.files.call(request).await?;
        if let Some(generation) = generation(answer.headers()) {
            answer.headers_mut().insert(GENERATION, generation);
        }
        Ok(answer)
    }

    /// Whether a request has a token that the account signed itself, as Google takes it without an exchange.
    fn is_logged_in(&self, headers: &HeaderMap) -> bool {
        let token = headers
            .get(header::AUTHORIZATION)
            .and_then(|header| header.to_str().ok()?.strip_prefix("Bearer "));
        token.is_some_and(|token| self.knows(token).is_some())
    }

    fn knows(&self, token: &str) -> Option<()> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (_, claims) = signed.split_once('.')?;
        let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &self.account)
            .verify(signed.as_bytes(), &decode(signature)?)
            .ok()?;
        let claims: Value = serde_json::from_slice(&decode(claims)?).ok()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
        let ours = claims["iss"] == Gcs::ACCOUNT && claims["scope"] == SCOPE;
        (ours && claims["exp"].as_u64()? > now).then_some(())
    }
}

/// A number that is another one for other bytes.
fn generation(headers: &HeaderMap) -> Option<HeaderValue> {
    let tag = headers.get(header::ETAG)?.to_str().ok()?;
    let digits = tag.trim_start_matches('"').get(..15)?;
    Some(u64::from_str_radix(digits, 16).ok()?.into())
}
