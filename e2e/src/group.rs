//! An `McpGroup` of a test, seen as a person sees it.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use ramen_crds::McpGroup;
use serde_json::{Value, json};

use crate::{
    caller::{Caller, GRPC},
    namespace::Namespace,
    wait::{self, condition},
};

/// A group.
#[derive(Clone)]
pub struct Group {
    /// Where it is.
    pub namespace: Namespace,
    /// Its name.
    pub name: String,
}

impl Group {
    /// What a person writes first: a source, and who may call (everybody in the cluster).
    pub fn spec(url: &str, replicas: u32) -> Value {
        json!({
            "source": { "url": url, "ref": { "branch": "main" } },
            "network": { "allowedCIDRs": ["10.0.0.0/8"] },
            "zones": [{ "name": "default", "replicas": replicas }],
        })
    }

    /// Applies one.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn apply(namespace: &Namespace, name: &str, spec: Value) -> anyhow::Result<Self> {
        namespace
            .apply::<McpGroup>(name, json!({ "spec": spec }))
            .await?;
        Ok(Self {
            namespace: namespace.clone(),
            name: name.to_owned(),
        })
    }

    /// Changes fields of its spec: a merge patch, `null` removes.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn patch(&self, spec: Value) -> anyhow::Result<()> {
        self.merge(json!({ "spec": spec })).await
    }

    /// Asks the operator to look at the source now; `when` is a value that was not used before.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn look(&self, when: &str) -> anyhow::Result<()> {
        self.merge(json!({ "metadata": { "annotations": { "ramen.dev/requested-at": when } } }))
            .await
    }

    async fn merge(&self, change: Value) -> anyhow::Result<()> {
        self.namespace
            .api::<McpGroup>()
            .patch(&self.name, &PatchParams::default(), &Patch::Merge(change))
            .await?;
        Ok(())
    }

    /// As it is now.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn get(&self) -> anyhow::Result<McpGroup> {
        Ok(self.namespace.api::<McpGroup>().get(&self.name).await?)
    }

    /// Waits until it is as it should be, and gives it.
    ///
    /// # Errors
    /// When it is not so within a minute; the group is in the text.
    pub async fn until(&self, condition: impl Fn(&McpGroup) -> bool) -> anyhow::Result<McpGroup> {
        self.namespace
            .until::<McpGroup>(&self.name, |group: Option<&McpGroup>| {
                group.is_some_and(&condition)
            })
            .await?
            .context("the group is gone")
    }

    /// Waits until all wanted pods serve this commit, and nothing is under way.
    ///
    /// # Errors
    /// When they do not within a minute.
    pub async fn serves(&self, commit: &str) -> anyhow::Result<McpGroup> {
        let ready = condition::<McpGroup>("Ready", "True");
        let deployed = condition::<McpGroup>("Deployed", "True");
        let group = self
            .until(|group| {
                let all = Some(group);
                ready(all) && deployed(all) && serving(group).ends_with(commit) && everywhere(group)
            })
            .await?;
        // A status may be older than the end of a pod. Which pods there are is asked each time: one may make room for
        // another meanwhile.
        let ready = condition::<Pod>("Ready", "True");
        wait::comes_true("every pod of the group is ready", async || {
            Ok(self.pods().await?.iter().all(|pod| ready(Some(pod))))
        })
        .await?;
        Ok(group)
    }

    /// Its worker pods that are not being ended.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn pods(&self) -> anyhow::Result<Vec<Pod>> {
        let selector = format!(
            "ramen.dev/group={},app.kubernetes.io/component=worker",
            self.name
        );
        let listed = self
            .namespace
            .api::<Pod>()
            .list(&ListParams::default().labels(&selector))
            .await?;
        let mut pods = listed.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        pods.sort_by_key(kube::ResourceExt::name_any);
        Ok(pods)
    }

    /// Name and address of each of its pods.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn addresses(&self) -> anyhow::Result<Vec<(String, String)>> {
        let pods = self.pods().await?;
        let with = |pod: Pod| {
            let address = pod.status.as_ref()?.pod_ip.clone()?;
            Some((pod.name_any(), address))
        };
        Ok(pods.into_iter().filter_map(with).collect())
    }

    /// The key that the operator made.
    ///
    /// # Errors
    /// When there is none.
    pub async fn key(&self) -> anyhow::Result<String> {
        let name = format!("{}-mcp-keys", self.name);
        let secret = self.namespace.api::<Secret>().get(&name).await?;
        let key = secret.data.unwrap_or_default().remove("key");
        Ok(String::from_utf8(key.context("no entry `key`")?.0)?)
    }

    /// Deletes the group; ends when it is gone, and its pods with it.
    ///
    /// # Errors
    /// When the API server refuses it, or it is still there after a minute.
    pub async fn remove(self) -> anyhow::Result<()> {
        self.namespace
            .api::<McpGroup>()
            .delete(&self.name, &DeleteParams::foreground())
            .await?;
        self.namespace
            .until::<McpGroup>(&self.name, wait::gone)
            .await
            .map(drop)
    }

    /// A caller of each of its pods, with the key that the operator made.
    ///
    /// # Errors
    /// When a pod does not answer.
    pub async fn callers(&self) -> anyhow::Result<Vec<(String, Caller)>> {
        let key = self.key().await?;
        let mut callers = Vec::new();
        for (pod, address) in self.addresses().await? {
            callers.push((
                pod,
                Caller::connect(&format!("{address}:{GRPC}"), &key).await?,
            ));
        }
        ensure!(!callers.is_empty(), "{} has no pods", self.name);
        Ok(callers)
    }
}

/// What answers calls; empty when nothing does.
pub fn serving(group: &McpGroup) -> &str {
    let revision = group
        .status
        .as_ref()
        .and_then(|status| status.revision.as_ref());
    revision
        .and_then(|revision| revision.serving.as_deref())
        .unwrap_or_default()
}

/// Every wanted pod is ready and has the wanted revision.
pub fn everywhere(group: &McpGroup) -> bool {
    let zones = group.status.as_ref().map(|status| &status.zones);
    zones.is_some_and(|zones| {
        !zones.is_empty()
            && zones
                .iter()
                .all(|zone| zone.ready == zone.replicas && zone.updated == zone.replicas)
    })
}

/// A tool of one file: its two files, for [`crate::GitHost::push`].
pub fn tool(name: &str, input: &Value, source: &str) -> [(String, String); 2] {
    let descriptor = json!({
        "type": "tool", "name": name, "description": format!("The tool {name}."), "callable": name, "input": input,
    });
    [
        (format!("tools/{name}/{name}.json"), descriptor.to_string()),
        (format!("tools/{name}/{name}.py"), source.to_owned()),
    ]
}
