//! One namespace per test, gone after it.

use std::{fmt::Debug, panic::AssertUnwindSafe, time::Duration};

use anyhow::Context as _;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1 as core;
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
    runtime::wait::Condition,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    reach::{Cluster, Tier},
    story, wait,
};

/// How long anything may take that should take a second or two: the machine may have much else to do.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// The field manager of objects that tests make.
pub(crate) const MANAGER: &str = "ramen-e2e";

/// The namespace of a test.
#[derive(Clone)]
pub struct Namespace {
    /// As the administrator.
    pub client: Client,
    /// Its name.
    pub name: String,
}

impl Namespace {
    /// The objects of one kind in it.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Server-side apply, with the fields that a person would write; `apiVersion` and `kind` come from the type.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn apply<K>(&self, name: &str, mut object: Value) -> anyhow::Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned + Serialize,
    {
        object["apiVersion"] = json!(K::api_version(&()));
        object["kind"] = json!(K::kind(&()));
        object["metadata"]["name"] = json!(name);
        self.api::<K>()
            .patch(
                name,
                &PatchParams::apply(MANAGER).force(),
                &Patch::Apply(&object),
            )
            .await
            .with_context(|| format!("applying {} {name}", K::kind(&())))
    }

    /// Waits until an object is as it should be, and gives it; `None` when it should be gone and is.
    ///
    /// # Errors
    /// When it is not so within a minute; the object is in the text.
    pub async fn until<K>(
        &self,
        name: &str,
        condition: impl Condition<K>,
    ) -> anyhow::Result<Option<K>>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
    {
        wait::until(self.api::<K>(), name, LIMIT, condition).await
    }
}

/// Runs a test in a namespace of its own when the cluster can do what it needs; else says that it was skipped. When the
/// test fails, the events of the namespace and the logs of its pods are printed. The namespace is deleted either way.
pub async fn with_temp_ns<T>(needed: Tier, test: T)
where
    T: AsyncFnOnce(Namespace) -> anyhow::Result<()>,
{
    let verdict = match Cluster::reach(needed).await {
        Ok(None) => return,
        Ok(Some(cluster)) => in_cluster(cluster, test).await,
        Err(error) => Err(error),
    };
    if let Err(error) = verdict {
        eprintln!("{error:?}");
        // A test fails by a panic; this is the one place.
        std::panic::resume_unwind(Box::new(format!("{error:?}")));
    }
}

async fn in_cluster<T>(cluster: Cluster, test: T) -> anyhow::Result<()>
where
    T: AsyncFnOnce(Namespace) -> anyhow::Result<()>,
{
    let all = Api::<core::Namespace>::all(cluster.client.clone());
    let form = serde_json::from_value(json!({ "metadata": {
        "generateName": "e2e-",
        // Whatever of ours runs in a pod must run where the cluster is strict.
        "labels": { "ramen.dev/e2e": "true", "pod-security.kubernetes.io/enforce": "restricted" },
    }}))?;
    let made = all
        .create(&PostParams::default(), &form)
        .await
        .context("making a namespace for the test")?;
    let namespace = Namespace {
        client: cluster.client,
        name: made
            .metadata
            .name
            .context("a namespace that was made has no name")?,
    };
    // Without it no pod can be made, and it comes a moment after the namespace.
    namespace
        .until::<core::ServiceAccount>("default", wait::there)
        .await?;
    let outcome = AssertUnwindSafe(test(namespace.clone()))
        .catch_unwind()
        .await;
    if !matches!(outcome, Ok(Ok(()))) {
        eprintln!("{}", story::of(&namespace).await);
    }
    // Not awaited: whatever is in it is in nobody's way, and the next test has a namespace of its own.
    let deleted = all
        .delete(&namespace.name, &DeleteParams::background())
        .await;
    match outcome {
        Ok(Ok(())) => match deleted {
            // The test has done it itself.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => deleted.map(drop).context("deleting the test's namespace"),
        },
        Ok(Err(error)) => Err(error),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
