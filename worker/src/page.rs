//! `/metrics`, on a port of its own.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::service::Front;

/// Scrapers at once.
const MAX_CONNECTIONS: usize = 16;
/// For the headers of a request.
const HEADER_TIME: Duration = Duration::from_secs(5);
/// For a whole connection.
const CONNECTION_TIME: Duration = Duration::from_mins(1);

pub(crate) async fn serve(listener: TcpListener, front: Arc<Front>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let front = Arc::clone(&front);
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let response = answer(&front, &request);
                async move { Ok::<_, Infallible>(response) }
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

fn answer(front: &Front, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (status, kind, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let current = front.manager.current();
            let hosts = current
                .as_ref()
                .map_or(0, |current| *current.pool.ready().borrow());
            let generation = current.map_or(0, |current| current.number);
            let text = front
                .metrics
                .text(front.gate.in_flight.taken(), hosts, generation);
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            (StatusCode::OK, kind, text)
        }
        (_, "/metrics") => (
            StatusCode::METHOD_NOT_ALLOWED,
            "text/plain",
            "only GET\n".to_owned(),
        ),
        _ => (
            StatusCode::NOT_FOUND,
            "text/plain",
            "only /metrics\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}
