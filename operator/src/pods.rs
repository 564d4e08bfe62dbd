//! What is known of our pods and Jobs without asking: kept small, by group, and only what decides
//! something. Whoever waits for a Job is told when it, or a pod of it, changes.

mod slim;
mod view;
mod watch;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch as signal};

use crate::group::GroupKey;

#[cfg(test)]
pub(crate) use self::view::Trouble;
pub(crate) use self::view::{JobEnd, JobView, PodView, TroubleKind, refusal};
pub(crate) use self::watch::start;

/// The pods and Jobs of all groups. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Pods(Arc<Inner>);

#[derive(Default)]
struct Inner {
    known: Mutex<Known>,
    pods_listed: signal::Sender<bool>,
    jobs_listed: signal::Sender<bool>,
}

#[derive(Default)]
struct Known {
    pods: HashMap<GroupKey, BTreeMap<String, PodView>>,
    jobs: HashMap<GroupKey, BTreeMap<String, JobView>>,
    /// By namespace and name of the Job.
    waiting: HashMap<(String, String), Arc<Notify>>,
}

impl Known {
    fn tell(&self, namespace: &str, job: &str) {
        // Almost always nobody waits.
        if self.waiting.is_empty() {
            return;
        }
        let waiting = self.waiting.get(&(namespace.to_owned(), job.to_owned()));
        if let Some(waiting) = waiting {
            waiting.notify_one();
        }
    }
}

impl Pods {
    /// The worker pods of a group.
    pub(crate) fn workers(&self, group: &GroupKey) -> Vec<PodView> {
        let known = self.known();
        let pods = known.pods.get(group).into_iter().flat_map(BTreeMap::values);
        pods.filter(|pod| pod.job.is_none()).cloned().collect()
    }

    /// A Job and its pods, the oldest first.
    pub(crate) fn job(&self, group: &GroupKey, name: &str) -> (Option<JobView>, Vec<PodView>) {
        let known = self.known();
        let job = known.jobs.get(group).and_then(|jobs| jobs.get(name));
        let pods = known.pods.get(group).into_iter().flat_map(BTreeMap::values);
        let mut pods: Vec<PodView> = pods
            .filter(|pod| pod.job.as_deref() == Some(name))
            .cloned()
            .collect();
        pods.sort_by(|one, other| (one.created, &one.name).cmp(&(other.created, &other.name)));
        (job.cloned(), pods)
    }

    /// What holds up the pod of the newest Job of a group that has not ended.
    pub(crate) fn hurdle(&self, group: &GroupKey) -> Option<String> {
        let running = self.jobs(group).into_iter().rev();
        let (name, _) = running.into_iter().find(|(_, job)| job.end.is_none())?;
        let (_, pods) = self.job(group, &name);
        let trouble = pods.last()?.trouble.as_ref()?;
        (trouble.kind <= TroubleKind::Stuck)
            .then(|| format!("the deploy job waits: {}", trouble.message))
    }

    /// The Jobs of a group, the oldest first.
    pub(crate) fn jobs(&self, group: &GroupKey) -> Vec<(String, JobView)> {
        let known = self.known();
        let jobs = known.jobs.get(group).into_iter().flatten();
        let mut jobs: Vec<_> = jobs
            .map(|(name, job)| (name.clone(), job.clone()))
            .collect();
        jobs.sort_by(|(one, a), (other, b)| (a.created, one).cmp(&(b.created, other)));
        jobs
    }

    /// Tells of changes of a Job until it is dropped.
    pub(crate) fn follow(&self, group: &GroupKey, job: &str) -> Following {
        let of = (group.namespace.clone(), job.to_owned());
        let told = Arc::clone(self.known().waiting.entry(of.clone()).or_default());
        Following {
            pods: self.clone(),
            of,
            told,
        }
    }

    /// Waits until both first lists are done.
    pub(crate) async fn ready(&self) {
        for listed in [&self.0.pods_listed, &self.0.jobs_listed] {
            // The sender lives as long as this does.
            let _ = listed.subscribe().wait_for(|listed| *listed).await;
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a pod; whether something changed.
    fn put_pod(&self, group: &GroupKey, pod: PodView) -> bool {
        let mut known = self.known();
        let pods = known.pods.entry(group.clone()).or_default();
        if pods.get(&pod.name) == Some(&pod) {
            return false;
        }
        let job = pod.job.clone();
        pods.insert(pod.name.clone(), pod);
        if let Some(job) = job {
            known.tell(&group.namespace, &job);
        }
        true
    }

    /// Notes a Job; whether something changed.
    fn put_job(&self, group: &GroupKey, name: &str, job: JobView) -> bool {
        let mut known = self.known();
        let jobs = known.jobs.entry(group.clone()).or_default();
        if jobs.get(name) == Some(&job) {
            return false;
        }
        jobs.insert(name.to_owned(), job);
        known.tell(&group.namespace, name);
        true
    }

    fn remove_pod(&self, group: &GroupKey, name: &str) {
        let mut known = self.known();
        let Some(pods) = known.pods.get_mut(group) else {
            return;
        };
        let gone = pods.remove(name);
        if pods.is_empty() {
            known.pods.remove(group);
        }
        if let Some(job) = gone.and_then(|pod| pod.job) {
            known.tell(&group.namespace, &job);
        }
    }

    fn remove_job(&self, group: &GroupKey, name: &str) {
        let mut known = self.known();
        let Some(jobs) = known.jobs.get_mut(group) else {
            return;
        };
        jobs.remove(name);
        if jobs.is_empty() {
            known.jobs.remove(group);
        }
        known.tell(&group.namespace, name);
    }
}

/// Waits for changes of one Job.
pub(crate) struct Following {
    pods: Pods,
    of: (String, String),
    told: Arc<Notify>,
}

impl Following {
    /// Returns when it changed since the last time.
    pub(crate) async fn changed(&self) {
        self.told.notified().await;
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.pods.known().waiting.remove(&self.of);
    }
}

#[cfg(test)]
pub(crate) mod tests;
