//! Many groups, in ten namespaces with a repository each.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1 as core;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use ramen_crds::McpGroup;
use ramen_e2e::player::{Deploy, Outcome, Paper, Workers, report};
use ramen_e2e::{GitHost, Group, Namespace, Operator, tool};
use serde_json::{Value, json};

use crate::clock::beat;

const TEAMS: usize = 10;
/// Requests at once while groups are made.
const AT_ONCE: usize = 16;
/// For all of them to come to rest.
const LIMIT: Duration = Duration::from_mins(10);
const INTERVAL: &str = "1m";
/// The tools of every group that serves.
const TOOLS: [&str; 10] = [
    "add", "ask", "book", "cancel", "find", "list", "move", "price", "report", "send",
];
/// Groups whose deploy fails are named so.
const FAILS: &str = "fails";

/// What a group is to come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Serves,
    /// Waits for a Secret.
    Keyless,
    /// Its only revision does not deploy.
    Broken,
    /// Its repository does not exist.
    Sourceless,
}

/// One in ten waits, each for one of three reasons.
fn fate(group: usize) -> Fate {
    match (group % 10, group / 10 % 3) {
        (0..=8, _) => Fate::Serves,
        (_, 0) => Fate::Keyless,
        (_, 1) => Fate::Broken,
        _ => Fate::Sourceless,
    }
}

struct Team {
    namespace: Namespace,
    host: GitHost,
}

/// The groups that there are.
pub(crate) struct Crowd {
    teams: Vec<Team>,
    count: usize,
}

/// What deploy jobs and worker pods of these groups do.
pub(crate) fn paper() -> Paper {
    let plays = |deploy: &Deploy| {
        let mut said = report(deploy, &TOOLS);
        if deploy.group.starts_with(FAILS) {
            spoil(deploy, &mut said);
        }
        Outcome::Report(said)
    };
    Paper::new(plays).answered_by(Workers::default())
}

/// Nothing of it can be imported.
fn spoil(deploy: &Deploy, said: &mut Value) {
    said["outcome"] = json!("failed");
    said["packages"] = json!([]);
    said["errors"] = TOOLS
        .iter()
        .map(|tool| {
            json!({
                "package": format!("tools/{tool}"), "reason": "ImportFailed",
                "message": format!("ModuleNotFoundError: No module named '{}'", deploy.group),
                "path": format!("mcp/tools/{tool}/{tool}.py"), "line": 1,
            })
        })
        .collect();
}

impl Crowd {
    /// Nobody yet.
    pub(crate) async fn new(client: &Client, prefix: &str) -> anyhow::Result<Self> {
        let mut teams = Vec::new();
        let sources =
            TOOLS.map(|name| tool(name, &json!({}), &format!("def {name}():\n    return 1\n")));
        for team in 0..TEAMS {
            let name = format!("{prefix}-{team}");
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
            });
            Api::<core::Namespace>::all(client.clone())
                .patch(
                    &name,
                    &PatchParams::apply("ramen-e2e"),
                    &Patch::Apply(namespace),
                )
                .await?;
            let host = GitHost::http()?;
            host.push(&sources.concat())?;
            let namespace = Namespace {
                client: client.clone(),
                name,
            };
            teams.push(Team { namespace, host });
        }
        Ok(Self { teams, count: 0 })
    }

    /// Makes groups until there are so many.
    pub(crate) async fn grow(&mut self, to: usize) -> anyhow::Result<()> {
        let made = stream::iter(self.count..to).map(|group| self.make(group));
        made.buffer_unordered(AT_ONCE)
            .try_collect::<Vec<()>>()
            .await?;
        self.count = to;
        Ok(())
    }

    async fn make(&self, group: usize) -> anyhow::Result<()> {
        let Team { namespace, host } = &self.teams[group / 10 % TEAMS];
        let mut spec = Group::spec(&host.url(), 1);
        spec["source"]["interval"] = json!(INTERVAL);
        let word = match fate(group) {
            Fate::Serves => "serves",
            Fate::Broken => FAILS,
            Fate::Keyless => {
                spec["keys"] = json!({ "secretRef": { "name": "not-there" } });
                "keyless"
            }
            Fate::Sourceless => {
                spec["source"]["url"] = json!(host.url().replace(".git", "-gone.git"));
                "sourceless"
            }
        };
        Group::apply(namespace, &format!("{word}-{group:04}"), spec).await?;
        Ok(())
    }

    fn with(&self, wanted: impl Fn(Fate) -> bool) -> usize {
        (0..self.count).filter(|group| wanted(fate(*group))).count()
    }

    /// All of them.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Those that serve.
    pub(crate) fn serving(&self) -> usize {
        self.with(|fate| fate == Fate::Serves)
    }

    /// Those whose source is looked at.
    pub(crate) fn looked_at(&self) -> usize {
        self.with(|fate| fate != Fate::Keyless)
    }

    /// Waits until every group is what it is to come to.
    pub(crate) async fn settle(&self, operator: &Operator) -> anyhow::Result<()> {
        let (serving, began) = (self.serving(), Instant::now());
        let mut beat = beat(Duration::from_millis(500));
        loop {
            beat.tick().await;
            let page = operator.page("/metrics").await?;
            let state = |name| gauge(&page, &format!("ramen_operator_groups{{state=\"{name}\"}}"));
            let (ready, stalled) = (state("ready"), state("stalled"));
            if ready == serving && ready + stalled == self.count {
                break;
            }
            if began.elapsed() > LIMIT {
                bail!(
                    "{ready} groups are ready and {stalled} stalled after {LIMIT:?}, of {}",
                    self.count
                );
            }
        }
        self.agrees().await
    }

    /// What the groups' own conditions say.
    async fn agrees(&self) -> anyhow::Result<()> {
        let ready = ramen_e2e::condition::<McpGroup>("Ready", "True");
        let mut found = 0;
        for team in &self.teams {
            let groups = team.namespace.api::<McpGroup>();
            let items = groups.list(&ListParams::default()).await?.items;
            found += items.iter().filter(|group| ready(Some(group))).count();
        }
        let serving = self.serving();
        ensure!(
            found == serving,
            "{found} groups say that they are ready, not {serving}"
        );
        Ok(())
    }

    /// Takes everything away.
    pub(crate) async fn end(self) -> anyhow::Result<()> {
        for team in &self.teams {
            let all = Api::<core::Namespace>::all(team.namespace.client.clone());
            all.delete(&team.namespace.name, &DeleteParams::background())
                .await?;
        }
        Ok(())
    }
}

/// A whole number of a page of metrics.
pub(crate) fn gauge(page: &str, name: &str) -> usize {
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|value| value.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_group_in_ten_waits_and_every_reason_occurs() {
        let fates: Vec<Fate> = (0..100).map(fate).collect();
        let count = |wanted| fates.iter().filter(|fate| **fate == wanted).count();
        assert_eq!(count(Fate::Serves), 90);
        assert_eq!(
            [Fate::Keyless, Fate::Broken, Fate::Sourceless].map(count),
            [4, 3, 3]
        );
    }

    #[test]
    fn metrics_are_read() {
        let page = "ramen_operator_groups{state=\"ready\"} 90\nramen_operator_groups{state=\"stalled\"} 10\n";
        assert_eq!(gauge(page, "ramen_operator_groups{state=\"ready\"}"), 90);
        assert_eq!(gauge(page, "ramen_operator_groups{state=\"error\"}"), 0);
    }
}
