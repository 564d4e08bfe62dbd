//! The gateway against the real API: what it learns of groups, and when. Workers are real and their pods are played.

use std::time::Duration;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{self as core, Pod, Secret};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use ramen_crds::McpGroup;
use ramen_e2e::{
    Account, Audit, Fault, Gateway, Group, HttpCaller, HttpRefusal, Namespace, Proxy, comes_true,
    condition, crd, gone, with_temp_ns,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;

use super::operator::rig::{self, Rig, now, secret};

async fn says(caller: &HttpCaller, text: &str) -> bool {
    caller.tool("say", json!({})).await == Ok(text.to_owned())
}

async fn is_refused(caller: &HttpCaller, status: u16) -> bool {
    caller.tool("say", json!({})).await == Err(HttpRefusal::Status(status))
}

/// A namespace for the gateway, beside that of the rig, whose operator serves it from now on.
async fn gateway(rig: &mut Rig) -> anyhow::Result<(Namespace, Gateway)> {
    let edge = Namespace {
        client: rig.namespace.client.clone(),
        name: format!("{}-edge", rig.namespace.name),
    };
    let all = Api::<core::Namespace>::all(edge.client.clone());
    let form = json!({ "metadata": { "name": edge.name, "labels": { "ramen.dev/e2e": "true" } } });
    all.create(&PostParams::default(), &serde_json::from_value(form)?)
        .await?;
    rig.account.serves_gateways_in(&edge).await?;
    rig.operator.stop().await?;
    rig.operator
        .set("RAMEN_OPERATOR_GATEWAY_NAMESPACE", &edge.name);
    rig.operator.up().await?;
    let account = Account::gateway(&edge, &rig.namespace).await?;
    let dir = rig.dir.path().join("gateway");
    let gateway = Gateway::start(&account, &account.server, &rig.namespace, &dir).await?;
    Ok((edge, gateway))
}

/// Plays the controller of `EndpointSlice`s until it is dropped: the real one leaves out pods that are on no node.
fn endpoints(group: &Group, zones: &'static [&'static str]) -> JoinSet<()> {
    let group = group.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut beat = tokio::time::interval(Duration::from_millis(100));
        loop {
            beat.tick().await;
            // The API server may be away; then nothing is known to have changed.
            let Ok(pods) = group.pods().await else { continue };
            for zone in zones {
                let in_zone = pods
                    .iter()
                    .filter(|pod| pod.labels().get("ramen.dev/zone").map(String::as_str) == Some(*zone));
                let ends: Vec<_> = in_zone
                    .filter_map(|pod| {
                        let address = pod.status.as_ref()?.pod_ip.as_deref()?;
                        let ready = condition::<Pod>("Ready", "True")(Some(pod));
                        let pod = json!({ "kind": "Pod", "uid": pod.uid() });
                        Some(json!({
                            "addresses": [address], "conditions": { "ready": ready }, "targetRef": pod,
                        }))
                    })
                    .collect();
                let object = slice(&group.name, zone, &ends);
                let name = format!("{}-{zone}-played", group.name);
                let _ = group.namespace.apply::<EndpointSlice>(&name, object).await;
            }
        }
    });
    tasks
}

/// Callers of these tests are on this machine; the workers' own ranges would not let the gateway in.
fn near(rig: &Rig, zones: &Value) -> Value {
    let mut spec = Group::spec(&rig.git.url(), 1);
    spec["network"]["allowedCIDRs"] = json!(["127.0.0.0/8"]);
    spec["zones"] = zones.clone();
    spec
}

