//! `/metrics`, on a port of its own.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Scrapers at once.
const MAX_CONNECTIONS: usize = 16;
/// For the headers of a request.
const HEADER_TIME: Duration = Duration::from_secs(5);
/// For a whole connection.
const CONNECTION_TIME: Duration = Duration::from_mins(1);
/// After a failed accept (no descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers scrapers with what `text` gives then, in the text format that scrapers expect; for ever.
pub async fn serve_metrics<F>(listener: TcpListener, text: F)
where
    F: Fn() -> String + Clone + Send + Sync + 'static,
{
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let text = text.clone();
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let answer = answer(&text, request.method(), request.uri().path());
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut builder = http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIME);
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            // A scraper that breaks off is its own affair.
            let _ = tokio::time::timeout(CONNECTION_TIME, connection).await;
            drop(place);
        });
    }
}

fn answer(text: &impl Fn() -> String, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let (status, kind, text) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            (StatusCode::OK, kind, text())
        }
        (_, "/metrics") => {
            let text = "only GET\n".to_owned();
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain", text)
        }
        _ => {
            let text = "only /metrics\n".to_owned();
            (StatusCode::NOT_FOUND, "text/plain", text)
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
