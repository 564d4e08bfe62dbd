//! The keys Secret of a group, for `ramen keys`: the one thing of a cluster that this program changes.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use ramen_crds::McpGroup;
use serde_json::json;

use super::Cluster;
use crate::exit::Failure;

impl Cluster {
    /// The Secret with the callers' keys of a group: the one that it names, or the one that the operator made.
    pub(crate) async fn keys_secret(&self, group: &str) -> Result<String, Failure> {
        let groups: Api<McpGroup> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = self.ask(groups.get(group)).await?;
        let named = found.spec.keys.map(|keys| keys.secret_ref.name);
        Ok(named.unwrap_or_else(|| format!("{group}-mcp-keys")))
    }

    /// The entries of a Secret that are text, by name.
    pub(crate) async fn secret_texts(&self, name: &str) -> Result<Vec<(String, String)>, Failure> {
        let secret = self.ask(self.secrets().get(name)).await?;
        let entries = secret.data.unwrap_or_default().into_iter();
        Ok(entries
            .filter_map(|(name, value)| Some((name, String::from_utf8(value.0).ok()?)))
            .collect())
    }

    /// Sets one entry, or takes it away, and touches no other.
    pub(crate) async fn set_entry(
        &self,
        secret: &str,
        entry: &str,
        value: Option<&str>,
    ) -> Result<(), Failure> {
        let patch = match value {
            Some(value) => json!({ "stringData": { entry: value } }),
            None => json!({ "data": { entry: null } }),
        };
        let params = PatchParams::default();
        let secrets = self.secrets();
        let patch = Patch::Merge(&patch);
        let patched = secrets.patch(secret, &params, &patch);
        self.ask(patched).await.map(|_| ())
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}
