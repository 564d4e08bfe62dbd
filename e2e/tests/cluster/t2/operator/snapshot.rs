//! The children of a group without what may differ between two groups of the same spec: identities, versions, times,
//! the group's own name, and random keys.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::Context as _;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::Deployment,
        autoscaling::v2::HorizontalPodAutoscaler,
        batch::v1::Job,
        core::v1::{ConfigMap, Secret, Service, ServiceAccount},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
    },
};
use kube::{
    Resource, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use ramen_e2e::{Group, Namespace};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Kind and name → object.
pub(crate) type Snapshot = BTreeMap<String, Value>;

/// Everything that is labelled as the group's, deploy jobs and their tokens apart.
pub(crate) async fn children(group: &Group) -> anyhow::Result<Snapshot> {
    let mut all = Snapshot::new();
    add::<ServiceAccount>(group, &mut all).await?;
    add::<Secret>(group, &mut all).await?;
    add::<ConfigMap>(group, &mut all).await?;
    add::<NetworkPolicy>(group, &mut all).await?;
    add::<Service>(group, &mut all).await?;
    add::<PodDisruptionBudget>(group, &mut all).await?;
    add::<Deployment>(group, &mut all).await?;
    add::<HorizontalPodAutoscaler>(group, &mut all).await?;
    all.retain(|_, object| {
        object["metadata"]["labels"]["app.kubernetes.io/component"] != "deploy"
            || object["kind"] == "NetworkPolicy"
    });
    scaled(&mut all);
    Ok(all)
}

/// Deletes a child by kind and name, if it is there.
pub(crate) async fn delete(namespace: &Namespace, child: &str) -> anyhow::Result<()> {
    let (kind, name) = child.split_once(' ').context("a kind and a name")?;
    match kind {
        "ServiceAccount" => gone::<ServiceAccount>(namespace, name).await,
        "Secret" => gone::<Secret>(namespace, name).await,
        "ConfigMap" => gone::<ConfigMap>(namespace, name).await,
        "NetworkPolicy" => gone::<NetworkPolicy>(namespace, name).await,
        "Service" => gone::<Service>(namespace, name).await,
        "PodDisruptionBudget" => gone::<PodDisruptionBudget>(namespace, name).await,
        "Deployment" => gone::<Deployment>(namespace, name).await,
        "HorizontalPodAutoscaler" => gone::<HorizontalPodAutoscaler>(namespace, name).await,
        other => anyhow::bail!("no kind of children: {other}"),
    }
}

async fn gone<K>(namespace: &Namespace, name: &str) -> anyhow::Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let deleted = namespace
        .api::<K>()
        .delete(name, &DeleteParams::background())
        .await;
    match deleted {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The names of the group's deploy jobs.
pub(crate) async fn jobs(group: &Group) -> anyhow::Result<Vec<String>> {
    let listed = group.namespace.api::<Job>().list(&of(group)).await?;
    Ok(listed.iter().map(kube::ResourceExt::name_any).collect())
}

/// How many deploy jobs there are for a commit.
pub(crate) async fn jobs_for(group: &Group, commit: &str) -> anyhow::Result<usize> {
    let listed = group.namespace.api::<Job>().list(&of(group)).await?;
    let revisions = listed
        .iter()
        .filter_map(|job| job.annotations().get("ramen.dev/revision"));
    Ok(revisions
        .filter(|revision| revision.ends_with(commit))
        .count())
}

fn of(group: &Group) -> ListParams {
    ListParams::default().labels(&format!("ramen.dev/group={}", group.name))
}

async fn add<K>(group: &Group, all: &mut Snapshot) -> anyhow::Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    for object in group.namespace.api::<K>().list(&of(group)).await? {
        let name = object.name_any().replace(&group.name, "GROUP");
        let kind = K::kind(&());
        let mut object = serde_json::to_value(&object)?;
        object["kind"] = Value::from(kind.as_ref());
        normalize(&mut object)?;
        // The group's name is in names, labels, variables and messages.
        let text = object
            .to_string()
            .replace(&group.name, "GROUP")
            .replace(&group.name.to_uppercase(), "GROUP");
        let known = all.insert(format!("{kind} {name}"), serde_json::from_str(&text)?);
        anyhow::ensure!(known.is_none(), "two of {kind} {name}");
    }
    Ok(())
}

fn normalize(object: &mut Value) -> anyhow::Result<()> {
    let whole = object.as_object_mut().context("no object")?;
    whole.remove("status");
    let meta = object["metadata"].as_object_mut().context("no metadata")?;
    for field in [
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "managedFields",
    ] {
        meta.remove(field);
    }
    for owner in object["metadata"]["ownerReferences"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        owner["uid"] = Value::Null;
    }
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        // The Deployment controller's count.
        annotations.remove("deployment.kubernetes.io/revision");
        if annotations.is_empty() {
            object["metadata"]
                .as_object_mut()
                .context("no metadata")?
                .remove("annotations");
        }
    }
    match object["kind"].as_str() {
        Some("Secret") => {
            for value in object["data"].as_object_mut().into_iter().flatten() {
                // Random: only that there is one.
                *value.1 = Value::from(value.1.as_str().is_some_and(|value| !value.is_empty()));
            }
        }
        Some("Deployment") => {
            let hash = &mut object["spec"]["template"]["metadata"]["annotations"]["ramen.dev/secrets-hash"];
            // Of the variables' names, too, which hold the group's.
            if hash.is_string() {
                *hash = Value::from(true);
            }
        }
        Some("ConfigMap") => memory(object)?,
        Some("Service") => {
            for address in ["clusterIP", "clusterIPs"] {
                if object["spec"][address] != "None" {
                    object["spec"][address] = Value::Null;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// What the operator remembers differs by what was before; what serves must not.
fn memory(object: &mut Value) -> anyhow::Result<()> {
    let Some(text) = object["data"]["memory.json"].as_str() else {
        return Ok(());
    };
    let saved: Value = serde_json::from_str(text)?;
    let memory = &saved["memory"];
    let mut settings = memory["settings"].clone();
    // Made with a random key.
    if settings["secrets"].is_string() {
        settings["secrets"] = Value::from(true);
    }
    object["data"]["memory.json"] = serde_json::json!({
        "serving": memory["serving"],
        "observed": memory["observed"],
        "attempting": memory["attempting"],
        "settings": settings,
    });
    Ok(())
}

/// The replicas of a Deployment with an autoscaler are the autoscaler's.
fn scaled(all: &mut Snapshot) {
    let scaled: Vec<String> = all
        .iter()
        .filter(|(_, object)| object["kind"] == "HorizontalPodAutoscaler")
        .filter_map(|(_, object)| object["spec"]["scaleTargetRef"]["name"].as_str())
        .map(|name| format!("Deployment {name}"))
        .collect();
    for name in scaled {
        if let Some(deployment) = all.get_mut(&name) {
            deployment["spec"]["replicas"] = Value::Null;
        }
    }
}

/// What differs, in words; empty when nothing does.
pub(crate) fn difference(left: &Snapshot, right: &Snapshot) -> String {
    let mut words = String::new();
    let names: std::collections::BTreeSet<_> = left.keys().chain(right.keys()).collect();
    for name in names {
        match (left.get(name), right.get(name)) {
            (Some(left), Some(right)) => compare(name, left, right, &mut words),
            (Some(_), None) => {
                let _ = writeln!(words, "{name}: only in the first");
            }
            (None, Some(_)) => {
                let _ = writeln!(words, "{name}: only in the second");
            }
            (None, None) => {}
        }
    }
    words
}

fn compare(path: &str, left: &Value, right: &Value, words: &mut String) {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let names: std::collections::BTreeSet<_> = left.keys().chain(right.keys()).collect();
            for name in names {
                let value = |map: &serde_json::Map<String, Value>| {
                    map.get(name).cloned().unwrap_or_default()
                };
                compare(
                    &format!("{path}.{name}"),
                    &value(left),
                    &value(right),
                    words,
                );
            }
        }
        (left, right) if left != right => {
            let _ = writeln!(words, "{path}:\n  {left}\n  {right}");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_difference_is_named_where_it_is() {
        let one = Snapshot::from([("A a".to_owned(), json!({ "spec": { "x": 1, "y": [2] } }))]);
        let two = Snapshot::from([("A a".to_owned(), json!({ "spec": { "x": 1, "y": [3] } }))]);
        assert_eq!(difference(&one, &one), "");
        assert_eq!(difference(&one, &two), "A a.spec.y:\n  [2]\n  [3]\n");
        assert_eq!(
            difference(&one, &Snapshot::new()),
            "A a: only in the first\n"
        );
    }
}
