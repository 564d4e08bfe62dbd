//! Pods that run on paper only.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{Api, ResourceExt as _};
use ramen_group::{DesiredState, Report};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc::UnboundedReceiver};

use super::{Order, Stage, Workers, address, told};

/// How long a deploy job tries to hand its report over, and how often.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(300);

/// A deploy job that is to be played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deploy {
    /// Of the group.
    pub namespace: String,
    /// The group.
    pub group: String,
    /// As people are told it: `main@sha1:…`.
    pub revision: String,
    /// The git tree that its code is.
    pub tree: String,
    /// The image that it runs in.
    pub image: String,
    digest: String,
}

/// Tells what a deploy job does.
#[derive(Clone)]
pub struct Paper {
    plays: Arc<dyn Fn(&Deploy) -> Outcome + Send + Sync>,
    /// What worker pods answer; without it nobody listens there.
    workers: Option<Workers>,
}

/// What a deploy job does.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It hands this report over and ends well.
    Report(Value),
    /// It ends with this code and no report.
    Exit(i32),
    /// It runs out of memory.
    OutOfMemory,
    /// Its node ends it, and says this.
    Evicted(&'static str),
    /// It goes on and on.
    Hang,
    /// It waits for one of these permits, and takes it.
    After(Arc<Semaphore>, Box<Self>),
}

impl Paper {
    /// Every deploy finds these tools.
    pub fn of(tools: &'static [&'static str]) -> Self {
        Self::new(|deploy| Outcome::Report(report(deploy, tools)))
    }

    /// What each deploy does.
    pub fn new(plays: impl Fn(&Deploy) -> Outcome + Send + Sync + 'static) -> Self {
        Self {
            plays: Arc::new(plays),
            workers: None,
        }
    }

    /// With worker pods that can be told what to load, and say that they have.
    #[must_use]
    pub fn answered_by(mut self, workers: Workers) -> Self {
        self.workers = Some(workers);
        self
    }
}

/// The report of a deploy that went well.
pub fn report(deploy: &Deploy, tools: &[&str]) -> Value {
    let packages = tools
        .iter()
        .map(|name| json!({ "kind": "tool", "name": name, "ok": true }));
    json!({
        "revision": deploy.revision, "tree": deploy.tree, "python": "3.11", "group": deploy.group,
        "code": { "key": deploy.tree, "digest": deploy.digest, "size": 1 },
        "packages": packages.collect::<Vec<_>>(),
        "outcome": "ok",
    })
}

pub(super) async fn run(
    stage: &Stage,
    paper: &Paper,
    pod: &Pod,
    orders: UnboundedReceiver<Order>,
) -> anyhow::Result<()> {
    let turn = stage.starts.acquire().await?;
    let Some((url, deploy)) = deploy(pod)? else {
        return worker(stage, paper, pod, orders, turn).await;
    };
    let address = address();
    let tell = |state| told::tell(&stage.client, pod, address, state);
    // Mounted before the container starts: what it has, it has, whoever is away later.
    let token = token(stage, pod).await?;
    tell(told::State::Running {
        ready: false,
        restarts: 0,
    })
    .await?;
    drop(turn);
    let mut outcome = (paper.plays)(&deploy);
    while let Outcome::After(permits, then) = outcome {
        permits.acquire().await?.forget();
        outcome = *then;
    }
    match outcome {
        Outcome::Report(report) => {
            if let Some(workers) = &paper.workers {
                workers.found(&deploy.tree, &report);
            }
            let accepted = hand_over(&url, &token, &report).await;
            tell(told::State::Ended {
                code: i32::from(!accepted),
            })
            .await
        }
        Outcome::Exit(code) => tell(told::State::Ended { code }).await,
        Outcome::OutOfMemory => tell(told::State::OutOfMemory).await,
        Outcome::Evicted(why) => tell(told::State::Evicted(why)).await,
        Outcome::Hang | Outcome::After(..) => Ok(()),
    }
}

