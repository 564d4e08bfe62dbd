use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::slim::{SlimJob, SlimPod};
use super::watch::{Listing, take};
use super::*;

/// A worker pod that is well.
pub(crate) fn worker(name: &str) -> PodView {
    PodView {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        created: 0,
        zone: Some("default".to_owned()),
        job: None,
        image: "ramen-worker:1".to_owned(),
        address: Some("10.0.0.1".parse().unwrap()),
        ready: true,
        leaving: false,
        restarts: 0,
        ended: None,
        trouble: None,
    }
}

/// A group's pod as the API server sends it.
pub(crate) fn pod(name: &str, labels: &Value, status: &Value) -> SlimPod {
    let mut all = json!({"ramen.dev/group": "calc"});
    for (label, value) in labels.as_object().unwrap() {
        all[label] = value.clone();
    }
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": "team-a", "uid": format!("uid-{name}"), "labels": all,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"containers": [{"name": "worker", "image": "ramen-worker:1", "args": ["serve"]}]},
        "status": status,
    }))
    .unwrap()
}

pub(crate) fn group() -> GroupKey {
    GroupKey::new("team-a", "calc")
}

impl Pods {
    /// Notes a pod as if the watch had shown it.
    pub(crate) fn show_pod(&self, labels: &Value, name: &str, status: &Value) {
        self.put_pod(&group(), PodView::of(&pod(name, labels, status)));
    }

    /// Takes a pod away as if the watch had told so.
    pub(crate) fn hide_pod(&self, name: &str) {
        self.remove_pod(&group(), name);
    }

    /// Notes a Job as if the watch had shown it.
    pub(crate) fn show_job(&self, name: &str, job: JobView) {
        self.put_job(&group(), name, job);
    }

    /// Takes a Job away as if the watch had told so.
    pub(crate) fn hide_job(&self, name: &str) {
        self.remove_job(&group(), name);
    }
}

fn names(pods: &Pods) -> Vec<String> {
    let workers = pods.workers(&group()).into_iter();
    workers.map(|pod| pod.name).collect()
}

fn tell(pods: &Pods, listing: &mut Listing, event: Event<SlimPod>) -> usize {
    let woken = std::cell::Cell::new(0);
    take(pods, &|_| woken.set(woken.get() + 1), listing, Ok(event));
    woken.get()
}

#[tokio::test]
async fn the_first_list_wakes_nobody_and_a_pod_only_what_decides_something() {
    let (pods, mut listing) = (Pods::default(), Listing::new());
    let running = json!({"phase": "Running", "podIP": "10.0.0.1"});
    let one = pod("one", &json!({}), &running);
    assert_eq!(tell(&pods, &mut listing, Event::Init), 0);
    assert_eq!(tell(&pods, &mut listing, Event::InitApply(one.clone())), 0);
    assert_eq!(tell(&pods, &mut listing, Event::InitDone), 0);
    // The kubelet's heartbeat.
    assert_eq!(tell(&pods, &mut listing, Event::Apply(one)), 0);
    let ready = json!({
        "phase": "Running", "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True"}],
    });
    let ready = pod("one", &json!({}), &ready);
    assert_eq!(tell(&pods, &mut listing, Event::Apply(ready)), 1);
    assert!(pods.workers(&group())[0].ready);
}

#[tokio::test]
async fn a_list_made_again_forgets_what_is_gone_and_a_stub_is_enough_to_remove() {
    let (pods, mut listing) = (Pods::default(), Listing::new());
    let named = |name: &str| pod(name, &json!({}), &json!({}));
    for event in [
        Event::Init,
        Event::InitApply(named("one")),
        Event::InitApply(named("two")),
        Event::InitDone,
    ] {
        tell(&pods, &mut listing, event);
    }
    for event in [
        Event::Init,
        Event::InitApply(named("two")),
        Event::InitApply(named("three")),
    ] {
        tell(&pods, &mut listing, event);
    }
    assert_eq!(tell(&pods, &mut listing, Event::InitDone), 1);
    assert_eq!(names(&pods), ["three", "two"]);
    // Of several namespaces' lists, no more than the name is left of an object that is gone.
    let stub: SlimPod =
        serde_json::from_value(json!({"metadata": {"name": "two", "namespace": "team-a"}}))
            .unwrap();
    assert_eq!(tell(&pods, &mut listing, Event::Delete(stub)), 1);
    assert_eq!(names(&pods), ["three"]);
}

#[tokio::test]
async fn who_follows_a_job_is_told_of_it_and_of_its_pods_and_of_no_other() {
    let pods = Pods::default();
    let job = JobView {
        uid: "j".to_owned(),
        created: 1,
        end: None,
    };
    let following = pods.follow(&group(), "calc-deploy-1");
    let told = || futures::FutureExt::now_or_never(following.changed()).is_some();
    pods.show_job("calc-deploy-2", job.clone());
    assert!(!told());
    pods.show_job("calc-deploy-1", job.clone());
    assert!(told());
    pods.show_job("calc-deploy-1", job);
    assert!(!told());
    let labels = json!({"batch.kubernetes.io/job-name": "calc-deploy-1"});
    pods.show_pod(&labels, "p", &json!({"phase": "Pending"}));
    assert!(told());
    pods.hide_job("calc-deploy-1");
    assert!(told());
    drop(following);
    assert!(pods.known().waiting.is_empty());
    assert_eq!(names(&pods), Vec::<String>::new());
}

#[test]
fn what_is_not_looked_at_is_not_kept() {
    let job: SlimJob = serde_json::from_value(json!({
        "metadata": {"name": "j"}, "spec": {"template": {"spec": {"containers": []}}},
        "status": {"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 1},
    }))
    .unwrap();
    assert_eq!(JobView::of(&job).end, Some(JobEnd::Well));
    assert!(!format!("{job:?}").contains("template"));
}
