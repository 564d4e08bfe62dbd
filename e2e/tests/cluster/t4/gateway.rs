//! The gateway of the chart: two replicas before three workers, and what is lost when one of either dies.

mod callers;
mod front;
mod operations;

use std::{
    collections::BTreeSet,
    net::TcpStream,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use ramen_e2e::{
    Agent, GRPC, GitHost, Group, HttpCaller, HttpRefusal, Namespace, Release, Tier, comes_true,
    condition, gone, rules_hold, with_temp_ns,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::greeting;

/// Callers at once.
const CALLERS: usize = 8;
/// Calls that must go through between two events.
const SOME: usize = 60;

pub(super) fn two() -> Value {
    json!({ "gateway": { "enabled": true, "replicas": 2, "log": "info,ramen_gateway=debug" } })
}

/// The gateways' pods that are ready, with their addresses.
async fn gateways(namespace: &Namespace) -> anyhow::Result<Vec<(String, String)>> {
    let ours = ListParams::default().labels("app.kubernetes.io/component=gateway");
    let pods = namespace.api::<Pod>().list(&ours).await?;
    let there = pods.into_iter().filter(|pod| {
        pod.metadata.deletion_timestamp.is_none() && condition::<Pod>("Ready", "True")(Some(pod))
    });
    let with = |pod: Pod| {
        let address = pod.status.as_ref()?.pod_ip.clone()?;
        Some((pod.name_any(), format!("http://{address}:8080")))
    };
    Ok(there.filter_map(with).collect())
}

/// Where the metrics of a gateway are, as `host:port`.
pub(super) fn metrics(url: &str) -> String {
    url.replace("http://", "").replace(":8080", ":9090")
}

/// Waits for two that are ready.
pub(super) async fn both(namespace: &Namespace) -> anyhow::Result<Vec<String>> {
    comes_true("two gateways are ready", async || {
        Ok(gateways(namespace).await?.len() == 2)
    })
    .await?;
    let found = gateways(namespace).await?;
    Ok(found.into_iter().map(|(_, url)| url).collect())
}

/// Waits until each of the gateways answers for the group.
pub(super) async fn each_answers(caller: &HttpCaller, urls: &[String]) -> anyhow::Result<()> {
    for url in urls {
        comes_true("each gateway knows the group", async || {
            let arguments = json!({ "name": "Ana" });
            let answer = caller.at(url).tool("greet", arguments).await;
            Ok(answer == Ok("one greets Ana".to_owned()))
        })
        .await?;
    }
    Ok(())
}

/// How one call went: its number, the gateway that got it, the answer.
pub(super) type Ended = (usize, String, Result<String, HttpRefusal>);

/// Callers who go round the gateways, call after call, each with an argument of its own.
pub(super) struct Round {
    urls: Arc<RwLock<Vec<String>>>,
    ended: Arc<Mutex<Vec<Ended>>>,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Round {
    pub(super) fn start(caller: &HttpCaller, urls: Vec<String>) -> Self {
        let urls = Arc::new(RwLock::new(urls));
        let ended = Arc::<Mutex<Vec<Ended>>>::default();
        let (stop, turn) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let mut tasks = JoinSet::new();
        for _ in 0..CALLERS {
            let (caller, urls, ended) = (caller.clone(), Arc::clone(&urls), Arc::clone(&ended));
            let (stop, turn) = (Arc::clone(&stop), Arc::clone(&turn));
            tasks.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let n = turn.fetch_add(1, Ordering::Relaxed);
                    let url = {
                        let urls = urls.read().unwrap_or_else(PoisonError::into_inner);
                        urls[n % urls.len()].clone()
                    };
                    let arguments = json!({ "name": n.to_string() });
                    let answer = caller.at(&url).tool("greet", arguments).await;
                    let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                    ended.push((n, url, answer));
                }
            });
        }
        Self {
            urls,
            ended,
            stop,
            tasks,
        }
    }

    fn so_far(&self) -> Vec<Ended> {
        self.ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits until so many more have gone well.
    pub(super) async fn goes_on(&self) -> anyhow::Result<()> {
        let well = || {
            let all = self.so_far();
            all.iter().filter(|(.., answer)| answer.is_ok()).count()
        };
        let begin = well();
        comes_true("calls go on", async || Ok(well() >= begin + SOME)).await
    }

    /// Goes round these from now on.
    fn turn_to(&self, urls: Vec<String>) {
        *self.urls.write().unwrap_or_else(PoisonError::into_inner) = urls;
    }

    pub(super) async fn stop(self) -> Vec<Ended> {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.join_all().await;
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.clone()
    }
}

/// What was answered is the answer to what was asked; gives what was not answered.
pub(super) fn failures(ended: &[Ended]) -> anyhow::Result<Vec<&Ended>> {
    for (n, url, answer) in ended {
        if let Ok(text) = answer {
            ensure!(
                *text == format!("one greets {n}"),
                "{url} answers call {n} with {text:?}"
            );
        }
    }
    Ok(ended
        .iter()
        .filter(|(.., answer)| answer.is_err())
        .collect())
}

async fn end_at_once(namespace: &Namespace, pod: &str) -> anyhow::Result<()> {
    let pods = namespace.api::<Pod>();
    pods.delete(pod, &DeleteParams::default().grace_period(0))
        .await?;
    namespace.until::<Pod>(pod, gone).await.map(drop)
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_worker_and_a_gateway_that_are_killed_under_load_take_only_calls_in_flight_with_them() {
    with_temp_ns(Tier::T4, async |namespace| {
        let release = Release::install(&namespace, two()).await?;
        let tested = release.test().await?;
        ensure!(tested.contains("Succeeded"), "{tested}");
        let git = GitHost::http()?;
        let commit = git.push(&greeting("one"))?;
        let group = Group::apply(&namespace, "library", Group::spec(&git.url(), 3)).await?;
        group.serves(&commit).await?;
        let urls = both(&namespace).await?;
        let key = group.key().await?;
        let caller = HttpCaller::new(&urls[0], &namespace.name, "library", &key);
        each_answers(&caller, &urls).await?;

        let mut targets = vec![(
            "operator",
            release.url("operator", 8080).replace("http://", ""),
        )];
        let workers = group.addresses().await?.into_iter();
        targets.extend(workers.map(|(_, address)| ("worker", format!("{address}:9090"))));
        targets.extend(urls.iter().map(|url| ("gateway", metrics(url))));
        // No group has upstreams here, and no operators are named, nor files of theirs.
        let absent = [
            "ramen_gateway_upstreams",
            "ramen_gateway_operations_total",
            "ramen_gateway_unusable_files",
        ];
        rules_hold(&targets, &absent).await?;

        let round = Round::start(&caller, urls.clone());
        round.goes_on().await?;
        ensure!(
            failures(&round.so_far())?.is_empty(),
            "nothing happened yet"
        );

        let (worker, _) = group.addresses().await?.remove(0);
        end_at_once(&namespace, &worker).await?;
        group.serves(&commit).await?;
        round.goes_on().await?;
        let so_far = round.so_far();
        let of_worker = failures(&so_far)?;
        ensure!(of_worker.len() <= CALLERS, "{of_worker:?}");
        for failure in &of_worker {
            // As documented: the connection broke in the call; whether it ran is not known.
            let HttpRefusal::Rpc(200, error) = failure.2.as_ref().unwrap_err() else {
                anyhow::bail!("{failure:?}");
            };
            assert_eq!(error["code"], -32603, "{failure:?}");
        }

        let (victim, victims_url) = gateways(&namespace).await?.remove(0);
        let others: Vec<_> = urls
            .iter()
            .filter(|url| **url != victims_url)
            .cloned()
            .collect();
        end_at_once(&namespace, &victim).await?;
        round.turn_to(others);
        round.turn_to(both(&namespace).await?);
        let begin = round.so_far().len();
        round.goes_on().await?;
        let all = round.stop().await;
        for (n, url, answer) in failures(&all)?.iter().skip(of_worker.len()) {
            let lost = matches!(answer, Err(HttpRefusal::Lost(_)));
            ensure!(lost && *url == victims_url, "call {n} at {url}: {answer:?}");
        }
        // Once all is as it was, nothing is lost, and the new one answers.
        let after = &all[begin..];
        let answered: BTreeSet<_> = after
            .iter()
            .filter(|(_, url, _)| *url != victims_url)
            .map(|(_, url, answer)| (url.as_str(), answer.is_ok()))
            .collect();
        assert_eq!(answered.len(), 2, "{answered:?}");
        ensure!(answered.iter().all(|(_, well)| *well), "{answered:?}");
        Ok(())
    })
    .await;
}

/// From where a pod sees this test.
fn seen_from(url: &str) -> anyhow::Result<std::net::IpAddr> {
    let stream = TcpStream::connect(url.trim_start_matches("http://"))?;
    Ok(stream.local_addr()?.ip())
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn workers_let_in_the_gateway_and_the_groups_ranges_and_nobody_else() {
    with_temp_ns(Tier::T4, async |namespace| {
        Release::install(&namespace, two()).await?;
        let stranger = Agent::start(&namespace, "stranger").await?;
        let git = GitHost::http()?;
        let commit = git.push(&greeting("one"))?;
        let urls = both(&namespace).await?;
        let mut spec = Group::spec(&git.url(), 1);
        // This test alone: neither the stranger nor the gateways' pods.
        let own = seen_from(&urls[0])?;
        spec["network"]["allowedCIDRs"] = json!([own.to_string()]);
        let group = Group::apply(&namespace, "library", spec).await?;
        group.serves(&commit).await?;
        let (_, worker) = group.addresses().await?.remove(0);
        comes_true("a stranger does not reach a worker", async || {
            Ok(stranger.tries(&worker, GRPC).await? != "open")
        })
        .await?;
        // It reaches the gateway, which wants a key.
        let host = urls[0].trim_start_matches("http://").to_owned();
        let (host, port) = host.split_once(':').context("an address")?;
        assert_eq!(stranger.tries(host, port.parse()?).await?, "open");
        let caller = HttpCaller::new(&urls[0], &namespace.name, "library", &group.key().await?);
        comes_true("the gateway reaches the worker", async || {
            let answer = caller.tool("greet", json!({ "name": "Ana" })).await;
            Ok(answer == Ok("one greets Ana".to_owned()))
        })
        .await?;
        // The gateway holds the group's ranges against the caller, not against itself.
        group
            .patch(json!({ "network": { "allowedCIDRs": [stranger.address] } }))
            .await?;
        comes_true("the caller's address is refused", async || {
            let answer = caller.tool("greet", json!({ "name": "Ana" })).await;
            Ok(answer == Err(HttpRefusal::Status(403)))
        })
        .await
    })
    .await;
}