/// A worker pod: ready at once, and then there to be told, until it is gone.
async fn worker(
    stage: &Stage,
    paper: &Paper,
    pod: &Pod,
    mut orders: UnboundedReceiver<Order>,
    turn: SemaphorePermit<'_>,
) -> anyhow::Result<()> {
    let ready = told::State::Running {
        ready: true,
        restarts: 0,
    };
    let spec = pod.spec.as_ref();
    let mut volumes = spec
        .and_then(|spec| spec.volumes.as_ref())
        .into_iter()
        .flatten();
    let file = volumes.find_map(|volume| Some(volume.config_map.as_ref()?.name.clone()));
    let (Some(workers), Some(file)) = (&paper.workers, file) else {
        return told::tell(&stage.client, pod, address(), ready).await;
    };
    // As with a kubelet, nothing starts before what is mounted is there.
    let desired = loop {
        if let Some(desired) = mounted(stage, pod, &file).await? {
            break desired;
        }
        tokio::select! {
            order = orders.recv() => if order.is_none() { return Ok(()) },
            () = tokio::time::sleep(PAUSE) => {}
        }
    };
    let worker = workers.start(pod, desired).await?;
    told::tell(&stage.client, pod, worker.address, ready).await?;
    drop(turn);
    let gone = async { while orders.recv().await.is_some() {} };
    tokio::select! {
        ended = Box::pin(worker.serve()) => ended,
        () = gone => Ok(()),
    }
}

/// What the one file of a `ConfigMap` names; `None` when it is not there, or names nothing.
async fn mounted(stage: &Stage, pod: &Pod, map: &str) -> anyhow::Result<Option<DesiredState>> {
    let namespace = pod.namespace().unwrap_or_default();
    let maps = Api::<ConfigMap>::namespaced(stage.client.clone(), &namespace);
    let found = told::patiently(|| maps.get_opt(map)).await?;
    let file = found.and_then(|map| map.data?.into_values().next());
    Ok(file.and_then(|text| serde_json::from_str(&text).ok()))
}

/// As a deploy job does it: again and again while the operator is away.
async fn hand_over(url: &str, token: &str, report: &Value) -> bool {
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    // Cut as a deploy job cuts it; a drill may say what is no report at all.
    let body = match serde_json::from_value::<Report>(report.clone()) {
        Ok(report) => report.to_fitting_json(),
        Err(_) => report.to_string().into_bytes(),
    };
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        match crate::http::request("PUT", url, &headers, &body).await {
            Ok(answer) if answer.status < 300 => return true,
            _ if tokio::time::Instant::now() > end => return false,
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Where the report of a deploy job goes, and what it is about; `None` for any other pod.
fn deploy(pod: &Pod) -> anyhow::Result<Option<(String, Deploy)>> {
    let container = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.containers.first())
        .context("a pod without a container")?;
    let args = container.args.as_deref().unwrap_or_default();
    let after = |flag: &str| {
        let at = args.iter().position(|arg| arg == flag)?;
        args.get(at + 1).cloned()
    };
    let Some(url) = after("--report-url") else {
        return Ok(None);
    };
    let layer = after("--code-layer").context("a deploy job without --code-layer")?;
    let (tree, digest) = layer
        .split_once('@')
        .context("a code layer without a digest")?;
    let deploy = Deploy {
        namespace: pod.namespace().unwrap_or_default(),
        group: after("--group").unwrap_or_default(),
        revision: after("--revision").unwrap_or_default(),
        tree: tree.to_owned(),
        image: container.image.clone().unwrap_or_default(),
        digest: digest.to_owned(),
    };
    Ok(Some((url, deploy)))
}

/// The token that is mounted into the pod.
async fn token(stage: &Stage, pod: &Pod) -> anyhow::Result<String> {
    let spec = pod.spec.as_ref().context("a pod without a spec")?;
    let mut names = spec.volumes.iter().flatten();
    let name = names
        .find_map(|volume| volume.secret.as_ref()?.secret_name.clone())
        .context("a deploy job without a Secret")?;
    let secrets =
        Api::<Secret>::namespaced(stage.client.clone(), &pod.namespace().unwrap_or_default());
    let secret = told::patiently(|| secrets.get(&name)).await?;
    let data = secret.data.unwrap_or_default();
    let token = data
        .into_values()
        .next()
        .context("a Secret without a token")?;
    let token = String::from_utf8(token.0)?;
    ensure!(!token.is_empty(), "the token in {name} is empty");
    Ok(token)
}
