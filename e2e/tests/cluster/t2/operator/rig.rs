//! What every drill starts from.

use std::{fmt::Write as _, panic::AssertUnwindSafe, pin::pin, time::Duration};

use futures::FutureExt as _;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, ResourceExt as _, api::PostParams};
use ramen_crds::McpGroup;
use ramen_e2e::{
    Account, GitHost, Group, Namespace, Operator, Proxy, Tier, comes_true, crd,
    player::{Containers, Paper, Player, Programs, Workers},
    serving, with_temp_ns,
};
use ramen_group::DesiredState;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Lines of the operator's log that a failed drill shows.
const LINES: usize = 80;

/// A namespace with an operator of its own, a proxy before the API server, a git host, and somebody who plays pods.
pub(crate) struct Rig {
    pub(crate) namespace: Namespace,
    pub(crate) account: Account,
    pub(crate) proxy: Proxy,
    pub(crate) operator: Operator,
    pub(crate) git: GitHost,
    pub(crate) player: Player,
    /// The worker pods, where they are on paper and somebody can reach them.
    pub(crate) workers: Option<Workers>,
    pub(crate) dir: TempDir,
}

/// A drill in which pods run on paper only, and every deploy finds the one tool `say`.
pub(crate) async fn on_paper<T>(drill: T)
where
    T: AsyncFnOnce(&mut Rig) -> anyhow::Result<()>,
{
    with_paper(Paper::of(&["say"]), drill).await;
}

/// A drill in which the test says what deploys do.
pub(crate) async fn with_paper<T>(paper: Paper, drill: T)
where
    T: AsyncFnOnce(&mut Rig) -> anyhow::Result<()>,
{
    // Outside of the cluster's namespaces pods have no addresses here.
    let inside = std::env::var_os("RAMEN_CLUSTER").is_some();
    let workers = inside.then(Workers::default);
    let paper = match &workers {
        Some(workers) => paper.answered_by(workers.clone()),
        None => paper,
    };
    run(|| Ok(Containers::Paper(paper)), workers, drill).await;
}

/// A drill in which deploy jobs and workers are the real programs.
pub(crate) async fn for_real<T>(drill: T)
where
    T: AsyncFnOnce(&mut Rig) -> anyhow::Result<()>,
{
    run(|| Ok(Containers::Real(Programs::built()?)), None, drill).await;
}

