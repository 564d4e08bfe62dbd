//! Where upstreams may be, and what they learn and tell.

use std::io::Write;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::net::TcpListener;

use super::*;

#[tokio::test]
async fn an_address_that_is_not_public_is_never_connected_to() {
    let worker = Worker::start().await;
    let near = server("near").await;
    let port = near.url().rsplit_once(':').unwrap().1.to_owned();
    for host in [
        "127.0.0.1",
        // A name that leads to one.
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "127.1",
        "0.0.0.0",
    ] {
        let policy = Policy {
            allowed: CidrSet::parse_list("10.0.0.0/8").unwrap(),
            ..nearby()
        };
        let gateway = gateway(
            &worker,
            vec![upstream("near", &format!("http://{host}:{port}"))],
            policy,
        )
        .await;
        until(&gateway, "near", "down").await;
        let why = state(&gateway, "near")["why"].to_string();
        assert!(
            why.contains("is not allowed by the configuration"),
            "{host}: {why}"
        );
        assert_eq!(call(&gateway, "echo", json!({})).await.text(), "{}");
    }
    for metadata in [
        "169.254.169.254",
        "[fd00:ec2::254]",
        "100.100.100.200",
        "168.63.129.16",
    ] {
        let url = format!("http://{metadata}/latest/meta-data");
        let gateway = gateway(&worker, vec![upstream("near", &url)], Policy::default()).await;
        until(&gateway, "near", "down").await;
        let why = state(&gateway, "near")["why"].to_string();
        assert!(
            why.contains("is not allowed by the configuration"),
            "{metadata}: {why}"
        );
    }
    assert!(near.all().is_empty(), "nothing came there");
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_headers_go_nowhere_else() {
    let worker = Worker::start().await;
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let elsewhere = format!("http://{}/token?secret=hidden", other.local_addr().unwrap());
    for to in [
        elsewhere.as_str(),
        "http://169.254.169.254/latest/meta-data",
        "//[::1]/",
        "/mcp/",
    ] {
        for code in [301, 302, 307, 308] {
            let head = format!("HTTP/1.1 {code} X\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
            let web = http::serve(move |_| head.clone().into_bytes()).await;
            let spec = with_headers("web", &web.url(), &[("X-Token", "of-the-upstream")], &[]);
            let gateway = gateway(&worker, vec![spec], nearby()).await;
            until(&gateway, "web", "down").await;
            let why = state(&gateway, "web")["why"].to_string();
            assert!(
                why.contains("it redirects to") && !why.contains("hidden"),
                "{why}"
            );
            assert_eq!(call(&gateway, "echo", json!({})).await.text(), "{}");
        }
    }
    let connected = std::pin::pin!(other.accept());
    assert!(futures::poll!(connected).is_pending(), "nothing came there");
}

/// Log lines.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn what_a_server_quotes_of_its_headers_is_in_no_error_status_or_log() {
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(lines);
    let worker = Worker::start().await;
    let quotes = |seen: &Seen| {
        let quoted = seen.header("authorization").unwrap_or_default().to_owned();
        let error = json!({"code": -32000, "message": format!("bad token: {quoted}"), "data": {"got": quoted}});
        json!({"jsonrpc": "2.0", "id": seen.body["id"], "error": error})
    };
    let web = http::serve(move |seen| match seen.method() {
        "tools/call" if seen.body["params"]["arguments"]["plain"] == true => {
            let page = format!("no: {}", seen.header("authorization").unwrap_or_default());
            let length = page.len();
            format!("HTTP/1.1 500 X\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n\r\n{page}").into_bytes()
        }
        "tools/call" => status(200, &quotes(seen)),
        _ => reply("web", seen),
    })
    .await;
    let worse = http::serve(move |seen| status(403, &quotes(seen))).await;
    let dead = http::serve(move |seen| status(500, &quotes(seen))).await;
    let header = [("Authorization", "Bearer s3cr3t-of-the-upstream")];
    let upstreams = vec![
        with_headers("web", &web.url(), &header, &[]),
        with_headers("worse", &worse.url(), &header, &[]),
        with_headers("dead", &dead.url(), &header, &[]),
    ];
    let gateway = gateway(&worker, upstreams, nearby()).await;
    for name in ["worse", "dead"] {
        until(&gateway, name, "down").await;
    }
    let mut shown = call(&gateway, "web_act", json!({}))
        .await
        .json()
        .to_string();
    assert!(shown.contains("bad token: ***"), "{shown}");
    shown += &call(&gateway, "web_act", json!({"plain": true}))
        .await
        .json()
        .to_string();
    let group = gateway.groups.get("default", "demo").unwrap();
    let status = group.upstreams.status();
    shown.extend([format!("{status:?}"), format!("{group:?}")]);
    shown += &String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(shown.contains("not connected yet"), "the log is there");
    assert!(!shown.contains("s3cr3t"), "{shown}");
    assert!(
        web.seen("tools/call")
            .iter()
            .all(|seen| seen.header("authorization") == Some(header[0].1))
    );
}
