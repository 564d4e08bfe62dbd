//! Waiting for what should come true, by watching and never by sleeping.

use std::{fmt::Debug, time::Duration};

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api,
    runtime::{WatchStreamExt as _, wait::Condition, watcher::watch_object},
};
use serde::{Serialize, de::DeserializeOwned};

/// Between two questions.
const BEAT: Duration = Duration::from_millis(50);

pub(crate) async fn until<K>(
    api: Api<K>,
    name: &str,
    limit: Duration,
    condition: impl Condition<K>,
) -> anyhow::Result<Option<K>>
where
    K: kube::Resource<DynamicType = ()>,
    K: Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    // A watch that breaks off begins anew: the API server is busy, or was killed a moment ago.
    let seen = watch_object(api.clone(), name).default_backoff();
    let coming = seen.filter_map(|seen| std::future::ready(seen.ok()));
    let coming =
        coming.filter(|object| std::future::ready(condition.matches_object(object.as_ref())));
    // Boxed, as a watch is large and every test waits in many places.
    let mut coming = Box::pin(coming);
    if let Ok(found) = tokio::time::timeout(limit, coming.next()).await {
        return found.with_context(|| format!("watching {} {name}", K::kind(&())));
    }
    let text = match api.get_opt(name).await {
        Ok(Some(object)) => serde_json::to_string(&object).unwrap_or_default(),
        Ok(None) => "it does not exist".to_owned(),
        Err(error) => error.to_string(),
    };
    bail!(
        "{} {name} is not as it should be after {limit:?}: {text}",
        K::kind(&())
    )
}

/// Asks again and again until it is so: for what has no event to wait for, such as a change on its way through a program.
///
/// # Errors
/// When it is not so within a minute, or cannot be asked.
pub async fn comes_true(
    what: &str,
    ask: impl AsyncFn() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let mut beat = tokio::time::interval(BEAT);
    let asking = async {
        loop {
            beat.tick().await;
            if ask().await? {
                return Ok(());
            }
        }
    };
    let came = tokio::time::timeout(crate::namespace::LIMIT, asking).await;
    came.unwrap_or_else(|_| bail!("it did not come true: {what}"))
}

/// It exists.
pub(crate) fn there<K>(object: Option<&K>) -> bool {
    object.is_some()
}

/// It does not exist.
pub fn gone<K>(object: Option<&K>) -> bool {
    object.is_none()
}

/// Every replica that a Deployment wants is of its newest template and available.
pub fn available(deployment: Option<&Deployment>) -> bool {
    let Some(deployment) = deployment else {
        return false;
    };
    let (Some(spec), Some(status)) = (&deployment.spec, &deployment.status) else {
        return false;
    };
    let wanted = spec.replicas.unwrap_or(1);
    status.observed_generation >= deployment.metadata.generation
        && status.updated_replicas.unwrap_or(0) == wanted
        && status.available_replicas.unwrap_or(0) == wanted
        && status.replicas.unwrap_or(0) == wanted
}

/// A pod has run to its end, well or not.
pub fn finished(pod: Option<&Pod>) -> bool {
    let phase = pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// A condition of that type has that status, in the object's `.status.conditions`, whatever its kind is; where the
/// condition or the status has an `observedGeneration`, it must be of the present spec.
pub fn condition<K: Serialize>(kind: &str, status: &str) -> impl Fn(Option<&K>) -> bool {
    move |object| {
        let Some(object) = object.and_then(|object| serde_json::to_value(object).ok()) else {
            return false;
        };
        let generation = object["metadata"]["generation"].as_i64();
        let fresh = |of: &serde_json::Value| {
            of["observedGeneration"]
                .as_i64()
                .is_none_or(|seen| Some(seen) >= generation)
        };
        fresh(&object["status"])
            && object["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|c| c["type"] == kind && c["status"] == status && fresh(c))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    #[test]
    fn a_condition_of_an_older_spec_does_not_count() {
        let ready = condition::<Value>("Ready", "True");
        let object = |on_status: Value, on_condition: Value| {
            let mut object = json!({ "metadata": { "generation": 2 }, "status": {
                "conditions": [{ "type": "Ready", "status": "True" }],
            }});
            object["status"]["observedGeneration"] = on_status;
            object["status"]["conditions"][0]["observedGeneration"] = on_condition;
            object
        };
        assert!(ready(Some(&object(json!(2), json!(2)))));
        assert!(ready(Some(&object(Value::Null, Value::Null))));
        assert!(!ready(Some(&object(json!(1), json!(2)))));
        assert!(!ready(Some(&object(json!(2), json!(1)))));
        assert!(!condition::<Value>("Ready", "False")(Some(&object(
            Value::Null,
            Value::Null
        ))));
        assert!(!ready(None));
    }

    #[test]
    fn a_deployment_in_the_middle_of_a_rollout_is_not_available() {
        let deployment = |updated: i32, available: i32, all: i32, seen: i64| -> Deployment {
            from_value(json!({
                "metadata": { "generation": 3 },
                "spec": { "replicas": 2, "selector": {}, "template": {} },
                "status": {
                    "updatedReplicas": updated, "availableReplicas": available, "replicas": all,
                    "observedGeneration": seen,
                },
            }))
            .unwrap()
        };
        assert!(available(Some(&deployment(2, 2, 2, 3))));
        assert!(!available(Some(&deployment(2, 2, 3, 3))));
        assert!(!available(Some(&deployment(1, 2, 2, 3))));
        assert!(!available(Some(&deployment(2, 1, 2, 3))));
        assert!(!available(Some(&deployment(2, 2, 2, 2))));
        assert!(!available(None));
    }
}
