//! Keys, addresses and health over the wire.

use ramen_proto::v1::StatusRequest;
use serde_json::json;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::harness::{Client, KEY, Setup, call, eventually, with_admin_key};
use crate::{group, setup};

async fn code_of(setup: Setup, key: Option<&str>, metadata: &[(&'static str, &str)]) -> Code {
    let running = setup.serve(&group(&["echo"])).await;
    let mut client = Client::new(running.channel().await, key);
    client.metadata = metadata
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()))
        .collect();
    let outcome = client.try_tool("echo", json!({})).await;
    outcome.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test]
async fn sec02_without_keys_everybody_is_unauthenticated() {
    let setup = setup().with(|args| args.keys_file = None);
    let running = setup.serve(&group(&["echo"])).await;
    for key in [None, Some(""), Some(KEY)] {
        let client = Client::new(running.channel().await, key);
        let status = client.try_tool("echo", json!({})).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{key:?}");
    }
}

#[tokio::test]
async fn a_wrong_key_is_unauthenticated_also_from_outside() {
    let setup = setup().with(|args| args.allowed_cidrs = Some("10.0.0.0/8".into()));
    assert_eq!(
        code_of(setup, Some("rmk_no"), &[]).await,
        Code::Unauthenticated
    );
}

#[tokio::test]
async fn a_right_key_from_outside_is_denied_and_an_empty_list_denies_all() {
    for ranges in ["10.0.0.0/8", ""] {
        let setup = setup().with(|args| args.allowed_cidrs = Some(ranges.into()));
        assert_eq!(
            code_of(setup, Some(KEY), &[]).await,
            Code::PermissionDenied,
            "{ranges:?}"
        );
    }
}

#[tokio::test]
async fn sec01_a_final_line_break_in_a_key_file_does_not_matter() {
    let setup = setup();
    std::fs::write(setup.dir().join("keys"), "rmk_broken\r\n\n").unwrap();
    assert_eq!(code_of(setup, Some("rmk_broken"), &[]).await, Code::Ok);
}

#[tokio::test]
async fn sec08_the_right_most_forwarded_entry_counts() {
    for (line, wanted) in [
        ("10.0.0.5, 203.0.113.9", Code::PermissionDenied),
        ("203.0.113.9, 10.0.0.5", Code::Ok),
    ] {
        let setup = setup().with(|args| {
            args.allowed_cidrs = Some("10.0.0.0/8".into());
            args.trust_proxy = "1".into();
        });
        assert_eq!(
            code_of(setup, Some(KEY), &[("x-forwarded-for", line)]).await,
            wanted,
            "{line}"
        );
    }
}

#[tokio::test]
async fn sec07_all_spellings_of_a_forwarded_address_are_alike() {
    for line in ["[2001:db8::5]:443", "[2001:db8::5]", "2001:db8::5"] {
        let setup = setup().with(|args| {
            args.allowed_cidrs = Some("2001:db8::5".into());
            args.trust_proxy = "1".into();
        });
        assert_eq!(
            code_of(setup, Some(KEY), &[("x-forwarded-for", line)]).await,
            Code::Ok,
            "{line}"
        );
    }
}

#[tokio::test]
async fn sec09_a_header_that_is_not_trusted_or_not_an_address_denies() {
    for (hops, line) in [("0", "10.0.0.5"), ("1", "unknown")] {
        let setup = setup().with(|args| {
            args.allowed_cidrs = Some("10.0.0.0/8".into());
            args.trust_proxy = hops.into();
        });
        let code = code_of(setup, Some(KEY), &[("x-forwarded-for", line)]).await;
        assert_eq!(code, Code::PermissionDenied, "{hops} {line}");
    }
}

