//! Asks pods that run and do not answer calls what is wrong with them.

use futures::StreamExt as _;
use ramen_proto::v1::StatusResponse;

use super::push::Target;
use super::worker::{Fault, Worker};
use super::{Ailment, InspectRequest};

/// Pods that are asked at the same time.
const AT_ONCE: usize = 4;
/// Ends of a worker's host processes, all of which are down, that are no accident.
const ENDS: u64 = 3;

/// What the pods say; those that say nothing of use are left out.
pub(super) async fn inspect(pods: Vec<Target>, request: &InspectRequest) -> Vec<Ailment> {
    let asked = pods.into_iter().filter(|pod| !pod.ready).map(async |pod| {
        let (message, blames) = ask(&pod, request).await?;
        Some(Ailment {
            pod: pod.name,
            message,
            blames,
        })
    });
    let said = futures::stream::iter(asked).buffer_unordered(AT_ONCE);
    said.filter_map(std::future::ready).collect().await
}

/// What is wrong with one, and whether the revision is to blame.
async fn ask(pod: &Target, request: &InspectRequest) -> Option<(String, bool)> {
    let worker = match Worker::connect(pod).await {
        Ok(worker) => worker,
        Err(fault) => return Some(told(fault)),
    };
    let status = match worker.status(&request.admin_key).await {
        Ok(status) => status,
        Err(fault) => return Some(told(fault)),
    };
    if let Some(message) = hosts_end(&status, &request.desired.revision) {
        return Some((message, true));
    }
    let refused = status.desired_revision == request.desired.revision
        && status.revision != request.desired.revision
        && !status.last_error.is_empty();
    if !refused {
        // It loads, or loads something else.
        return None;
    }
    // The answer to a reload says what sort of refusal it was.
    let again = worker.reload(&request.desired, &request.admin_key, request.timeout);
    again.await.err().map(told)
}

fn told(fault: Fault) -> (String, bool) {
    match fault {
        Fault::Unreachable(error) => (
            format!("it runs, and does not answer the operator: {error}"),
            false,
        ),
        Fault::Refused {
            message, transient, ..
        } => (
            format!("it does not load the revision: {message}"),
            !transient,
        ),
    }
}

/// All host processes of the revision are down, and not for the first time.
fn hosts_end(status: &StatusResponse, revision: &str) -> Option<String> {
    let down = status.hosts.iter().all(|host| host.state != "ready");
    let ends: u64 = status.hosts.iter().map(|host| host.restarts).sum();
    (status.revision == revision && !status.hosts.is_empty() && down && ends >= ENDS)
        .then(|| "its host processes end again and again; look at its log".to_owned())
}
