//! What the state of a Job and its pods means, in words a person can act on. Pure.

use std::time::Duration;

use ramen_group::Reason;
use ramen_rollout::Failure;

use crate::pods::{JobEnd, JobView, PodView, TroubleKind, refusal};

/// An image that cannot be pulled may be there in a moment.
const PULL_PATIENCE: Duration = Duration::from_mins(1);
/// A pod that is refused may be let in when another one ends.
pub(super) const CREATE_PATIENCE: Duration = Duration::from_secs(15);

/// What was seen at one time.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// `None`: it was removed.
    pub(super) job: Option<JobView>,
    /// The oldest first.
    pub(super) pods: Vec<PodView>,
    /// Why the last pod could not be made, in the words of the API server.
    pub(super) refused: Option<String>,
    /// Seconds since 1970.
    pub(super) now: i64,
}

/// The Job ran, and brought nothing.
pub(super) fn failure(message: &str) -> Failure {
    Failure {
        reason: Reason::DeployJobFailed,
        message: format!("the deploy job failed: {message}"),
        transient: true,
    }
}

/// The cluster does not run the Job; that is no fault of the revision.
fn refused(message: &str) -> Failure {
    Failure {
        reason: Reason::DeployJobRefused,
        message: format!("the cluster does not run the deploy job: {message}"),
        transient: true,
    }
}

/// Why no report will come, if that is certain enough.
pub(super) fn judge(seen: &Seen) -> Option<Failure> {
    let Some(job) = &seen.job else {
        return Some(failure("it was removed while it ran"));
    };
    if let Some(end) = &job.end {
        return Some(ended(end, &seen.pods));
    }
    if let Some(pod) = seen.pods.last() {
        return stuck(pod, seen.now);
    }
    let message = seen.refused.as_deref()?;
    (age(job.created, seen.now) > CREATE_PATIENCE).then(|| {
        let (reason, message) = refusal(message);
        refused(&format!("its pod is refused ({reason}): {message}"))
    })
}

fn ended(end: &JobEnd, pods: &[PodView]) -> Failure {
    let troubles = pods.iter().rev().filter_map(|pod| pod.trouble.as_ref());
    let mut troubles = troubles.peekable();
    let last = troubles.peek().copied();
    let why =
        troubles.find(|trouble| matches!(trouble.kind, TroubleKind::Died | TroubleKind::Ended));
    match (end, why) {
        (JobEnd::Well, _) => failure("it ended without a report; look at its log"),
        (JobEnd::Badly { reason, .. }, _) if reason == "DeadlineExceeded" => match last {
            Some(trouble) if trouble.kind <= TroubleKind::Stuck => {
                refused(&format!("within its deadline {}", trouble.message))
            }
            _ => failure("it did not end within its deadline; see worker.deployTimeout"),
        },
        (_, Some(why)) => failure(&why.message),
        (JobEnd::Badly { reason, message }, None) => failure(&format!("{reason}: {message}")),
    }
}

/// A pod that will not run as things are.
fn stuck(pod: &PodView, now: i64) -> Option<Failure> {
    let trouble = pod.trouble.as_ref()?;
    let certain = match trouble.kind {
        TroubleKind::Stuck => true,
        TroubleKind::Waits => age(pod.created, now) > PULL_PATIENCE,
        // A node may come until the deadline; a container that died is the Job's to judge.
        TroubleKind::Unplaced | TroubleKind::Ended | TroubleKind::Died => false,
    };
    certain.then(|| refused(&format!("{} ({})", trouble.message, trouble.reason)))
}

/// How long ago something was made.
pub(super) fn age(created: i64, now: i64) -> Duration {
    Duration::from_secs(u64::try_from(now.saturating_sub(created)).unwrap_or_default())
}

#[cfg(test)]
mod tests;
