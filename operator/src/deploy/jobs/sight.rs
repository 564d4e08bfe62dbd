//! Watches a Job until its report is there or will not come.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::batch::v1::Job;
use kube::api::ListParams;
use ramen_group::Report;
use ramen_rollout::Failure;
use tokio::time::Instant;

use super::{Reports, Run, api};
use crate::deploy::verdict::{self, CREATE_PATIENCE, Seen};
use crate::pods::JobView;

/// Between two judgements of a Job of which nothing is heard; patience runs out without a change.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Between two requests about a Job: for the events of one without a pod, for one that the watch does not
/// show.
const ASK_EVERY: Duration = Duration::from_secs(15);
/// A Job that ended well has sent its report before; the answer may still be on its way here.
const LAST_REPORT: Duration = Duration::from_secs(5);
/// Beyond the Job's own deadline.
const GRACE: Duration = Duration::from_secs(30);
/// Looks at the API server that may fail one after the other.
const MAX_BLIND: u32 = 30;

impl Run {
    /// Until the report is there, or the Job can bring none any more.
    pub(super) async fn watch(&self, job: &Job, reports: &mut Reports) -> Result<Report, Failure> {
        let deadline = Instant::now() + self.left(job);
        let following = self.pods.follow(&self.request.group, &self.name);
        let mut asking = Asking::default();
        loop {
            tokio::select! {
                report = arrived(reports) => return Ok(report),
                () = self.request.stop.cancelled() => {
                    return Err(verdict::failure("it was given up for something newer"));
                }
                () = following.changed() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let late = Instant::now() >= deadline;
            let Some(mut failure) = self.judge(job, &mut asking, late).await else {
                continue;
            };
            if let Ok(report) = tokio::time::timeout(LAST_REPORT, arrived(reports)).await {
                return Ok(report);
            }
            // The Job may be seen to end before its pods are.
            if let Some(better) = self.judge(job, &mut asking, late).await {
                failure = better;
            }
            return Err(failure);
        }
    }

    /// Why no report will come, as things are.
    async fn judge(&self, job: &Job, asking: &mut Asking, late: bool) -> Option<Failure> {
        let verdict = match self.look(job, asking).await {
            Ok(seen) => {
                asking.blind = 0;
                verdict::judge(&seen)
            }
            Err(error) => {
                asking.blind += 1;
                tracing::debug!(deploy = %self.deploy, %error, "the deploy job cannot be seen");
                (asking.blind > MAX_BLIND).then(|| api("see the deploy job", &error))
            }
        };
        verdict.or_else(|| late.then(|| verdict::failure("it did not end within its time")))
    }

    /// What is left of the time of a Job.
    fn left(&self, job: &Job) -> Duration {
        let age = verdict::age(created(job), now());
        self.request.timeout.saturating_sub(age) + GRACE
    }

    /// What the watches show. The API server is asked only for what they do not show.
    async fn look(&self, job: &Job, asking: &mut Asking) -> Result<Seen, kube::Error> {
        let (seen, mut pods) = self.pods.job(&self.request.group, &self.name);
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let now = now();
        let since = created(job);
        let mut seen = seen.filter(|seen| seen.uid == uid);
        // Those of a Job of that name before.
        pods.retain(|pod| pod.created >= since);
        if seen.is_none() && asking.is_due() {
            let there = self.jobs.get_metadata_opt(&self.name).await?;
            asking.gone = there.is_none_or(|there| there.metadata.uid.as_deref() != Some(uid));
        }
        if seen.is_none() && !asking.gone {
            // Too new for the watch.
            seen = Some(JobView {
                uid: uid.to_owned(),
                created: since,
                end: None,
            });
        }
        let young = seen
            .as_ref()
            .is_none_or(|seen| verdict::age(seen.created, now) <= CREATE_PATIENCE);
        if pods.is_empty() && !young && asking.is_due() {
            asking.refused = self.refusal().await?;
        }
        Ok(Seen {
            job: seen,
            refused: asking.refused.clone().filter(|_| pods.is_empty()),
            pods,
            now,
        })
    }

    /// Why the Job has no pod, in the words of the API server.
    async fn refusal(&self) -> Result<Option<String>, kube::Error> {
        let about = format!("involvedObject.kind=Job,involvedObject.name={}", self.name);
        let about = ListParams::default().fields(&about);
        let events = self.events.list(&about).await?.items.into_iter();
        Ok(events
            .filter(|event| event.reason.as_deref() == Some("FailedCreate"))
            .filter_map(|event| event.message)
            .next_back())
    }
}

/// What was asked of the API server about a Job, besides what the watches show.
#[derive(Default)]
struct Asking {
    last: Option<Instant>,
    /// Requests that failed in a row.
    blind: u32,
    /// The Job is not there any more.
    gone: bool,
    /// Why it has no pod.
    refused: Option<String>,
}

impl Asking {
    /// Whether it is time for a request; notes that it is made.
    fn is_due(&mut self) -> bool {
        let due = self.last.is_none_or(|last| last.elapsed() >= ASK_EVERY);
        if due {
            self.last = Some(Instant::now());
        }
        due
    }
}

/// Seconds since 1970.
fn created(job: &Job) -> i64 {
    let created = job.metadata.creation_timestamp.as_ref();
    created.map_or_else(now, |time| time.0.as_second())
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

/// The report, once it is there.
async fn arrived(reports: &mut Reports) -> Report {
    let report = match reports.wait_for(Option::is_some).await {
        Ok(report) => report.as_ref().map(Arc::clone),
        // Nobody takes reports any more; the Job is judged by how it ends.
        Err(_) => None,
    };
    match report {
        Some(report) => Report::clone(&report),
        None => std::future::pending().await,
    }
}
