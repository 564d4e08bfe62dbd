//! A group with one tool that says which push it is of, and its repository.

use std::time::SystemTime;

use anyhow::{Context as _, bail};
use futures::future::try_join_all;
use ramen_e2e::{Caller, GitHost, Group, tool};
use serde_json::{Value, json};

use super::{LIMIT, Stage};
use crate::clock::beat;

/// Between two calls that look for a new answer.
const LOOK: std::time::Duration = std::time::Duration::from_millis(10);
pub(crate) const TOOL: &str = "version";

/// A group that is pushed to.
pub(crate) struct Subject {
    pub(crate) host: GitHost,
    pub(crate) group: Group,
    pub(crate) callers: Vec<(String, Caller)>,
    pushes: u32,
}

impl Subject {
    /// One that serves its first push. `edit` may add to the spec.
    pub(crate) async fn start(
        stage: &Stage,
        name: &str,
        replicas: u32,
        edit: impl FnOnce(&mut Value),
    ) -> anyhow::Result<Self> {
        let host = GitHost::http()?;
        let commit = host.push(&tool(TOOL, &json!({}), &source(0)))?;
        let mut spec = Group::spec(&host.url(), replicas);
        // The polls that are not measured stay out of the way.
        spec["source"]["interval"] = json!("1h");
        edit(&mut spec);
        let group = Group::apply(&stage.namespace, name, spec).await?;
        group.serves(&commit).await?;
        let callers = group.callers().await?;
        Ok(Self {
            host,
            group,
            callers,
            pushes: 0,
        })
    }

    /// The files of the next push, and what the tool will say.
    pub(crate) fn next(&mut self) -> ([(String, String); 2], String) {
        self.pushes += 1;
        let files = tool(TOOL, &json!({}), &source(self.pushes));
        (files, format!("v{}", self.pushes))
    }

    /// Waits until every pod has given the answer; gives when each did first.
    pub(crate) async fn answered(&self, wanted: &str) -> anyhow::Result<Vec<SystemTime>> {
        let pods = self.callers.iter().map(|(pod, caller)| async move {
            let mut beat = beat(LOOK);
            let end = tokio::time::Instant::now() + LIMIT;
            loop {
                let answer = caller.tool(TOOL, json!({})).await;
                let now = SystemTime::now();
                if answer.as_deref() == Ok(wanted) {
                    return anyhow::Ok(now);
                }
                if tokio::time::Instant::now() > end {
                    bail!("pod {pod} answers {answer:?} and not {wanted} after {LIMIT:?}");
                }
                beat.tick().await;
            }
        });
        let mut moments = try_join_all(pods).await?;
        moments.sort();
        Ok(moments)
    }

    /// Waits until nothing of the last push is under way any more.
    pub(crate) async fn at_rest(&self, commit: &str) -> anyhow::Result<()> {
        self.group.serves(commit).await.map(drop)
    }
}

/// The last of some moments.
pub(crate) fn last(moments: &[SystemTime]) -> anyhow::Result<SystemTime> {
    moments.last().copied().context("a group without pods")
}

fn source(push: u32) -> String {
    format!("def {TOOL}():\n    return 'v{push}'\n")
}