/// The pods of a zone are told apart from those of the other: of one the gateway may have heard later.
async fn answers_in(caller: &HttpCaller, zone: &str) -> anyhow::Result<()> {
    let there = caller.clone().header("ramen-zone", zone);
    comes_true(&format!("{zone} answers"), async || {
        Ok(says(&there, "one").await)
    })
    .await
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn groups_keys_and_ranges_come_and_go_without_a_restart() {
    rig::for_real(async |rig| {
        let (edge, gateway) = gateway(rig).await?;
        let ns = rig.namespace.name.clone();
        let stranger = gateway.caller(&ns, "soup", "rmk_stranger");
        assert!(is_refused(&stranger, 401).await, "there is no group yet");

        let commit = rig.push("one")?;
        let zones = json!([{ "name": "east", "replicas": 1 }, { "name": "west", "replicas": 1 }]);
        let group = Group::apply(&rig.namespace, "soup", near(rig, &zones)).await?;
        let _endpoints = endpoints(&group, &["east", "west"]);
        group.serves(&commit).await?;
        let caller = gateway.caller(&ns, "soup", &group.key().await?);
        let served = comes_true("the new group is served", async || {
            Ok(says(&caller, "one").await)
        });
        served.await.with_context(|| gateway.log())?;
        assert!(is_refused(&stranger, 401).await);
        // What the Secret holds is no key.
        let secrets = edge.api::<Secret>();
        let left = secrets.get(&format!("ramen-gateway.{ns}.soup")).await?;
        let callers = left.data.unwrap_or_default().remove("callers");
        let callers = callers.map(|text| text.0).unwrap_or_default();
        let callers = String::from_utf8(callers)?;
        let digest = callers.split_whitespace().next().unwrap_or_default();
        assert!(digest.len() == 64 && !callers.contains("rmk_"), "{callers}");

        // By headers, and in one zone.
        let by_header = caller.clone().path("/mcp");
        for name in [format!("{ns}/soup"), "soup".to_owned()] {
            let by_header = by_header.clone().header("ramen-group", &name);
            assert!(says(&by_header, "one").await, "{name}");
        }
        for zone in ["east", "west"] {
            answers_in(&caller, zone).await?;
        }
        let nowhere = caller.clone().header("ramen-zone", "north");
        let refused = nowhere.tool("say", json!({})).await.unwrap_err();
        let HttpRefusal::Rpc(503, error) = &refused else {
            anyhow::bail!("{refused}");
        };
        assert_eq!(error["data"]["grpc"], "UNAVAILABLE");

        // Narrower ranges count at once, before any pod has rolled.
        group
            .patch(json!({ "network": { "allowedCIDRs": ["192.0.2.0/24"] } }))
            .await?;
        comes_true("the caller's address is refused", async || {
            Ok(is_refused(&caller, 403).await)
        })
        .await?;
        group
            .patch(json!({ "network": { "allowedCIDRs": ["127.0.0.0/8"] } }))
            .await?;
        comes_true(
            "it is let in again",
            async || Ok(says(&caller, "one").await),
        )
        .await?;

        // Keys of somebody's own Secret take the place of ours; one that is taken out is revoked.
        let two = secret(&[("ana", "rmk_ana"), ("bo", "rmk_bo")]);
        rig.namespace.apply::<Secret>("callers", two).await?;
        group
            .patch(json!({ "keys": { "secretRef": { "name": "callers" } } }))
            .await?;
        let (ana, bo) = ("rmk_ana", "rmk_bo");
        let (ana, bo) = (
            gateway.caller(&ns, "soup", ana),
            gateway.caller(&ns, "soup", bo),
        );
        comes_true("the named keys count", async || {
            Ok(says(&ana, "one").await && says(&bo, "one").await)
        })
        .await?;
        assert!(is_refused(&caller, 401).await);
        let without = Patch::Merge(json!({ "data": { "bo": null } }));
        let secrets = rig.namespace.api::<Secret>();
        secrets
            .patch("callers", &PatchParams::default(), &without)
            .await?;
        comes_true(
            "the key is revoked",
            async || Ok(is_refused(&bo, 401).await),
        )
        .await?;
        assert!(says(&ana, "one").await);

        // A push goes live behind the same address.
        let second = rig.push("two")?;
        group.look(&now()).await?;
        group.serves(&second).await?;
        assert!(says(&ana, "two").await);

        // And away, with everything that was left for the gateway.
        rig.namespace
            .api::<McpGroup>()
            .delete("soup", &DeleteParams::default())
            .await?;
        comes_true(
            "the group is gone",
            async || Ok(is_refused(&ana, 401).await),
        )
        .await?;
        edge.until::<Secret>(&format!("ramen-gateway.{ns}.soup"), gone)
            .await?;
        let log = gateway.log() + &rig.operator.log();
        for key in ["rmk_ana", "rmk_bo"] {
            assert!(!log.contains(key), "a key is in a log");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_group_that_goes_while_no_operator_looks_leaves_nothing_when_one_does() {
    rig::on_paper(async |rig| {
        let (edge, gateway) = gateway(rig).await?;
        let (group, _) = rig.live("soup").await?;
        let name = format!("ramen-gateway.{}.soup", rig.namespace.name);
        edge.until::<Secret>(&name, |secret: Option<&Secret>| secret.is_some())
            .await?;
        let key = group.key().await?;
        let caller = gateway.caller(&rig.namespace.name, "soup", &key);
        // The address is not in the group's ranges: 403 says that the key is known.
        comes_true("the key is known", async || {
            Ok(is_refused(&caller, 403).await)
        })
        .await?;

        rig.operator.kill().await?;
        let groups = rig.namespace.api::<McpGroup>();
        groups.delete("soup", &DeleteParams::default()).await?;
        // The gateway needs no operator to see that.
        comes_true("nobody gets in any more", async || {
            Ok(is_refused(&caller, 401).await)
        })
        .await?;
        rig.operator.up().await?;
        edge.until::<Secret>(&name, gone).await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn an_api_server_that_is_away_changes_nothing_and_what_was_missed_comes_after() {
    rig::on_paper(async |rig| {
        let (edge, first) = gateway(rig).await?;
        drop(first);
        let account = Account::gateway(&edge, &rig.namespace).await?;
        let proxy = Proxy::start().await?;
        let dir = rig.dir.path().join("gateway");
        let gateway = Gateway::start(&account, &proxy.url(), &rig.namespace, &dir).await?;
        let (soup, _) = rig.live("soup").await?;
        let ns = rig.namespace.name.clone();
        let to_soup = gateway.caller(&ns, "soup", &soup.key().await?);
        // The address is not in the group's ranges: 403 says that the key is known.
        let known = comes_true("the key is known", async || {
            Ok(is_refused(&to_soup, 403).await)
        });
        known.await.with_context(|| gateway.log())?;

        proxy.script(|_| Some(Fault::internal()));
        proxy.cut();
        let mut late = Gateway::begin(&account, &proxy.url(), &rig.namespace, &dir)?;
        comes_true("one that starts now lives", async || {
            Ok(late.page("/healthz").await == Some(200))
        })
        .await?;
        assert_eq!(late.page("/readyz").await, Some(503));
        let (stew, _) = rig.live("stew").await?;
        let groups = rig.namespace.api::<McpGroup>();
        groups.delete("soup", &DeleteParams::default()).await?;
        rig.namespace.until::<McpGroup>("soup", gone).await?;
        // What was known is served on, by one that is as ready as before.
        assert!(is_refused(&to_soup, 403).await);
        assert_eq!(gateway.page("/readyz").await, Some(200));
        assert_eq!(late.page("/readyz").await, Some(503));

        proxy.heal();
        let to_stew = gateway.caller(&ns, "stew", &stew.key().await?);
        let healed = comes_true("both see what happened", async || {
            Ok(is_refused(&to_soup, 401).await && is_refused(&to_stew, 403).await)
        });
        healed.await.with_context(|| gateway.log())?;
        late.ready().await?;
        assert!(is_refused(&to_stew.at(&late.url), 403).await);
        assert!(is_refused(&to_soup.at(&late.url), 401).await);
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn sec_a_gateway_asks_for_nothing_that_it_may_not_and_uses_every_right() {
    rig::on_paper(async |rig| {
        let audit = Audit::start()?;
        let (edge, gateway) = gateway(rig).await?;
        let account = format!("system:serviceaccount:{}:ramen-gateway", edge.name);
        drop(gateway);
        let used = |audit: &Audit| -> anyhow::Result<Vec<(String, String, u16)>> {
            let calls = audit.calls()?.into_iter();
            let ours = calls.filter(|call| call.user == account);
            let mut used: Vec<_> = ours
                .map(|call| (call.resource.clone(), call.verb.clone(), call.code))
                .collect();
            used.sort();
            used.dedup();
            Ok(used)
        };
        let wanted: Vec<_> = ["endpointslices", "mcpgroups", "secrets"]
            .into_iter()
            .flat_map(|resource| ["list", "watch"].map(|verb| (resource, verb)))
            .map(|(resource, verb)| (resource.to_owned(), verb.to_owned(), 200))
            .collect();
        // A watch is in the log once it has ended.
        comes_true(
            "every right is used and no other was asked for",
            async || Ok(used(&audit).is_ok_and(|used| used == wanted)),
        )
        .await
    })
    .await;
}

/// An `EndpointSlice` as its controller writes it for the Service of a zone.
fn slice(group: &str, zone: &str, ends: &[Value]) -> Value {
    json!({
        "metadata": { "labels": {
            "app.kubernetes.io/managed-by": "ramen-operator", "app.kubernetes.io/component": "worker",
            "ramen.dev/group": group, "ramen.dev/zone": zone,
        }},
        "addressType": "IPv4",
        "ports": [{ "name": "grpc", "port": 50051, "protocol": "TCP" }],
        "endpoints": ends,
    })
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn slices_of_a_real_controller_carry_the_labels_that_the_gateway_selects_by() {
    rig::on_paper(async |rig| {
        let (_, commit) = rig.live("soup").await?;
        assert!(!commit.is_empty());
        let slices = rig.namespace.api::<EndpointSlice>();
        let ours = ListParams::default().labels(&ramen_crds::gateway::endpoints());
        comes_true("there is a slice of the zone", async || {
            let found = slices.list(&ours).await?;
            let zones: Vec<_> = found
                .iter()
                .filter_map(|slice| slice.labels().get("ramen.dev/zone").cloned())
                .collect();
            Ok(zones == ["default"])
        })
        .await
    })
    .await;
}

/// Groups of this test.
const CROWD: usize = 1000;

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_thousand_groups_are_known_after_a_restart_and_fit_into_a_bounded_memory() {
    with_temp_ns(ramen_e2e::Tier::T2, async |namespace| {
        crd(&namespace.client).await?;
        let make = async |n: usize| -> anyhow::Result<()> {
            let name = format!("group-{n}");
            let made = namespace
                .apply::<McpGroup>(
                    &name,
                    json!({ "spec": {
                        "source": { "url": "https://git.example/x.git" },
                        "network": { "allowedCIDRs": ["127.0.0.0/8"] },
                    }}),
                )
                .await?;
            let digest = hex::encode(Sha256::digest(format!("rmk_{n}")));
            let uid = made.uid().unwrap_or_default();
            namespace
                .apply::<Secret>(
                    &ramen_crds::gateway::secret_name(&namespace.name, &name),
                    json!({
                        "metadata": { "labels": {
                            "app.kubernetes.io/managed-by": "ramen-operator",
                            "app.kubernetes.io/component": "gateway-group",
                            "ramen.dev/namespace": namespace.name, "ramen.dev/group": name,
                            "ramen.dev/group-uid": uid,
                        }},
                        "stringData": { "callers": digest, "worker-key": "rmk_own" },
                    }),
                )
                .await?;
            let address = format!("10.128.{}.{}", n / 250, n % 250);
            let end = json!({ "addresses": [address], "conditions": { "ready": true } });
            namespace
                .apply::<EndpointSlice>(&name, slice(&name, "default", &[end]))
                .await?;
            Ok(())
        };
        futures::stream::iter(0..CROWD)
            .map(make)
            .buffer_unordered(16)
            .try_collect::<Vec<()>>()
            .await?;
        let account = Account::gateway(&namespace, &namespace).await?;
        let dir = tempfile::tempdir()?;
        let gateway = Gateway::start(&account, &account.server, &namespace, dir.path()).await?;
        // Ready means that all of them are known: nobody is told that a group is not there.
        for n in [0, CROWD / 2, CROWD - 1] {
            let name = format!("group-{n}");
            let caller = gateway.caller(&namespace.name, &name, &format!("rmk_{n}"));
            // Nobody listens at the address of the slice.
            let refused = caller.tool("say", json!({})).await.unwrap_err();
            assert!(matches!(refused, HttpRefusal::Rpc(503, _)), "{refused}");
            let other = gateway.caller(&namespace.name, &name, "rmk_other");
            assert!(is_refused(&other, 401).await);
        }
        let pid = gateway.pid().unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        let mib = kib
            .and_then(|kib| kib.parse::<u64>().ok())
            .unwrap_or(u64::MAX)
            / 1024;
        eprintln!("{CROWD} groups: {mib} MiB at most");
        assert!(mib < 150, "{mib} MiB for {CROWD} groups");
        Ok(())
    })
    .await;
}
