//! What a hook leaves at the API server: an Event of the group, and, from a replica without the lease, a
//! mark on the group. The API server keeps the mark: there is no queue that a replica could take with it,
//! and no way between replicas that a policy could close.

use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource as _};
use ramen_crds::{McpGroup, labels};
use serde_json::json;
use tokio::sync::mpsc;

use crate::group::GroupKey;
use crate::names;
use crate::watches::Caches;

/// Field manager of the mark.
const MANAGER: &str = "ramen-operator/hooks";

/// A hook that made a group look.
#[derive(Debug)]
struct Trace {
    group: GroupKey,
    receiver: String,
    mark: bool,
}

/// Takes what is to be written. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Traces(mpsc::UnboundedSender<Trace>);

impl Traces {
    /// The handle, and what writes, one after the other.
    pub(crate) fn new(
        client: Client,
        recorder: Recorder,
        caches: Caches,
        replica: String,
    ) -> (Self, impl Future<Output = ()> + Send) {
        // No more than one for a group and second comes in: see `coalesce`.
        let (queue, mut traces) = mpsc::unbounded_channel::<Trace>();
        let write = async move {
            while let Some(trace) = traces.recv().await {
                if trace.mark {
                    mark(&client, &trace.group, &replica).await;
                }
                announce(&recorder, &caches, &trace).await;
            }
        };
        (Self(queue), write)
    }

    /// Writes soon that a hook of a receiver came in; with a mark for the replica that writes.
    pub(crate) fn leave(&self, group: &GroupKey, receiver: &str, mark: bool) {
        // Nobody reads only while everything ends.
        let _ = self.0.send(Trace {
            group: group.clone(),
            receiver: receiver.to_owned(),
            mark,
        });
    }
}

async fn mark(client: &Client, group: &GroupKey, replica: &str) {
    let api: Api<McpGroup> = Api::namespaced(client.clone(), &group.namespace);
    let now = k8s_openapi::jiff::Timestamp::now();
    let mark = json!({
        "metadata": {"annotations": {names::HINTED_AT: format!("{now} {replica}")}},
    });
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match api
        .patch_metadata(&group.name, &params, &Patch::Merge(&mark))
        .await
    {
        Ok(_) => tracing::debug!(%group, "marked a group for the replica that writes"),
        // Removed meanwhile.
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        // It is found at the next look, if nothing else is.
        Err(error) => tracing::warn!(%group, %error, "a hook was not passed on"),
    }
}

/// The same text each time, so that many are counted in one Event.
async fn announce(recorder: &Recorder, caches: &Caches, trace: &Trace) {
    let Trace {
        group, receiver, ..
    } = trace;
    let Some(guarded) = caches
        .groups
        .get(&ObjectRef::new(&group.name).within(&group.namespace))
    else {
        return;
    };
    let Ok(object) = &guarded.0 else { return };
    let event = Event {
        type_: EventType::Normal,
        reason: labels::HOOK_RECEIVED.to_owned(),
        note: Some(format!(
            "a hook of the receiver {receiver} made the operator look at the repository"
        )),
        action: "Look".to_owned(),
        secondary: None,
    };
    if let Err(error) = recorder.publish(&event, &object.object_ref(&())).await {
        tracing::debug!(%error, "an event was not taken");
    }
}
