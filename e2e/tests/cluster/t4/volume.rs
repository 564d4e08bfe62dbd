//! A store that outlives the operator's pod: a folder of the node that all pods may mount at once.

use std::os::unix::fs::chown;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use ramen_e2e::Namespace;
use serde_json::{Value, json};

/// A volume and its claim. The volume's object is of the whole cluster, so it is named like the namespace and removed by
/// hand; the folder goes with this.
pub(super) struct Volume {
    namespace: Namespace,
    _folder: tempfile::TempDir,
}

impl Volume {
    pub(super) async fn make(namespace: &Namespace) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        chown(folder.path(), Some(65532), Some(65532))?;
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": namespace.name },
            "spec": {
                "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteMany"], "storageClassName": "",
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": { "namespace": namespace.name, "name": "store" },
                "hostPath": { "path": folder.path() },
            },
        });
        Api::<PersistentVolume>::all(namespace.client.clone())
            .patch(
                &namespace.name,
                &PatchParams::apply("ramen-e2e"),
                &Patch::Apply(&volume),
            )
            .await?;
        let claim = json!({ "spec": {
            "accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": namespace.name,
            "resources": { "requests": { "storage": "1Gi" } },
        }});
        namespace
            .apply::<PersistentVolumeClaim>("store", claim)
            .await?;
        Ok(Self {
            namespace: namespace.clone(),
            _folder: folder,
        })
    }

    /// What the chart wants to know of it.
    pub(super) fn values() -> Value {
        json!({ "persistence": { "enabled": true, "existingClaim": "store", "accessModes": ["ReadWriteMany"] } })
    }

    pub(super) async fn remove(self) -> anyhow::Result<()> {
        let volumes = Api::<PersistentVolume>::all(self.namespace.client.clone());
        volumes
            .delete(&self.namespace.name, &DeleteParams::default())
            .await?;
        Ok(())
    }
}
