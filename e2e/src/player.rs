//! Plays the scheduler and the kubelet where there is none (tier 2), so that groups become live there.
//!
//! [`Containers::Real`] runs what a pod's container would run, as a process of this machine with the pod's files,
//! variables and an address of its own, and tells the API server what becomes of it. [`Containers::Paper`] only says that
//! worker pods run, and hands a report over in the name of deploy jobs: for many groups. With [`Workers`] somebody answers
//! at the addresses of worker pods. It knows of Ramen only what stands in the pods, but for where a deploy job's report
//! goes and how a worker is told what to load.

mod files;
mod paper;
mod process;
mod told;
mod workers;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::{AbortHandle, JoinSet},
};

pub use paper::{Deploy, Outcome, Paper, report};
pub use process::Programs;
pub use workers::Workers;

/// Pods that are started at once.
const STARTS: usize = 16;

/// How containers run.
#[derive(Clone)]
pub enum Containers {
    /// As processes.
    Real(Programs),
    /// Not at all.
    Paper(Paper),
}

/// A player. When it is dropped, so are its processes; the pods stay as they were said to be.
pub struct Player {
    orders: mpsc::UnboundedSender<(String, Order)>,
    task: AbortHandle,
}

/// What a test does to a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// SIGKILL to its process; it is started again as a kubelet would.
    Kill,
}

/// What all pods share.
struct Stage {
    client: Client,
    containers: Containers,
    starts: Semaphore,
    /// Where the files of pods are.
    dir: PathBuf,
}

impl Player {
    /// Plays for a namespace, or for all of them; files of pods lie below `dir`.
    ///
    /// # Errors
    /// When pods can have no addresses here.
    pub fn start(
        client: &Client,
        namespace: Option<&str>,
        containers: Containers,
        dir: PathBuf,
    ) -> anyhow::Result<Self> {
        // On paper, too: who asks such a pod is answered or refused at once and does not wait.
        let inside = std::env::var_os("RAMEN_CLUSTER").is_some();
        if inside || matches!(containers, Containers::Real(_)) {
            process::addresses()?;
        }
        let pods = namespace.map_or_else(
            || Api::<Pod>::all(client.clone()),
            |namespace| Api::namespaced(client.clone(), namespace),
        );
        let stage = Arc::new(Stage {
            client: client.clone(),
            containers,
            starts: Semaphore::new(STARTS),
            dir,
        });
        let (orders, received) = mpsc::unbounded_channel();
        let task = tokio::spawn(play(pods, stage, received)).abort_handle();
        Ok(Self { orders, task })
    }

    /// Kills the process of a pod with SIGKILL, as running out of memory would. It comes back as its policy says.
    pub fn kill(&self, pod: &str) {
        // Nobody reads only after an abort.
        let _ = self.orders.send((pod.to_owned(), Order::Kill));
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn play(
    pods: Api<Pod>,
    stage: Arc<Stage>,
    mut orders: mpsc::UnboundedReceiver<(String, Order)>,
) {
    let events = watcher(pods, watcher::Config::default().any_semantic());
    let mut events = events.default_backoff().boxed();
    let mut running: HashMap<String, (String, mpsc::UnboundedSender<Order>)> = HashMap::new();
    // Dropped with this future: then every process ends.
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            Some((name, order)) = orders.recv() => {
                for (pod, to) in running.values() {
                    if *pod == name {
                        // It may have ended meanwhile.
                        let _ = to.send(order);
                    }
                }
            }
            event = events.try_next() => {
                let (pod, there) = match event {
                    Ok(Some(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod))) => (pod, true),
                    Ok(Some(watcher::Event::Delete(pod))) => (pod, false),
                    // The API server is away, perhaps on purpose.
                    Ok(_) | Err(_) => continue,
                };
                let uid = pod.uid().unwrap_or_default();
                if !there {
                    // Its task sees that nobody can give it orders any more, and ends its process.
                    running.remove(&uid);
                    continue;
                }
                if running.contains_key(&uid) || told::ended(&pod) {
                    continue;
                }
                let (to, received) = mpsc::unbounded_channel();
                running.insert(uid, (pod.name_any(), to));
                tasks.spawn(run(Arc::clone(&stage), pod, received));
            }
            Some(_) = tasks.join_next() => {}
        }
    }
}

/// Runs a pod to its end.
async fn run(stage: Arc<Stage>, pod: Pod, orders: mpsc::UnboundedReceiver<Order>) {
    let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    let ended = match &stage.containers {
        Containers::Real(programs) => process::run(&stage, programs, &pod, orders).await,
        Containers::Paper(paper) => paper::run(&stage, paper, &pod, orders).await,
    };
    if let Err(error) = ended {
        eprintln!("the player gives up on pod {name}: {error:#}");
    }
}

/// An address that no other pod of this machine has now: pods of one test process differ by a number, those of two by the
/// process.
fn address() -> std::net::Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let own = std::process::id() & 0xfff;
    let pod = NEXT.fetch_add(1, Ordering::Relaxed) & 0x3ff;
    // 10.128.0.0/10, which neither nodes, pods nor Services of `e2e/cluster` use.
    std::net::Ipv4Addr::from_bits(0x0a80_0000 | own << 10 | pod)
}
