//! The platform's operations through a gateway that may do no more than the chart lets it.

use std::{net::IpAddr, net::Ipv4Addr, sync::Arc};

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    core::v1::Secret,
    rbac::v1::Role,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use ramen_crds::McpGroup;
use ramen_e2e::{Account, Namespace, serving};
use ramen_gateway::{
    Groups,
    callers::{Callers, Limits},
    door::Door,
    operations::{Cluster, Grant, Keyring, Level, Operations, Rule, platform},
    origin::Sites,
};
use ramen_group::{AddressRule, CidrSet};
use ramen_redact::KeySet;
use serde_json::{Value, json};

use super::rig;

const READER: &str = "rmk_reader";
const WRITER: &str = "rmk_writer";

/// Gateway of one namespace, as far as operations go.
struct Desk {
    operations: Operations,
    door: Door,
}

impl Desk {
    async fn open(namespace: &Namespace) -> anyhow::Result<Self> {
        let account = Account::gateway(namespace, namespace).await?;
        let client = account.client().await?;
        let cluster = Cluster::new(client, vec![namespace.name.clone()], "gateway-1".to_owned());
        let keyring = Arc::<Keyring>::default();
        let grant = |name: &str, key: &str, level: Level| Grant {
            name: name.to_owned(),
            keys: KeySet::from_lines(key),
            rule: Some(Rule::everywhere(level)),
        };
        keyring.set(vec![
            grant("rita", READER, Level::Read),
            grant("walt", WRITER, Level::Write),
        ]);
        let ranges = CidrSet::parse_list("127.0.0.0/8").unwrap_or_default();
        let operations = platform::mount(
            Arc::new(cluster),
            Groups::default(),
            Arc::default(),
            keyring,
            ranges,
            "",
        )?;
        let door = Door {
            address: AddressRule::default(),
            sites: Sites {
                loopback: true,
                ..Sites::default()
            },
            callers: Callers::new(Limits::default()),
        };
        Ok(Self { operations, door })
    }

    /// `POST /api/v1/<path>`: the status and the answer.
    async fn ask(&self, key: &str, path: &str, input: Value) -> anyhow::Result<(u16, Value)> {
        let request = http::Request::post(format!("/api/v1/{path}"))
            .header("host", "localhost")
            .header("authorization", format!("Bearer {key}"))
            .header("content-type", "application/json")
            .body(Full::new(bytes::Bytes::from(input.to_string())))?;
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let answer = self.operations.api(&self.door, peer, path, request).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok((status, serde_json::from_slice(&body)?))
    }

    /// An operation that goes well.
    async fn done(&self, path: &str, input: Value) -> anyhow::Result<Value> {
        let (status, answer) = self.ask(WRITER, path, input).await?;
        anyhow::ensure!(status == 200, "{path}: {status} {answer}");
        Ok(answer)
    }

