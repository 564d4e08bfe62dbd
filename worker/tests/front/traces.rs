//! What a collector of traces gets.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::Signal;
use serde_json::json;
use tokio::net::TcpListener;

use crate::harness::{call, text_of};
use crate::process::Program;

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// A collector that keeps the path and the body of what it gets.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(String, Bytes)>>>);

impl Collector {
    async fn start(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let collector = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let collector = collector.clone();
                let service = hyper::service::service_fn(move |request| {
                    let collector = collector.clone();
                    async move { Ok::<_, Infallible>(collector.take(request).await) }
                });
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        address
    }

    async fn take(
        &self,
        request: Request<Incoming>,
    ) -> Response<impl hyper::body::Body<Data = Bytes, Error = Infallible> + use<>> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        self.0.lock().unwrap().push((path, body));
        // An empty message, and that all went well.
        let trailers = async {
            let well = HeaderValue::from_static("0");
            Some(Ok(HeaderMap::from_iter([(
                http::HeaderName::from_static("grpc-status"),
                well,
            )])))
        };
        let body = Full::new(Bytes::from_static(&[0; 5])).with_trailers(trailers);
        Response::builder()
            .header("content-type", "application/grpc")
            .body(body)
            .unwrap()
    }
}

#[tokio::test]
async fn a_call_is_a_span_of_its_callers_trace_and_holds_no_argument() {
    let collector = Collector::default();
    let endpoint = format!("http://{}", collector.start().await);
    let mut program = Program::start_with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]).await;
    let client = program.client().await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let mut message = call(1, "note", json!({"text": "not-for-traces"}));
    message["params"]["_meta"] = json!({"traceparent": format!("00-{trace}-b7ad6b7169203331-01")});
    let answer = client.send(&message).await.unwrap();
    assert!(text_of(&answer).contains("not-for-traces"), "{answer}");

    // What waits is sent before the end.
    program.signal(Signal::TERM);
    let ended = tokio::time::timeout(std::time::Duration::from_secs(20), program.child.wait());
    assert_eq!(ended.await.unwrap().unwrap().code(), Some(0));
    let exported = collector.0.lock().unwrap();
    assert!(!exported.is_empty(), "nothing came");
    let all: Vec<u8> = exported
        .iter()
        .flat_map(|(path, body)| {
            assert_eq!(path, EXPORT);
            body.clone()
        })
        .collect();
    let holds = |part: &[u8]| all.windows(part.len()).any(|window| window == part);
    for part in ["ramen-worker", "tools/call", "note"] {
        assert!(holds(part.as_bytes()), "{part}");
    }
    assert!(holds(&hex::decode(trace).unwrap()), "the caller's trace");
    assert!(!holds(b"not-for-traces"));
}
