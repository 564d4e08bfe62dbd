//! The rules of the kind, as the API server itself judges them: the cases are those of `crds/tests/rules.rs`.

use kube::{
    Api,
    api::{ApiResource, DynamicObject, PostParams},
};
use ramen_crds::{McpGroup, rules};
use ramen_e2e::{Namespace, Tier, crd, with_temp_ns};
use serde_json::{Value, json};

const CASES: &str = include_str!("../../../../crds/tests/rules.json");

/// What the API server says against a group; `None` when it would take it. Nothing is stored.
async fn said(namespace: &Namespace, group: &Value) -> anyhow::Result<Option<String>> {
    let kind = ApiResource::erase::<McpGroup>(&());
    let groups =
        Api::<DynamicObject>::namespaced_with(namespace.client.clone(), &namespace.name, &kind);
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let group: DynamicObject = serde_json::from_value(group.clone())?;
    match groups.create(&dry, &group).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(Some(status.message.clone())),
        Err(error) => Err(error.into()),
    }
}

/// A group with one field set.
fn group(name: &Value, edit: Option<(&str, &Value)>) -> anyhow::Result<Value> {
    let mut group = json!({
        "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup", "metadata": { "name": name },
        "spec": {
            "source": { "url": "https://git.example/team/tools" },
            "network": { "allowedCIDRs": ["10.0.0.0/8"] },
        },
    });
    if let Some((path, value)) = edit {
        let parts = path.rsplit_once('/');
        let (parent, name) = parts.ok_or_else(|| anyhow::anyhow!("{path} has no slash"))?;
        let parent = group.pointer_mut(parent);
        parent.ok_or_else(|| anyhow::anyhow!("{path} has no parent"))?[name] = value.clone();
    }
    Ok(group)
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn ops01_ops02_the_api_server_holds_groups_to_every_rule_of_the_kind() {
    with_temp_ns(Tier::T2, async |namespace| {
        crd(&namespace.client).await?;
        let all: Value = serde_json::from_str(CASES)?;
        let mut broken = Vec::new();
        for case in all["cases"].as_array().into_iter().flatten() {
            let field = case["field"].as_str().unwrap_or_default();
            let edited = |value| group(&json!("calc"), Some((field, value)));
            let taken = said(&namespace, &edited(&case["good"])?).await?;
            assert_eq!(taken, None, "{field} {}", case["good"]);
            let refused = said(&namespace, &edited(&case["bad"])?).await?;
            let Some(refused) = refused else {
                anyhow::bail!("{field} {} is taken", case["bad"]);
            };
            broken.push(refused);
        }
        // No rule is left untried.
        for (rule, message) in rules::ALL.iter().copied().flatten() {
            assert!(
                broken.iter().any(|said| said.contains(message)),
                "{rule} was never broken: {broken:#?}"
            );
        }
        for name in all["names"]["good"].as_array().into_iter().flatten() {
            let taken = said(&namespace, &group(name, None)?).await?;
            assert_eq!(taken, None, "{name}");
        }
        for name in all["names"]["bad"].as_array().into_iter().flatten() {
            let refused = said(&namespace, &group(name, None)?).await?;
            // What no object may be called is refused before any rule is asked.
            let ours = !name.as_str().is_some_and(|name| name.ends_with('-'));
            assert!(
                refused.is_some_and(|said| !ours || said.contains(rules::NAME.1)),
                "{name}"
            );
        }
        Ok(())
    })
    .await;
}