async fn run<T>(
    containers: impl FnOnce() -> anyhow::Result<Containers>,
    workers: Option<Workers>,
    drill: T,
) where
    T: AsyncFnOnce(&mut Rig) -> anyhow::Result<()>,
{
    with_temp_ns(Tier::T2, async |namespace| {
        let mut rig = Rig::new(namespace, containers()?, workers).await?;
        let outcome = AssertUnwindSafe(drill(&mut rig)).catch_unwind().await;
        if !matches!(outcome, Ok(Ok(()))) {
            eprintln!("{}", rig.story().await);
        }
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
    .await;
}

impl Rig {
    async fn new(
        namespace: Namespace,
        containers: Containers,
        workers: Option<Workers>,
    ) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        crd(&namespace.client).await?;
        let account = namespace.operator_account().await?;
        let proxy = Proxy::start().await?;
        let mut operator = Operator::new(&account, &proxy.url(), &dir.path().join("operator"))?;
        let git = GitHost::http()?;
        let pods = dir.path().join("pods");
        let player = Player::start(&namespace.client, Some(&namespace.name), containers, pods)?;
        operator.up().await?;
        Ok(Self {
            namespace,
            account,
            proxy,
            operator,
            git,
            player,
            workers,
            dir,
        })
    }

    /// Commits a group of the one tool `say`, which answers with this text.
    pub(crate) fn push(&self, text: &str) -> anyhow::Result<String> {
        self.git.push(&says(text))
    }

    /// A group of the git host with one pod.
    pub(crate) async fn group(&self, name: &str) -> anyhow::Result<Group> {
        Group::apply(&self.namespace, name, Group::spec(&self.git.url(), 1)).await
    }

    /// A group that serves its first revision.
    pub(crate) async fn live(&self, name: &str) -> anyhow::Result<(Group, String)> {
        let commit = self.push("one")?;
        let group = self.group(name).await?;
        self.serves(&group, &commit).await?;
        Ok((group, commit))
    }

    /// Waits until the group serves this commit. Then its pods hold what it says: the operator has told them, or they
    /// have read it when they started.
    pub(crate) async fn serves(&self, group: &Group, commit: &str) -> anyhow::Result<McpGroup> {
        let live = Box::pin(group.serves(commit)).await?;
        Box::pin(self.is_held(group, serving(&live))).await?;
        Ok(live)
    }

    async fn is_held(&self, group: &Group, revision: &str) -> anyhow::Result<()> {
        let held = comes_true("the pods hold what the status says", async || {
            Ok(self.strays(group, revision).await?.is_empty())
        });
        match held.await {
            Ok(()) => Ok(()),
            Err(error) => Err(error.context(self.strays(group, revision).await?.join("\n"))),
        }
    }

    /// What does not hold this revision, in words.
    async fn strays(&self, group: &Group, revision: &str) -> anyhow::Result<Vec<String>> {
        let Some(workers) = &self.workers else {
            return Ok(Vec::new());
        };
        let map = format!("{}-desired", group.name);
        let map = group.namespace.api::<core::ConfigMap>().get(&map).await?;
        let file = map.data.unwrap_or_default().remove("desired.json");
        let named: DesiredState = serde_json::from_str(&file.unwrap_or_default())?;
        let mut strays = Vec::new();
        if named.revision != revision {
            strays.push(format!("the file names {}", named.revision));
        }
        for pod in group.pods().await? {
            let pod = pod.name_any();
            let told = workers.told(&group.namespace.name, &pod);
            // A commit of the same code reaches pods by the file alone, and changes nothing that they load.
            if !told.last().is_some_and(|last| last.loads_like(&named)) {
                let told: Vec<_> = told.iter().map(|one| one.revision.as_str()).collect();
                strays.push(format!("{pod} was told {told:?}, not {}", named.revision));
            }
        }
        Ok(strays)
    }

    /// Another namespace, which the operator looks after from now on, with rights of the whole cluster.
    pub(crate) async fn doomed_namespace(&mut self) -> anyhow::Result<Namespace> {
        let name = format!("{}-doomed", self.namespace.name);
        let all = Api::<core::Namespace>::all(self.namespace.client.clone());
        let form = json!({ "metadata": { "name": name, "labels": { "ramen.dev/e2e": "true" } } });
        all.create(&PostParams::default(), &serde_json::from_value(form)?)
            .await?;
        self.account = Account::new(&self.namespace, true).await?;
        self.operator.stop().await?;
        self.operator.set("RAMEN_OPERATOR_NAMESPACES", &name);
        self.operator.up().await?;
        Ok(Namespace {
            client: self.namespace.client.clone(),
            name,
        })
    }

    /// Waits for something, and meanwhile starts the operator whenever it has ended, as a kubelet would: it ends itself
    /// when it could not renew its lease in time, and that may be a while after the API server is back.
    pub(crate) async fn revived<T>(
        &mut self,
        waiting: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let mut waiting = pin!(waiting);
        let mut looks = tokio::time::interval(Duration::from_millis(250));
        loop {
            tokio::select! {
                done = &mut waiting => return done,
                _ = looks.tick() => if !self.operator.runs()? {
                    self.operator.start()?;
                },
            }
        }
    }

    async fn story(&self) -> String {
        let log = self.operator.log();
        let lines: Vec<&str> = log.lines().collect();
        let mut story = format!(
            "---- the operator's log ----\n{}\n",
            lines[lines.len().saturating_sub(LINES)..].join("\n")
        );
        if let Ok(groups) = self
            .namespace
            .api::<McpGroup>()
            .list(&kube::api::ListParams::default())
            .await
        {
            for group in groups {
                let status = serde_json::to_string(&group.status).unwrap_or_default();
                let _ = writeln!(story, "group {:?}: {status}", group.metadata.name);
            }
        }
        story
    }
}

/// The files of a group of the one tool `say`, which answers with this text.
pub(crate) fn says(text: &str) -> [(String, String); 2] {
    let source = format!("def say():\n    return {}\n", json!(text));
    ramen_e2e::tool("say", &json!({}), &source)
}

/// The condition of that type, if the group has it.
pub(crate) fn condition<'a>(group: &'a McpGroup, kind: &str) -> Option<&'a Condition> {
    let status = group.status.as_ref()?;
    let mut all = status.conditions.iter();
    all.find(|condition| condition.type_ == kind)
}

/// The condition has this status and this reason.
pub(crate) fn is(group: &McpGroup, kind: &str, status: &str, reason: &str) -> bool {
    condition(group, kind).is_some_and(|found| found.status == status && found.reason == reason)
}

/// The words of a condition; empty when there is none.
pub(crate) fn words<'a>(group: &'a McpGroup, kind: &str) -> &'a str {
    condition(group, kind).map_or("", |condition| condition.message.as_str())
}

/// A value that was not used before, for `ramen.dev/requested-at`.
pub(crate) fn now() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("look-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A Secret with these entries, as a person writes it.
pub(crate) fn secret(entries: &[(&str, &str)]) -> Value {
    let entries: serde_json::Map<String, Value> = entries
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect();
    json!({ "stringData": entries })
}