#[tokio::test]
async fn sec10_health_needs_no_key_and_no_address_and_only_health() {
    let setup = setup().with(|args| args.allowed_cidrs = Some("10.0.0.0/8".into()));
    let running = setup.serve(&group(&["echo"])).await;
    let mut health = HealthClient::new(running.channel().await);
    for service in ["", "ramen.v1.Mcp", "ramen.v1.Admin"] {
        let request = HealthCheckRequest {
            service: service.into(),
        };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(answer.status, 1, "{service}");
    }
    let request = HealthCheckRequest {
        service: "other".into(),
    };
    assert_eq!(
        health.check(request).await.unwrap_err().code(),
        Code::NotFound
    );
    let client = running.client().await;
    let status = client.try_tool("echo", json!({})).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn health_watch_tells_when_packages_are_loaded() {
    let running = setup().start().await;
    let mut health = HealthClient::new(running.channel().await);
    let mut watch = health
        .watch(HealthCheckRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 2);
    let client = running.client().await;
    let status = client.try_tool("echo", json!({})).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(ramen_proto::is_not_begun(&status), "{status:?}");
    let mut session = client.session().await;
    session.send(&call(1, "echo", json!({}))).await;
    let refused = session.next().await;
    let data = json!({"grpc": "UNAVAILABLE", "notBegun": true});
    assert_eq!(refused["error"]["data"], data, "{refused}");
    running.load(&group(&["echo"]), "one").await;
    assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
}

#[tokio::test]
async fn health_watches_end_in_order_when_the_worker_does() {
    let running = setup().serve(&group(&["echo"])).await;
    let mut health = HealthClient::new(running.channel().await);
    let mut watches = Vec::new();
    for (service, first) in [("", 1), ("ramen.v1.Admin", 1), ("other", 3)] {
        let request = HealthCheckRequest {
            service: service.into(),
        };
        let mut watch = health.watch(request).await.unwrap().into_inner();
        assert_eq!(watch.message().await.unwrap().unwrap().status, first);
        watches.push(watch);
    }
    let stopping = tokio::spawn(running.stop());
    for (watch, last) in watches.iter_mut().zip([Some(2), None, None]) {
        let mut seen = None;
        // An end that is cut off would be an error.
        while let Some(message) = watch.message().await.unwrap() {
            seen = Some(message.status);
        }
        assert_eq!(seen, last);
    }
    stopping.await.unwrap();
}

#[tokio::test]
async fn keys_are_read_again_without_a_restart() {
    let setup = setup();
    let keys = setup.dir().join("keys");
    let running = setup.serve(&group(&["echo"])).await;
    let old = running.client().await;
    let new = Client::new(running.channel().await, Some("rmk_new"));
    old.text("echo", json!({})).await;
    assert!(new.try_tool("echo", json!({})).await.is_err());
    std::fs::write(&keys, "rmk_new\n").unwrap();
    running.worker().refresh();
    eventually("the new key", async || {
        new.try_tool("echo", json!({})).await.ok()
    })
    .await;
    let status = old.try_tool("echo", json!({})).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(
        running
            .metric("ramen_gate_refusals_total{reason=\"wrong_key\"}")
            .await
            >= 2
    );
}

#[tokio::test]
async fn admin_needs_its_own_key_and_address() {
    let running = setup().serve(&group(&["echo"])).await;
    let mut admin = running.admin().await;
    let refused = admin.status(StatusRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let mut mcp_key = tonic::Request::new(StatusRequest {});
    mcp_key
        .metadata_mut()
        .insert("x-ramen-admin-key", KEY.parse().unwrap());
    assert_eq!(
        admin.status(mcp_key).await.unwrap_err().code(),
        Code::Unauthenticated
    );
    let status = admin
        .status(with_admin_key(StatusRequest {}))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (status.revision.as_str(), status.health.as_str()),
        ("one", "SERVING")
    );
    assert_eq!(status.hosts.len(), 1);
    assert_eq!(status.hosts[0].state, "ready");
    assert!(status.hosts[0].rss_bytes > 0);

    let far = setup().with(|args| args.admin_allowed_cidrs = Some("10.0.0.0/8".into()));
    let running = far.start().await;
    let refused = running
        .admin()
        .await
        .status(with_admin_key(StatusRequest {}))
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);

    let closed = setup()
        .with(|args| args.admin_key_file = None)
        .start()
        .await;
    let refused = closed
        .admin()
        .await
        .status(with_admin_key(StatusRequest {}))
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn unknown_methods_are_behind_the_gate_too() {
    let running = setup().start().await;
    let mut client = tonic::client::Grpc::new(running.channel().await);
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<StatusRequest, StatusRequest>::default();
    let path = http::uri::PathAndQuery::from_static("/grpc.reflection.v1.ServerReflection/X");
    let refused = client
        .unary(tonic::Request::new(StatusRequest {}), path, codec)
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn reflection_is_offered_when_it_is_asked_for_and_to_callers_alone() {
    let ask = async |running: &crate::harness::Running, key: Option<&str>| {
        let mut client = tonic::client::Grpc::new(running.channel().await);
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<StatusRequest, StatusRequest>::default();
        let path = http::uri::PathAndQuery::from_static(
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        );
        let mut request = tonic::Request::new(tokio_stream::empty::<StatusRequest>());
        if let Some(key) = key {
            let value = format!("Bearer {key}").parse().unwrap();
            request.metadata_mut().insert("authorization", value);
        }
        let answer = client.streaming(request, path, codec).await;
        answer.map(drop).map_err(|status| status.code())
    };
    let off = setup().start().await;
    assert_eq!(ask(&off, Some(KEY)).await, Err(Code::Unimplemented));
    let on = setup()
        .with(|args| args.reflection = "1".into())
        .start()
        .await;
    assert_eq!(ask(&on, Some(KEY)).await, Ok(()));
    assert_eq!(ask(&on, None).await, Err(Code::Unauthenticated));
}
