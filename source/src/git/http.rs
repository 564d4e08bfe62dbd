//! The smart HTTP protocol of git: `GET …/info/refs`, then `POST …/git-upload-pack`.

mod redirect;
mod send;
mod tls;

use std::{
    io::{self, Read, Write},
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use git2::transport::{Service, SmartSubtransport, SmartSubtransportStream};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{net::TcpStream, runtime::Runtime};
use url::{Host, Url};

use super::{GitError, session::Session};

use send::{send, within};

pub(super) use tls::authorities;

const MAX_REDIRECTS: usize = 4;
/// What we ask for is small: wants, and haves that we do not have.
const MAX_REQUEST: usize = 1 << 20;
const INFO_REFS: &str = "/info/refs";

pub(super) struct HttpTransport {
    session: Arc<Session>,
    link: Arc<Mutex<Link>>,
}

/// What the requests of one operation share.
struct Link {
    runtime: Runtime,
    /// The repository; a redirect may have changed the path.
    base: Url,
    /// Whether credentials may go to `base`.
    ours: bool,
    tls: Option<Arc<ClientConfig>>,
}

impl HttpTransport {
    pub(super) fn new(session: &Arc<Session>, base: Url) -> Result<Self, GitError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(|e| session.unreachable(format!("no runtime: {e}")))?;
        let link = Link {
            runtime,
            base,
            ours: true,
            tls: None,
        };
        Ok(Self {
            session: Arc::clone(session),
            link: Arc::new(Mutex::new(link)),
        })
    }
}

impl SmartSubtransport for HttpTransport {
    fn action(
        &self,
        _url: &str,
        action: Service,
    ) -> Result<Box<dyn SmartSubtransportStream>, git2::Error> {
        match action {
            Service::UploadPackLs | Service::UploadPack => Ok(Box::new(HttpStream {
                session: Arc::clone(&self.session),
                link: Arc::clone(&self.link),
                lists: action == Service::UploadPackLs,
                request: Vec::new(),
                body: None,
                chunk: Bytes::new(),
            })),
            Service::ReceivePackLs | Service::ReceivePack => {
                Err(git2::Error::from_str("this transport only reads"))
            }
        }
    }

    fn close(&self) -> Result<(), git2::Error> {
        Ok(())
    }
}

struct HttpStream {
    session: Arc<Session>,
    link: Arc<Mutex<Link>>,
    /// The list of refs, not the pack.
    lists: bool,
    request: Vec<u8>,
    body: Option<Incoming>,
    chunk: Bytes,
}

impl HttpStream {
    fn try_read(&mut self, buf: &mut [u8]) -> Result<usize, GitError> {
        let session = &self.session;
        while self.chunk.is_empty() {
            let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
            let body = if let Some(body) = &mut self.body {
                body
            } else {
                let request = Bytes::from(std::mem::take(&mut self.request));
                let answer = link.request(session, self.lists, &request)?;
                self.body.insert(answer)
            };
            match link.runtime.block_on(within(session, body.frame()))? {
                None => return Ok(0),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        session.count(data.len())?;
                        self.chunk = data;
                    }
                }
                Some(Err(_)) => {
                    session.patience()?;
                    return Err(session.unreachable("the server broke off in its answer"));
                }
            }
        }
        let n = buf.len().min(self.chunk.len());
        buf[..n].copy_from_slice(&self.chunk.split_to(n));
        Ok(n)
    }
}

impl Read for HttpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.try_read(buf).map_err(|error| self.session.fail(error))
    }
}