    /// The code of an operation that does not.
    async fn refused(&self, key: &str, path: &str, input: Value) -> anyhow::Result<String> {
        let (status, answer) = self.ask(key, path, input).await?;
        anyhow::ensure!(status >= 400, "{path}: {status} {answer}");
        let code = answer["error"]["code"].as_str();
        Ok(code.context("no envelope")?.to_owned())
    }
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn an_operator_of_the_platform_deploys_goes_back_and_freezes_a_group() {
    rig::on_paper(async |rig| {
        let (group, first) = rig.live("soup").await?;
        let name = format!("{}/soup", rig.namespace.name);
        let of = |more: Value| {
            let mut input = json!({ "group": name });
            for (field, value) in more.as_object().into_iter().flatten() {
                input[field] = value.clone();
            }
            input
        };
        let desk = Desk::open(&rig.namespace).await?;
        let listed = desk.done("groups/list", json!({})).await?;
        assert_eq!(listed["groups"][0]["group"], name);
        assert_eq!(listed["groups"][0]["ready"], true);

        // Nothing to go back to, and nothing moves while it is frozen.
        let alone = desk
            .refused(WRITER, "groups/rollback", of(json!({})))
            .await?;
        assert_eq!(alone, "conflict");
        desk.done("groups/suspend", of(json!({}))).await?;
        let second = rig.push("two")?;
        let frozen = desk
            .refused(WRITER, "groups/deploy", of(json!({ "ref": "main" })))
            .await?;
        assert_eq!(frozen, "conflict");
        desk.done("groups/resume", of(json!({}))).await?;
        group.serves(&second).await?;

        desk.done("groups/rollback", of(json!({}))).await?;
        let back = group.serves(&first).await?;
        let reference = back.spec.source.reference.clone().unwrap_or_default();
        assert_eq!(reference.commit.as_deref(), Some(&*first));
        assert_eq!(reference.branch, None);
        // A name of which only the repository knows what it is.
        desk.done("groups/deploy", of(json!({ "ref": "main" })))
            .await?;
        let forth = group.serves(&second).await?;
        assert!(serving(&forth).starts_with("main@"), "{forth:?}");
        desk.done("groups/deploy", of(json!({ "ref": first })))
            .await?;
        let pinned = group.serves(&first).await?;

        Box::pin(is_told(&desk, &name, pinned)).await
    })
    .await;
}

/// Who asked for what is at the group, in its events, and nowhere with a key.
async fn is_told(desk: &Desk, name: &str, group: McpGroup) -> anyhow::Result<()> {
    let annotations = group.metadata.annotations.unwrap_or_default();
    let by = annotations.get("ramen.dev/changed-by").map(String::as_str);
    assert!(by.is_some_and(|by| by.starts_with("walt/key:")), "{by:?}");
    let shown = desk.done("groups/get", json!({ "group": name })).await?;
    assert_eq!(shown["changedBy"].as_str(), by);
    let events = desk.done("groups/events", json!({ "group": name })).await?;
    let events = events["events"].as_array().cloned().unwrap_or_default();
    let ours: Vec<_> = events
        .iter()
        .filter(|event| event["by"] == "ramen.dev/ramen-gateway")
        .filter_map(|event| event["reason"].as_str())
        .collect();
    for reason in [
        "DeployAsked",
        "RollbackAsked",
        "SuspendAsked",
        "ResumeAsked",
    ] {
        assert!(ours.contains(&reason), "{reason} of {events:?}");
    }
    assert!(!json!(events).to_string().contains("rmk_"));
    Ok(())
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_new_key_is_made_by_the_operator_and_shown_to_nobody() {
    rig::on_paper(async |rig| {
        let (group, _) = rig.live("soup").await?;
        let desk = Desk::open(&rig.namespace).await?;
        let input = json!({ "group": format!("{}/soup", rig.namespace.name) });
        let old = group.key().await?;
        let answer = desk.done("keys/rotate", input.clone()).await?;
        rig.namespace
            .until::<Secret>("soup-mcp-keys", |secret: Option<&Secret>| {
                let data = secret.and_then(|secret| secret.data.as_ref());
                data.and_then(|data| data.get("key"))
                    .is_some_and(|key| key.0 != old.as_bytes())
            })
            .await?;
        let new = group.key().await?;
        assert!(!answer.to_string().contains(&new), "{answer}");
        // Whatever else happens to the group, that was once.
        group.look("again").await?;
        group
            .until(|group| {
                let status = group.status.as_ref();
                status.and_then(|status| status.last_requested_at.as_deref()) == Some("again")
            })
            .await?;
        assert_eq!(group.key().await?, new);
        // Keys of the group's own are its own matter.
        let own = json!({ "stringData": { "a": "rmk_own" } });
        rig.namespace.apply::<Secret>("ours", own).await?;
        group
            .patch(json!({ "keys": { "secretRef": { "name": "ours" } } }))
            .await?;
        assert_eq!(
            desk.refused(WRITER, "keys/rotate", input).await?,
            "conflict"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn what_the_api_server_refuses_is_told_in_the_envelope() {
    rig::on_paper(async |rig| {
        rig.live("soup").await?;
        let desk = Desk::open(&rig.namespace).await?;
        let input = json!({ "group": format!("{}/soup", rig.namespace.name) });
        let denied = desk
            .refused(READER, "groups/suspend", input.clone())
            .await?;
        assert_eq!(denied, "forbidden", "a key that only reads");
        let nowhere = json!({ "group": format!("{}/none", rig.namespace.name) });
        assert_eq!(
            desk.refused(READER, "groups/get", nowhere).await?,
            "not_found"
        );
        let elsewhere = json!({ "group": "kube-system/soup" });
        assert_eq!(
            desk.refused(READER, "groups/get", elsewhere).await?,
            "not_found"
        );

        // A policy of the cluster that lets no group be frozen.
        let policy = Policy::forbid_suspend(rig).await?;
        let (status, answer) = loop {
            let (status, answer) = desk.ask(WRITER, "groups/suspend", input.clone()).await?;
            // A policy takes a moment to be in force.
            if status != 200 {
                break (status, answer);
            }
        };
        policy.remove().await?;
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("invalid")));
        let told = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(told.contains("no freezing here"), "{told}");

        // A gateway that may only read.
        let rule = json!({ "apiGroups": ["ramen.dev"], "resources": ["mcpgroups"], "verbs": ["get", "list"] });
        let reading = json!({ "rules": [rule] });
        rig.namespace.apply::<Role>("ramen-gateway", reading).await?;
        let (status, answer) = loop {
            let (status, answer) = desk.ask(WRITER, "groups/resume", input.clone()).await?;
            // So does a role.
            if status == 403 {
                break (status, answer);
            }
        };
        assert_eq!(
            (status, &answer["error"]["code"]),
            (403, &json!("forbidden"))
        );
        assert_eq!(desk.ask(READER, "groups/get", input).await?.0, 200);
        Ok(())
    })
    .await;
}

/// A policy of the cluster for one namespace.
struct Policy {
    name: String,
    policies: Api<ValidatingAdmissionPolicy>,
    bindings: Api<ValidatingAdmissionPolicyBinding>,
}

impl Policy {
    async fn forbid_suspend(rig: &rig::Rig) -> anyhow::Result<Self> {
        let client = &rig.namespace.client;
        let policy = Self {
            name: format!("awake.{}", rig.namespace.name),
            policies: Api::all(client.clone()),
            bindings: Api::all(client.clone()),
        };
        let apply = PatchParams::apply("ramen-e2e").force();
        let object = |kind: &str, spec: Value| {
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": { "name": policy.name }, "spec": spec,
            })
        };
        let rule = object(
            "ValidatingAdmissionPolicy",
            json!({
                "matchConstraints": { "resourceRules": [{
                    "apiGroups": ["ramen.dev"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["mcpgroups"],
                }]},
                "validations": [{
                    "expression": "!has(object.spec.source.suspend) || !object.spec.source.suspend",
                    "message": "no freezing here",
                }],
            }),
        );
        let binding = object(
            "ValidatingAdmissionPolicyBinding",
            json!({
                "policyName": policy.name, "validationActions": ["Deny"],
                "matchResources": { "namespaceSelector": { "matchLabels": {
                    "kubernetes.io/metadata.name": rig.namespace.name,
                }}},
            }),
        );
        policy
            .policies
            .patch(&policy.name, &apply, &Patch::Apply(rule))
            .await?;
        policy
            .bindings
            .patch(&policy.name, &apply, &Patch::Apply(binding))
            .await?;
        Ok(policy)
    }

    async fn remove(self) -> anyhow::Result<()> {
        let params = DeleteParams::default();
        self.bindings.delete(&self.name, &params).await?;
        self.policies.delete(&self.name, &params).await?;
        Ok(())
    }
}
