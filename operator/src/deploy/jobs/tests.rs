//! Deploys against a scripted API server: what is asked, and what is made of the answers.

use std::cell::RefCell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ramen_group::LayerRef;
use ramen_source::Store;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::deploy::DeployRequest;
use crate::pods::tests::group;
use crate::pods::{JobEnd, JobView};
use crate::testing::{Asked, Server, api};

const NAME: &str = "calc-deploy-0123456789";

/// A deploy of one group over a folder.
struct Stage {
    artifacts: Artifacts,
    pods: Pods,
    token: RefCell<Vec<u8>>,
    stop: CancellationToken,
    _folder: tempfile::TempDir,
}

impl Stage {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("store")).unwrap();
        Self {
            artifacts: Artifacts::open(store).await.unwrap(),
            pods: Pods::default(),
            token: RefCell::default(),
            stop: CancellationToken::new(),
            _folder: folder,
        }
    }

    fn request(&self) -> DeployRequest {
        let job = serde_json::from_value(json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": NAME, "namespace": "team-a", "labels": {"ramen.dev/group": "calc"},
                "ownerReferences": [{
                    "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup", "name": "calc", "uid": "u-1",
                    "controller": true,
                }],
            },
        }));
        DeployRequest {
            group: group(),
            id: "0123456789".to_owned(),
            job: Box::new(job.unwrap()),
            code: LayerRef {
                key: "t".to_owned(),
                digest: "sha256:00".to_owned(),
                size: 1,
            },
            revision: "main@sha1:aa".to_owned(),
            timeout: std::time::Duration::from_mins(13),
            stop: self.stop.clone(),
        }
    }

    /// Runs the deploy; `then` happens when the Job is there.
    async fn run(&self, then: impl FnMut()) -> (Result<Report, Failure>, Vec<Asked>) {
        self.run_with(then, |_| None).await
    }

    async fn run_with(
        &self,
        mut then: impl FnMut(),
        mut first: impl FnMut(&Asked) -> Option<(u16, Value)>,
    ) -> (Result<Report, Failure>, Vec<Asked>) {
        let (client, mut server) = api();
        let jobs = Jobs::new(client, self.artifacts.clone(), self.pods.clone());
        let reply = |asked: &Asked| {
            if let Some(answer) = first(asked) {
                return answer;
            }
            let of_job = asked.path.contains("/jobs/");
            match asked.verb.as_str() {
                "PATCH" if of_job => {
                    then();
                    let (status, mut job) = Server::accepted(asked, "8");
                    job["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
                    (status, job)
                }
                "PATCH" => {
                    let token = asked.body["data"]["token"].as_str().unwrap();
                    *self.token.borrow_mut() = STANDARD.decode(token).unwrap();
                    Server::accepted(asked, "8")
                }
                "DELETE" => (
                    200,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
                ),
                _ => Server::missing(),
            }
        };
        server.serve(jobs.deploy(self.request()), reply).await
    }

    fn report(&self) {
        let deploy = DeployId {
            group: group(),
            id: "0123456789".to_owned(),
        };
        let report = serde_json::from_value(json!({"revision": "main@sha1:aa", "outcome": "ok"}));
        self.artifacts
            .hand_over(&deploy, &self.token.borrow(), report.unwrap());
    }

    fn show(&self, end: Option<&str>) {
        let end = end.map(|reason| JobEnd::Badly {
            reason: reason.to_owned(),
            message: "Job has reached the specified backoff limit".to_owned(),
        });
        let uid = "uid".to_owned();
        let created = 1;
        self.pods.show_job(NAME, JobView { uid, created, end });
    }

    fn show_pod(&self, status: &Value) {
        let labels = json!({"batch.kubernetes.io/job-name": NAME});
        self.pods
            .show_pod(&labels, "calc-deploy-0123456789-abcde", status);
    }
}

fn shorts(asked: &[Asked]) -> Vec<String> {
    asked.iter().map(Asked::short).collect()
}

fn job_with(condition: Option<&str>) -> Value {
    let conditions: Vec<_> = condition
        .iter()
        .map(|kind| json!({"type": kind, "status": "True"}))
        .collect();
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": NAME, "namespace": "team-a", "uid": "before"},
        "status": {"conditions": conditions},
    })
}

#[tokio::test(start_paused = true)]
async fn a_job_is_made_with_a_token_of_its_own_and_its_report_ends_it() {
    let stage = Stage::new().await;
    let (report, asked) = stage.run(|| stage.report()).await;
    assert_eq!(report.unwrap().revision.as_deref(), Some("main@sha1:aa"));
    let secret = format!("secrets/{NAME}");
    let job = format!("jobs/{NAME}");
    assert_eq!(
        shorts(&asked),
        [
            format!("GET {job}"),
            format!("GET {secret}"),
            format!("PATCH {secret}"),
            format!("PATCH {job}"),
            format!("DELETE {secret}"),
        ]
    );
    let token = String::from_utf8(stage.token.borrow().clone()).unwrap();
    assert!(token.len() >= 32 && !asked[3].body.to_string().contains(&token));
    let secret = &asked[2].body["metadata"];
    assert_eq!(secret["ownerReferences"][0]["uid"], "u-1");
    assert_eq!(secret["labels"]["ramen.dev/group"], "calc");
    assert!(asked[3].query.contains("ramen-operator%2Fmcpgroup"));
}

