//! A client for the ports that others reach, one connection for each request.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// An answer, whole.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Got {
    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as text, trimmed.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap().trim()
    }
}

/// Sends a request with a body that is known.
pub(crate) async fn send(
    address: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Got {
    let request = request(method, path, headers, Full::new(body.into()));
    exchange(address, request).await.expect("an answer")
}

/// A request for [`exchange`].
pub(crate) fn request<B>(
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: B,
) -> Request<B> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "operator.example");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body).unwrap()
}

/// Sends any request; an error when the connection broke before the whole answer was there.
pub(crate) async fn exchange<B>(
    address: SocketAddr,
    request: Request<B>,
) -> Result<Got, hyper::Error>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the answer; what breaks it off is told by the answer.
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    let (head, body) = answer.into_parts();
    let body = body.collect().await?.to_bytes();
    connection.abort();
    Ok(Got {
        status: head.status.as_u16(),
        headers: head.headers,
        body,
    })
}