impl Write for HttpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.request.len() + buf.len() > MAX_REQUEST {
            let message = "the request grew beyond 1 MiB".to_owned();
            let url = self.session.url();
            return Err(self.session.fail(GitError::Library { url, message }));
        }
        self.request.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Link {
    fn request(
        &mut self,
        session: &Session,
        lists: bool,
        body: &Bytes,
    ) -> Result<Incoming, GitError> {
        let mut url = self.base.clone();
        let tail = if lists { INFO_REFS } else { "/git-upload-pack" };
        url.set_path(&format!("{}{tail}", self.base.path().trim_end_matches('/')));
        if lists {
            url.set_query(Some("service=git-upload-pack"));
        }
        for _ in 0..=MAX_REDIRECTS {
            let response = self.exchange(session, &url, lists, body)?;
            if response.status().is_redirection() {
                let next = redirect::target(session, &url, &response, lists)?;
                // From here on it is not the address that the credentials are for.
                self.ours &= next.scheme() == self.base.scheme();
                url = next;
                continue;
            }
            self.judge(session, &response, lists)?;
            if lists {
                let path = url
                    .path()
                    .strip_suffix(INFO_REFS)
                    .unwrap_or_default()
                    .to_owned();
                url.set_query(None);
                url.set_path(&path);
                self.base = url;
            }
            return Ok(response.into_body());
        }
        Err(redirect::refused(
            session,
            &url,
            "there are too many of them",
        ))
    }

    fn exchange(
        &mut self,
        session: &Session,
        url: &Url,
        lists: bool,
        body: &Bytes,
    ) -> Result<Response<Incoming>, GitError> {
        let request = self.build(session, url, lists, body)?;
        let (host, name) = match url.host() {
            Some(Host::Domain(name)) => {
                let server = ServerName::try_from(name.to_owned());
                let invalid = |_| session.unreachable("the host is not a DNS name");
                (name.to_owned(), server.map_err(invalid)?)
            }
            Some(Host::Ipv4(ip)) => (ip.to_string(), ServerName::from(IpAddr::V4(ip))),
            Some(Host::Ipv6(ip)) => (ip.to_string(), ServerName::from(IpAddr::V6(ip))),
            None => return Err(session.unreachable("the address has no host")),
        };
        let port = url.port_or_known_default().unwrap_or(443);
        let stream = session.dial(&host, port)?;
        let tls = if url.scheme() == "https" {
            Some(self.tls(session)?)
        } else {
            None
        };
        self.runtime.block_on(async {
            let io = |e: io::Error| session.unreachable(format!("cannot connect: {}", e.kind()));
            stream.set_nonblocking(true).map_err(io)?;
            let stream = TcpStream::from_std(stream).map_err(io)?;
            match tls {
                None => send(session, TokioIo::new(stream), request).await,
                Some(config) => {
                    let connector = tokio_rustls::TlsConnector::from(config);
                    let connected = within(session, connector.connect(name, stream)).await?;
                    let stream = connected.map_err(|e| tls::failed(session, &e))?;
                    send(session, TokioIo::new(stream), request).await
                }
            }
        })
    }

    fn tls(&mut self, session: &Session) -> Result<Arc<ClientConfig>, GitError> {
        if let Some(config) = &self.tls {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(tls::config(session)?);
        self.tls = Some(Arc::clone(&config));
        Ok(config)
    }

    fn build(
        &self,
        session: &Session,
        url: &Url,
        lists: bool,
        body: &Bytes,
    ) -> Result<Request<Full<Bytes>>, GitError> {
        let authority = match url.port() {
            Some(port) => format!("{}:{port}", url.host_str().unwrap_or_default()),
            None => url.host_str().unwrap_or_default().to_owned(),
        };
        let target = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let mut request = Request::builder()
            .method(if lists { Method::GET } else { Method::POST })
            .uri(target)
            .header(header::HOST, authority)
            // Some forges answer with a page for people unless the agent is git.
            .header(
                header::USER_AGENT,
                concat!("git/2.40 (ramen ", env!("CARGO_PKG_VERSION"), ")"),
            )
            .header(header::CACHE_CONTROL, "no-cache")
            .header(header::CONNECTION, "close");
        request = if lists {
            request.header(header::ACCEPT, "*/*")
        } else {
            request
                .header(header::ACCEPT, "application/x-git-upload-pack-result")
                .header(
                    header::CONTENT_TYPE,
                    "application/x-git-upload-pack-request",
                )
        };
        if let Some(mut value) = self.authorization(session)? {
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        request
            .body(Full::new(body.clone()))
            .map_err(|_| GitError::Url {
                message: "it cannot be sent as an HTTP request".to_owned(),
            })
    }

    fn has_credentials(session: &Session) -> bool {
        let credentials = &session.remote.credentials;
        credentials.bearer.is_some()
            || credentials.basic.is_some()
            || session.remote.url.userinfo().is_some()
    }

    fn authorization(&self, session: &Session) -> Result<Option<header::HeaderValue>, GitError> {
        if !self.ours {
            return Ok(None);
        }
        let credentials = &session.remote.credentials;
        let basic = credentials.basic.as_ref().or(session.remote.url.userinfo());
        let text = match (&credentials.bearer, basic) {
            (Some(token), _) => format!("Bearer {}", token.expose()),
            (None, Some((user, password))) => {
                format!(
                    "Basic {}",
                    STANDARD.encode(format!("{user}:{}", password.expose()))
                )
            }
            (None, None) => return Ok(None),
        };
        let value = header::HeaderValue::from_str(&text);
        // The error of the conversion is not shown: it might hold the text.
        value.map(Some).map_err(|_| GitError::Credentials {
            message: "the token cannot be sent in a header".to_owned(),
        })
    }

    fn judge(
        &self,
        session: &Session,
        response: &Response<Incoming>,
        lists: bool,
    ) -> Result<(), GitError> {
        let status = response.status();
        match status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let code = status.as_u16();
                let message = if !Self::has_credentials(session) {
                    format!("HTTP {code}, and no credentials are configured")
                } else if self.ours {
                    format!("HTTP {code} to the configured credentials")
                } else {
                    format!(
                        "HTTP {code}; the address redirects to another scheme, where the credentials do not go: configure the https address"
                    )
                };
                return Err(GitError::AuthFailed {
                    url: session.url(),
                    message,
                });
            }
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                return Err(GitError::NotFound { url: session.url() });
            }
            _ if status.is_server_error()
                || status == StatusCode::TOO_MANY_REQUESTS
                || status == StatusCode::REQUEST_TIMEOUT =>
            {
                return Err(session.unreachable(format!("HTTP {}", status.as_u16())));
            }
            _ => {
                let message = format!("HTTP {} instead of a repository", status.as_u16());
                return Err(GitError::NotGit {
                    url: session.url(),
                    message,
                });
            }
        }
        let wanted = if lists {
            "application/x-git-upload-pack-advertisement"
        } else {
            "application/x-git-upload-pack-result"
        };
        let kind = response.headers().get(header::CONTENT_TYPE);
        if kind.is_none_or(|kind| kind.as_bytes() != wanted.as_bytes()) {
            let message =
                "what answers there is no git server that speaks the smart protocol".to_owned();
            return Err(GitError::NotGit {
                url: session.url(),
                message,
            });
        }
        Ok(())
    }
}