#[tokio::test(start_paused = true)]
async fn ops10_a_job_that_ran_out_of_memory_says_so_and_stays_for_its_log() {
    let stage = Stage::new().await;
    let (report, asked) = stage
        .run(|| {
            stage.show_pod(&json!({
                "phase": "Failed",
                "containerStatuses": [{"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}],
            }));
            stage.show(Some("BackoffLimitExceeded"));
        })
        .await;
    let failure = report.unwrap_err();
    assert_eq!(
        (failure.reason, failure.transient),
        (Reason::DeployJobFailed, true)
    );
    assert!(
        failure.message.contains("raise the memory limit"),
        "{}",
        failure.message
    );
    assert_eq!(
        asked.last().unwrap().short(),
        format!("DELETE secrets/{NAME}")
    );
    // While it was waited for, nothing was asked.
    assert_eq!(asked.len(), 5, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_image_is_missing_is_taken_away() {
    let stage = Stage::new().await;
    let (report, asked) = stage
        .run(|| {
            stage.show(None);
            stage.show_pod(&json!({
                "phase": "Pending",
                "containerStatuses": [{"state": {"waiting": {"reason": "ErrImageNeverPull"}}}],
            }));
        })
        .await;
    let failure = report.unwrap_err();
    assert_eq!(failure.reason, Reason::DeployJobRefused);
    assert!(
        failure.message.contains("worker.image"),
        "{}",
        failure.message
    );
    let last = asked.last().unwrap();
    assert_eq!(last.short(), format!("DELETE jobs/{NAME}"));
    assert_eq!(last.body["preconditions"]["uid"], "uid");
    assert_eq!(last.body["propagationPolicy"], "Background");
}

#[tokio::test(start_paused = true)]
async fn ops06_a_job_without_a_pod_says_in_the_words_of_the_quota_why() {
    let stage = Stage::new().await;
    let events = |asked: &Asked| {
        asked.path.ends_with("/events").then(|| {
            let event = json!({
                "metadata": {"name": "e"}, "involvedObject": {"name": NAME}, "reason": "FailedCreate",
                "message": "Error creating: pods \"x\" is forbidden: exceeded quota: all, limited: pods=0",
            });
            (200, json!({"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": [event]}))
        })
    };
    let (report, asked) = stage.run_with(|| stage.show(None), events).await;
    let failure = report.unwrap_err();
    assert_eq!(failure.reason, Reason::DeployJobRefused);
    assert!(
        failure.message.contains("QuotaExceeded") && failure.message.contains("pods=0"),
        "{}",
        failure.message
    );
    let lists: Vec<_> = asked
        .iter()
        .filter(|asked| asked.path.ends_with("/events"))
        .collect();
    assert!((1..=2).contains(&lists.len()), "{asked:?}");
    assert!(
        lists[0]
            .query
            .contains("involvedObject.name%3Dcalc-deploy-0123456789")
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_the_api_server_does_not_take_is_refused_in_its_words() {
    let stage = Stage::new().await;
    let refuse = |asked: &Asked| {
        (asked.verb == "PATCH" && asked.path.contains("/jobs/")).then(|| {
            let message = "jobs.batch \"x\" is forbidden: exceeded quota: all, limited: count/jobs.batch=0";
            (403, json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": message}))
        })
    };
    let (report, _) = stage.run_with(|| {}, refuse).await;
    let failure = report.unwrap_err();
    assert_eq!(
        (failure.reason, failure.transient),
        (Reason::DeployJobRefused, true)
    );
    assert!(
        failure.message.contains("count/jobs.batch=0"),
        "{}",
        failure.message
    );
}

#[tokio::test(start_paused = true)]
async fn ops14_what_the_api_server_fails_to_answer_is_asked_again_and_makes_no_second_job() {
    let stage = Stage::new().await;
    let mut failed = std::collections::HashMap::<String, u16>::new();
    let fail = |asked: &Asked| {
        let times = failed.entry(asked.short()).or_default();
        *times += 1;
        let code = [500, 409, 429].get(usize::from(*times - 1)).copied()?;
        let message = "etcdserver: leader changed";
        let status = json!({"kind": "Status", "status": "Failure", "reason": "X", "code": code, "message": message});
        (asked.verb != "DELETE").then_some((code, status))
    };
    let (report, asked) = stage.run_with(|| stage.report(), fail).await;
    assert!(report.is_ok(), "{report:?}");
    let asked = shorts(&asked);
    for write in ["PATCH secrets/", "PATCH jobs/"] {
        let written: Vec<_> = asked.iter().filter(|one| one.starts_with(write)).collect();
        let name = format!("{write}{NAME}");
        assert_eq!(written, [&name, &name, &name, &name], "{asked:?}");
    }

    let never = |_: &Asked| {
        let status = json!({"kind": "Status", "status": "Failure", "reason": "X", "code": 500, "message": "no"});
        Some((500, status))
    };
    let (report, asked) = stage.run_with(|| {}, never).await;
    let failure = report.unwrap_err();
    assert_eq!(
        (failure.reason, failure.transient),
        (Reason::DeployJobFailed, true)
    );
    assert!(asked.len() < 20, "it is given up: {asked:?}");
}

#[tokio::test(start_paused = true)]
async fn ops12_a_job_that_runs_is_found_again_with_its_token() {
    let stage = Stage::new().await;
    let token = b"rmd_0123456789012345678901234567890123".to_vec();
    *stage.token.borrow_mut() = token.clone();
    let there = |asked: &Asked| match asked.short().as_str() {
        "GET jobs/calc-deploy-0123456789" => Some((200, job_with(None))),
        "GET secrets/calc-deploy-0123456789" => Some((
            200,
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME}, "data": {"token": STANDARD.encode(&token)}}),
        )),
        _ => None,
    };
    let (client, mut server) = api();
    let jobs = Jobs::new(client, stage.artifacts.clone(), stage.pods.clone());
    let deploy = jobs.deploy(stage.request());
    let mut asked_both = 0;
    let (report, asked) = server
        .serve(
            async {
                tokio::pin!(deploy);
                loop {
                    tokio::select! {
                        report = &mut deploy => return report,
                        () = tokio::time::sleep(LATER) => stage.report(),
                    }
                }
            },
            |asked| {
                asked_both += 1;
                there(asked).unwrap_or_else(|| {
                    assert_eq!(asked.verb, "DELETE", "{asked:?}");
                    (
                        200,
                        json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
                    )
                })
            },
        )
        .await;
    assert!(report.is_ok(), "{report:?}");
    assert_eq!(
        shorts(&asked)
            .iter()
            .filter(|asked| asked.starts_with("PATCH"))
            .count(),
        0
    );
}

/// After the deploy has found its Job; time is paused and passes only while nothing else happens.
const LATER: std::time::Duration = std::time::Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_job_in_the_way_is_removed_before_a_new_one_is_made() {
    let stage = Stage::new().await;
    let mut looks = 0;
    let in_the_way = |asked: &Asked| {
        if asked.short() != format!("GET jobs/{NAME}") {
            return None;
        }
        looks += 1;
        // Found, still there, gone.
        (looks <= 2).then(|| (200, job_with(Some("Failed"))))
    };
    let (report, asked) = stage.run_with(|| stage.report(), in_the_way).await;
    assert!(report.is_ok(), "{report:?}");
    let shorts = shorts(&asked);
    let at = |verb: &str| {
        shorts
            .iter()
            .position(|asked| *asked == format!("{verb} jobs/{NAME}"))
    };
    assert!(at("DELETE") < at("PATCH"), "{shorts:?}");
}

#[tokio::test(start_paused = true)]
async fn ops09_a_deploy_that_is_given_up_takes_its_job_and_its_token_away() {
    let stage = Stage::new().await;
    let (report, asked) = stage
        .run(|| {
            stage.show(None);
            stage.stop.cancel();
        })
        .await;
    assert!(report.is_err());
    let shorts = shorts(&asked);
    assert!(
        shorts.contains(&format!("DELETE secrets/{NAME}")),
        "{shorts:?}"
    );
    assert!(
        shorts.contains(&format!("DELETE jobs/{NAME}")),
        "{shorts:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_group_has_one_deploy_at_a_time_and_few_old_ones() {
    let stage = Stage::new().await;
    let old = |created, end| JobView {
        uid: format!("old-{created}"),
        created,
        end,
    };
    stage.pods.show_job("calc-deploy-left", old(1, None));
    for created in 2..7 {
        let name = format!("calc-deploy-{created}");
        stage.pods.show_job(&name, old(created, Some(JobEnd::Well)));
    }
    let (report, asked) = stage.run(|| stage.report()).await;
    assert!(report.is_ok(), "{report:?}");
    let removed: Vec<String> = shorts(&asked)
        .into_iter()
        .filter(|asked| asked.starts_with("DELETE jobs/"))
        .collect();
    assert_eq!(
        removed,
        [
            "DELETE jobs/calc-deploy-left",
            "DELETE jobs/calc-deploy-2",
            "DELETE jobs/calc-deploy-3",
            "DELETE jobs/calc-deploy-4",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_somebody_removes_is_missed() {
    let stage = Stage::new().await;
    let (report, asked) = stage.run(|| {}).await;
    let failure = report.unwrap_err();
    assert!(
        failure.message.contains("removed while it ran"),
        "{}",
        failure.message
    );
    // It was not in the watch either: the API server was asked once more.
    let looks = shorts(&asked)
        .iter()
        .filter(|asked| **asked == format!("GET jobs/{NAME}"))
        .count();
    assert_eq!(looks, 2);
}
