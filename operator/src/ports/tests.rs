//! Both ports of a replica with and without the lease, over real HTTP and a scripted API server.

use http::Method;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use ramen_crds::McpGroup;
use ramen_source::testing::FreePort;
use serde_json::json;

use super::*;
use crate::names;
use crate::testing::{Server, api, context, web};

/// Of a hook without a body.
fn signature() -> String {
    use hmac::{Hmac, Mac as _};
    let mac = <Hmac<sha2::Sha256> as hmac::Mac>::new_from_slice(b"the-secret").unwrap();
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

fn group(name: &str) -> McpGroup {
    let group = json!({
        "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup",
        "metadata": {"name": name, "namespace": "team-a", "uid": name},
        "spec": {
            "source": {"url": "https://forge.example/acme/library"},
            "network": {"allowedCIDRs": ["10.0.0.0/8"]},
        },
    });
    serde_json::from_value(group).unwrap()
}

#[tokio::test]
async fn a_hook_to_a_replica_without_the_lease_is_passed_on_and_to_the_other_taken() {
    let (client, mut server) = api();
    let (ctx, mut writers, folder) = context(client);
    for name in ["calc", "other"] {
        let guarded = DeserializeGuard(Ok(group(name)));
        writers.groups().apply_watcher_event(&Event::Apply(guarded));
    }
    std::fs::create_dir(folder.path().join("hooks")).unwrap();
    std::fs::write(folder.path().join("hooks/ci.generic"), "the-secret").unwrap();
    let free = [FreePort::new().unwrap(), FreePort::new().unwrap()];
    let [hooks, artifacts] = free.each_ref().map(|port| port.address().unwrap());
    let args = [
        "ramen-operator".to_owned(),
        format!("--hooks-listen={hooks}"),
        format!("--artifacts-listen={artifacts}"),
        format!("--hooks-dir={}", folder.path().join("hooks").display()),
    ];
    let args = <Args as clap::Parser>::parse_from(args);
    let (leads, stop) = (Leads::default(), CancellationToken::new());
    let mut ports = open(&args, &ctx, &leads, "operator-1".to_owned(), &stop)
        .await
        .unwrap();
    let signature = signature();
    let hook = async |name: &str| {
        let headers = [("x-signature", signature.as_str())];
        let path = format!("/v1/hooks/ci/team-a/{name}");
        web::send(hooks, Method::POST, &path, &headers, "")
            .await
            .status
    };
    let report = async || {
        let path = "/v1/deploys/team-a/calc/1/report";
        web::send(artifacts, Method::PUT, path, &[], "")
            .await
            .status
    };

    assert_eq!(hook("calc").await, 202);
    let mark = server.answer(|asked| Server::accepted(asked, "2")).await;
    assert_eq!(
        (mark.verb.as_str(), mark.query.as_str()),
        ("PATCH", "&fieldManager=ramen-operator%2Fhooks")
    );
    assert!(
        mark.path.ends_with("/namespaces/team-a/mcpgroups/calc"),
        "{}",
        mark.path
    );
    let text = mark.body["metadata"]["annotations"][names::HINTED_AT]
        .as_str()
        .unwrap();
    assert!(text.ends_with(" operator-1"), "{text}");
    assert_eq!(
        mark.body.as_object().unwrap().len(),
        1,
        "nothing else is touched"
    );
    let told = async |server: &mut Server, name: &str| {
        let asked = server.answer(|asked| Server::accepted(asked, "2")).await;
        assert_eq!(asked.body["reason"], "HookReceived", "{asked:?}");
        assert_eq!(asked.body["regarding"]["name"], name);
        let note = asked.body["note"].as_str().unwrap();
        assert!(note.contains("receiver ci"), "{note}");
    };
    told(&mut server, "calc").await;
    assert!(!ctx.wake.take_look(&GroupKey::new("team-a", "calc")));
    assert_eq!(
        report().await,
        503,
        "which deploys there are, the other knows"
    );

    leads.begin();
    assert_eq!(hook("other").await, 202);
    assert!(ctx.wake.take_look(&GroupKey::new("team-a", "other")));
    told(&mut server, "other").await;
    assert_eq!(report().await, 401);
    stop.cancel();
    while ports.join_next().await.is_some() {}
}
