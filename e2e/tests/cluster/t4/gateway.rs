//! The gateway of the chart: two replicas before three workers, and what is lost when one of either dies.

use std::{
    collections::BTreeSet,
    net::TcpStream,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Event, Pod, Secret};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use ramen_crds::McpGroup;
use ramen_e2e::{
    Agent, GRPC, GitHost, Group, HttpCaller, HttpRefusal, Namespace, Release, Tier, comes_true,
    condition, gone, request, rules_hold, with_temp_ns,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    docs::{Shell, blocks},
    greeting,
};

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
        let all = urls
            .iter()
            .map(|url| url.replace("http://", "").replace(":8080", ":9090"));
        targets.extend(all.map(|at| ("gateway", at)));
        // No group has upstreams here.
        rules_hold(&targets, &["ramen_gateway_upstreams"]).await?;

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

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn groups_and_keys_come_and_go_at_every_replica_without_a_restart() {
    with_temp_ns(Tier::T4, async |namespace| {
        Release::install(&namespace, two()).await?;
        let git = GitHost::http()?;
        let commit = git.push(&greeting("one"))?;
        let urls = both(&namespace).await?;
        let group = Group::apply(&namespace, "library", Group::spec(&git.url(), 1)).await?;
        group.serves(&commit).await?;
        let caller = HttpCaller::new("", &namespace.name, "library", &group.key().await?);
        let everywhere = async |caller: &HttpCaller, wanted: Result<String, HttpRefusal>| {
            for url in &urls {
                let there = caller.at(url);
                comes_true(&format!("{url} answers {wanted:?}"), async || {
                    Ok(there.tool("greet", json!({ "name": "Ana" })).await == wanted)
                })
                .await?;
            }
            anyhow::Ok(())
        };
        let greets = || Ok("one greets Ana".to_owned());
        let refused = || Err(HttpRefusal::Status(401));
        everywhere(&caller, greets()).await?;

        // As day-2.md adds a key, and takes one away.
        let secrets = namespace.api::<Secret>();
        let change = async |change: Value| {
            let change = Patch::Merge(change);
            let name = "library-mcp-keys";
            secrets.patch(name, &PatchParams::default(), &change).await
        };
        change(json!({ "stringData": { "next": "rmk_next" } })).await?;
        let next = HttpCaller::new("", &namespace.name, "library", "rmk_next");
        everywhere(&next, greets()).await?;
        change(json!({ "data": { "next": null } })).await?;
        everywhere(&next, refused()).await?;
        everywhere(&caller, greets()).await?;

        namespace
            .api::<McpGroup>()
            .delete("library", &DeleteParams::default())
            .await?;
        everywhere(&caller, refused()).await?;
        let now: Vec<_> = gateways(&namespace)
            .await?
            .into_iter()
            .map(|(_, url)| url)
            .collect();
        assert_eq!(now, urls, "they are the pods of before");
        let ours = ListParams::default().labels("app.kubernetes.io/component=gateway");
        for pod in namespace.api::<Pod>().list(&ours).await? {
            let statuses = pod.status.and_then(|status| status.container_statuses);
            for container in statuses.into_iter().flatten() {
                assert_eq!(container.restart_count, 0);
            }
        }
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

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_group_is_called_as_the_page_says() {
    with_temp_ns(Tier::T4, async |namespace| {
        Release::install(&namespace, two()).await?;
        let git = GitHost::http()?;
        let commit = git.push(&greeting("one"))?;
        let mut spec = Group::spec(&git.url(), 1);
        spec["network"]["allowedCIDRs"] = json!(["127.0.0.1/32"]);
        let group = Group::apply(&namespace, "library", spec).await?;
        group.serves(&commit).await?;
        both(&namespace).await?;
        let shell = Shell::new(&[
            ("-n team-a", &format!("-n {}", namespace.name)),
            ("-n ramen-system", &format!("-n {}", namespace.name)),
            ("team-a/library", &format!("{}/library", namespace.name)),
            ("8080:80", ":80"),
        ])?;
        let call = blocks("gateway.md", "Call a group")?;
        let (key, rest) = call[0].split_once('\n').context("a key")?;
        let (forward, ask) = rest.split_once('\n').context("a way")?;
        shell.run(key).await?;
        let mut forwarding = shell.forward(forward).await?;
        // Other tests forward, too: the port is what was free.
        let ask = ask.replace("127.0.0.1:8080", &format!("127.0.0.1:{}", forwarding.port));
        let listed = shell.run(&ask).await?;
        assert!(listed.contains("\"greet\""), "{listed}");
        forwarding.child.kill().await?;
        Ok(())
    })
    .await;
}

/// An operation: the status, and the answer.
async fn operate(url: &str, key: &str, path: &str, input: &Value) -> anyhow::Result<(u16, Value)> {
    let bearer = format!("Bearer {key}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let url = format!("{url}/api/v1/{path}");
    let answer = request("POST", &url, &headers, input.to_string().as_bytes()).await?;
    let body = serde_json::from_str(&answer.body).unwrap_or_default();
    Ok((answer.status, body))
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn operations_are_served_to_those_whose_keys_stand_in_the_secret_of_the_chart() {
    with_temp_ns(Tier::T4, async |namespace| {
        let keys = json!({ "stringData": { "ana.read": "rmk_ana", "bo.write": "rmk_bo" } });
        namespace.apply::<Secret>("operators", keys).await?;
        let mut values = two();
        values["gateway"]["operations"] = json!({
            "secretName": "operators", "cidrs": ["10.0.0.0/8"], "rules": [{ "groups": ["platform"], "level": "write" }],
        });
        // Nobody signs in there: the rules are read all the same.
        let issuers = json!([{ "issuer": "https://login.example.com" }]);
        values["gateway"]["oidc"] =
            json!({ "publicUrl": "https://mcp.example.com", "issuers": issuers });
        Release::install(&namespace, values).await?;
        let git = GitHost::http()?;
        let first = git.push(&greeting("one"))?;
        let group = Group::apply(&namespace, "library", Group::spec(&git.url(), 1)).await?;
        group.serves(&first).await?;
        let urls = both(&namespace).await?;
        let name = format!("{}/library", namespace.name);
        let (status, listed) = operate(&urls[0], "rmk_ana", "groups/list", &json!({})).await?;
        assert_eq!(status, 200, "{listed}");
        assert_eq!(listed["groups"][0]["group"], json!(name), "{listed}");
        let (status, _) = operate(&urls[0], "rmk_stranger", "groups/list", &json!({})).await?;
        assert_eq!(status, 401);
        let metrics = format!("{}/metrics", urls[0].replace(":8080", ":9090"));
        let metrics = request("GET", &metrics, &[], b"").await?.body;
        let read = r#"ramen_gateway_unusable_files{file="operators"} 0"#;
        ensure!(metrics.contains(read), "{metrics}");

        let second = git.push(&greeting("two"))?;
        let deploy = json!({ "group": name, "ref": second });
        let (status, refused) = operate(&urls[0], "rmk_ana", "groups/deploy", &deploy).await?;
        assert_ne!(status, 200, "who may look may not change: {refused}");
        let (status, asked) = operate(&urls[1], "rmk_bo", "groups/deploy", &deploy).await?;
        assert_eq!(status, 200, "{asked}");
        group.serves(&second).await?;
        // With the rights that the chart gives, the change has its Event.
        let events = namespace.api::<Event>();
        let events = events.list(&ListParams::default()).await?;
        let told = serde_json::to_string(&events.items)?;
        assert!(told.contains("asked to deploy"), "{told}");
        Ok(())
    })
    .await;
}
