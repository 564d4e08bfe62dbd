//! Web pages of other origins, as browsers ask for them.

use bytes::Bytes;
use http::header::HeaderValue;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use ramen_gateway::callers::Limits;
use serde_json::json;

use crate::issuer::Issuer;
use crate::support::{Got, ORIGIN, PATH, Running, call};
use crate::worker::Worker;

const STRANGER: &str = "https://evil.example";

/// What a browser asks before a page of this origin may send what it wants to send.
fn preflight(gateway: &Running, path: &str, origin: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .method(Method::OPTIONS)
        .uri(path)
        .header("host", gateway.address.to_string())
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header(
            "access-control-request-headers",
            "authorization, content-type,MCP-Protocol-Version, mcp-param-region, x-other",
        )
        .body(Full::default())
        .unwrap()
}

/// It says once that it is another one for other origins.
fn varies(got: &Got) -> bool {
    got.headers.get_all("vary").iter().eq(["origin"])
}

fn is_readable(got: &Got) -> bool {
    let exposed = got.header("access-control-expose-headers");
    got.header("access-control-allow-origin") == ORIGIN
        && varies(got)
        && exposed.contains("www-authenticate")
        && got.header("access-control-allow-credentials").is_empty()
}

/// No word of it.
fn is_closed(got: &Got) -> bool {
    let mut names = got.headers.keys();
    !names.any(|name| name.as_str().starts_with("access-control-"))
}

/// No word of it, and no cache gives that to a page that may read it.
fn is_closed_to_others(got: &Got) -> bool {
    is_closed(got) && varies(got)
}

#[tokio::test]
async fn a_browser_may_send_what_a_page_of_a_listed_origin_wants_to_send() {
    let gateway = Running::start(&[]).await;
    for path in [PATH, "/mcp", "/default/nowhere/mcp"] {
        let got = gateway.send(preflight(&gateway, path, ORIGIN)).await;
        assert_eq!((got.status, got.body.len()), (StatusCode::NO_CONTENT, 0));
        assert!(is_readable(&got), "{path}: {:?}", got.headers);
        assert_eq!(got.header("access-control-allow-methods"), "POST");
        assert_eq!(
            got.header("access-control-allow-headers"),
            "authorization, content-type, mcp-protocol-version, mcp-param-region"
        );
        assert_eq!(got.header("cache-control"), "no-store");
    }
}

#[tokio::test]
async fn pages_of_other_origins_and_other_hosts_are_told_nothing() {
    let gateway = Running::start(&[]).await;
    let got = gateway.send(preflight(&gateway, PATH, STRANGER)).await;
    assert_eq!(got.status, StatusCode::UNAUTHORIZED);
    assert!(is_closed(&got), "{:?}", got.headers);
    let mut two = preflight(&gateway, PATH, ORIGIN);
    let other = HeaderValue::from_static(STRANGER);
    two.headers_mut().append("origin", other);
    let got = gateway.send(two).await;
    assert!(is_closed(&got), "{:?}", got.headers);
    let mut rebound = preflight(&gateway, PATH, ORIGIN);
    let host = HeaderValue::from_static("evil.example");
    rebound.headers_mut().insert("host", host);
    let got = gateway.send(rebound).await;
    assert_eq!(got.status, StatusCode::FORBIDDEN);
    assert!(is_closed(&got), "{:?}", got.headers);
}

#[tokio::test]
async fn a_page_of_a_listed_origin_reads_answers_and_refusals() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let from = |origin: &'static str, progress: bool| {
        let mut body = call("echo");
        if progress {
            body["params"]["_meta"] = json!({"progressToken": "p"});
        }
        let mut request = gateway.post(&body);
        let origin = HeaderValue::from_static(origin);
        request.headers_mut().insert("origin", origin);
        request
    };
    for progress in [false, true] {
        let got = gateway.send(from(ORIGIN, progress)).await;
        assert_eq!(got.status, StatusCode::OK);
        assert!(is_readable(&got), "{:?}", got.headers);
    }
    let mut wrong = from(ORIGIN, false);
    let key = HeaderValue::from_static("Bearer rmk_wrong");
    wrong.headers_mut().insert("authorization", key);
    let got = gateway.send(wrong).await;
    assert_eq!(got.status, StatusCode::UNAUTHORIZED);
    assert!(is_readable(&got), "{:?}", got.headers);
    let got = gateway.send(from(STRANGER, false)).await;
    assert_eq!(got.status, StatusCode::FORBIDDEN);
    assert!(is_closed_to_others(&got), "{:?}", got.headers);
    // Programs send no origin.
    let got = gateway.call("echo").await;
    assert!(got.status == StatusCode::OK && is_closed_to_others(&got));
    assert_eq!(worker.began(), 3);
}

#[tokio::test]
async fn a_page_reads_where_to_sign_in() {
    let issuer = Issuer::start().await;
    let gateway = Running::trusting(&[], Limits::default(), issuer.oidc()).await;
    let path = format!("/.well-known/oauth-protected-resource{PATH}");
    let got = gateway.send(preflight(&gateway, &path, ORIGIN)).await;
    assert!(is_readable(&got), "{:?}", got.headers);
    assert_eq!(got.header("access-control-allow-methods"), "GET");
    let request = Request::get(&path)
        .header("host", gateway.address.to_string())
        .header("origin", ORIGIN);
    let got = gateway.send(request.body(Full::default()).unwrap()).await;
    assert_eq!(got.status, StatusCode::OK);
    assert!(is_readable(&got), "{:?}", got.headers);
    // Health is nothing for pages.
    let got = gateway.send(preflight(&gateway, "/healthz", ORIGIN)).await;
    assert!(is_closed(&got), "{:?}", got.headers);
}
