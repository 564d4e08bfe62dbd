use super::*;
use crate::pods::Trouble;
use crate::pods::tests::worker;

fn pod(kind: TroubleKind, reason: &str, message: &str) -> PodView {
    PodView {
        created: 100,
        trouble: Some(Box::new(Trouble {
            reason: reason.to_owned(),
            message: message.to_owned(),
            kind,
        })),
        ..worker("p")
    }
}

fn job(end: Option<JobEnd>) -> JobView {
    JobView {
        uid: "u".to_owned(),
        created: 100,
        end,
    }
}

fn badly(reason: &str) -> JobEnd {
    JobEnd::Badly {
        reason: reason.to_owned(),
        message: "Job has reached the specified backoff limit".to_owned(),
    }
}

fn seen(end: Option<JobEnd>, pods: Vec<PodView>, now: i64) -> Seen {
    Seen {
        job: Some(job(end)),
        pods,
        refused: None,
        now,
    }
}

fn told(seen: &Seen) -> (Reason, String) {
    let failure = judge(seen).unwrap();
    assert!(failure.transient);
    (failure.reason, failure.message)
}

#[test]
fn a_job_that_runs_is_waited_for() {
    assert_eq!(judge(&seen(None, vec![worker("p")], 9999)), None);
    assert_eq!(judge(&seen(None, vec![], 9999)), None);
}

#[test]
fn ops10_why_a_job_ended_is_told_and_counts_against_the_revision() {
    let oom = pod(
        TroubleKind::Died,
        "OOMKilled",
        "it ran out of memory; raise the memory limit",
    );
    let evicted = pod(
        TroubleKind::Ended,
        "Evicted",
        "it was ended by its node (Evicted): disk",
    );
    for (pods, words) in [
        (vec![oom.clone()], "ran out of memory"),
        (vec![evicted.clone()], "ended by its node"),
        // The newest one counts.
        (vec![evicted, oom], "ran out of memory"),
        (vec![], "BackoffLimitExceeded: Job has reached"),
    ] {
        let (reason, message) = told(&seen(Some(badly("BackoffLimitExceeded")), pods, 200));
        assert_eq!(reason, Reason::DeployJobFailed);
        assert!(message.contains(words), "{message}");
    }
    let (_, message) = told(&seen(
        Some(badly("DeadlineExceeded")),
        vec![worker("p")],
        999,
    ));
    assert!(message.contains("worker.deployTimeout"), "{message}");
    let (_, message) = told(&seen(Some(JobEnd::Well), vec![], 200));
    assert!(message.contains("without a report"), "{message}");
    let gone = Seen {
        job: None,
        ..seen(None, vec![], 200)
    };
    assert!(told(&gone).1.contains("removed while it ran"));
}

#[test]
fn what_the_cluster_does_not_run_is_no_fault_of_the_revision() {
    let never = pod(
        TroubleKind::Stuck,
        "ErrImageNeverPull",
        "its image is not on the node",
    );
    let (reason, message) = told(&seen(None, vec![never], 101));
    assert_eq!(reason, Reason::DeployJobRefused);
    assert!(message.contains("ErrImageNeverPull"), "{message}");
    // An image may come in a moment, a node until the deadline.
    let pull = pod(
        TroubleKind::Waits,
        "ImagePullBackOff",
        "its image cannot be pulled",
    );
    assert_eq!(judge(&seen(None, vec![pull.clone()], 160)), None);
    assert_eq!(
        told(&seen(None, vec![pull], 161)).0,
        Reason::DeployJobRefused
    );
    let unplaced = pod(TroubleKind::Unplaced, "Unschedulable", "it finds no node");
    assert_eq!(judge(&seen(None, vec![unplaced.clone()], 600)), None);
    let (reason, message) = told(&seen(Some(badly("DeadlineExceeded")), vec![unplaced], 999));
    assert_eq!(reason, Reason::DeployJobRefused);
    assert!(message.contains("it finds no node"), "{message}");
}

#[test]
fn ops06_a_pod_that_is_refused_is_told_after_a_moment() {
    let quota = |now| Seen {
        refused: Some("pods is forbidden: exceeded quota: all".to_owned()),
        ..seen(None, vec![], now)
    };
    assert_eq!(judge(&quota(115)), None);
    let (reason, message) = told(&quota(116));
    assert_eq!(reason, Reason::DeployJobRefused);
    assert!(
        message.contains("QuotaExceeded") && message.contains("raise the ResourceQuota"),
        "{message}"
    );
}
