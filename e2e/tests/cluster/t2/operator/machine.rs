//! Random legal edits, hundreds of them: whatever the way, the children are those of the final spec.

mod edits;

use std::env;

use anyhow::Context as _;
use kube::api::DeleteParams;
use ramen_crds::McpGroup;
use ramen_e2e::{GitHost, Group, gone};
use serde_json::Value;

use super::{
    rig::{self, Rig, now},
    snapshot::{Snapshot, children, delete, difference},
};
use edits::{Edits, Step};

/// Steps in all, and between two comparisons.
const STEPS: usize = 300;
const EACH: usize = 15;

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn whatever_was_edited_before_the_children_are_those_of_the_final_spec() {
    let seed = match env::var("RAMEN_E2E_SEED") {
        Ok(seed) => seed.parse().expect("RAMEN_E2E_SEED is a number"),
        // The same way every time; other ways are walked by naming another seed.
        Err(_) => 4,
    };
    // Told first: a failure is repeated with it.
    eprintln!("RAMEN_E2E_SEED={seed}");
    let broken = edits::Broken::default();
    let paper = broken.paper();
    rig::with_paper(paper, async |rig| {
        let mut machine = Machine::new(rig, seed, broken).await?;
        for round in 0..STEPS / EACH {
            for _ in 0..EACH {
                machine
                    .step(rig)
                    .await
                    .with_context(|| machine.told(seed))?;
            }
            machine
                .compare(rig, round)
                .await
                .with_context(|| machine.told(seed))?;
        }
        Ok(())
    })
    .await;
}

struct Machine {
    edits: Edits,
    /// Besides the one of the rig.
    other: GitHost,
    broken: edits::Broken,
    group: Group,
    spec: Value,
    done: Vec<String>,
}

impl Machine {
    async fn new(rig: &Rig, seed: u64, broken: edits::Broken) -> anyhow::Result<Self> {
        edits::secrets(rig).await?;
        let other = GitHost::http()?;
        let hosts = [&rig.git, &other];
        edits::branches(hosts)?;
        let edits = Edits::new(seed, hosts);
        let spec = Group::spec(&rig.git.url(), 1);
        let group = Group::apply(&rig.namespace, "zzmachine", spec.clone()).await?;
        Ok(Self {
            edits,
            other,
            broken,
            group,
            spec,
            done: Vec::new(),
        })
    }

    fn told(&self, seed: u64) -> String {
        format!("RAMEN_E2E_SEED={seed}, after {:#?}", self.done)
    }

    async fn step(&mut self, rig: &mut Rig) -> anyhow::Result<()> {
        let step = self.edits.next(&mut self.spec);
        self.done.push(format!("{step:?}"));
        let hosts = [&rig.git, &self.other];
        match step {
            Step::Spec(field) => {
                edits::pin(hosts, &mut self.spec)?;
                self.apply(rig)
                    .await
                    .with_context(|| format!("an edit of {field}"))?;
            }
            Step::Push(branch, text) => {
                edits::push(hosts, branch, &text)?;
                self.group.look(&now()).await?;
            }
            Step::Break(branch, text) => {
                let tree = edits::push(hosts, branch, &text)?;
                self.broken.add(tree);
                self.group.look(&now()).await?;
            }
            Step::Secret(name, value) => edits::secret(rig, name, &value).await?,
            Step::Unsecret(name) => edits::unsecret(rig, name).await?,
            Step::Delete(n) => {
                let all = children(&self.group).await?;
                if let Some(name) = all.keys().nth(n % all.len().max(1)) {
                    let name = name.replace("GROUP", &self.group.name);
                    delete(&rig.namespace, &name).await?;
                }
            }
            Step::Kill => {
                rig.operator.kill().await?;
                rig.operator.up().await?;
            }
            Step::Recreate => {
                let groups = rig.namespace.api::<McpGroup>();
                groups
                    .delete(&self.group.name, &DeleteParams::default())
                    .await?;
                rig.namespace
                    .until::<McpGroup>(&self.group.name, gone)
                    .await?;
                self.apply(rig).await?;
            }
            Step::Settle => {
                // Sometimes the operator gets to the end of it.
                let generation = self.group.get().await?.metadata.generation;
                self.group
                    .until(|group| {
                        let status = group.status.as_ref();
                        status.is_some_and(|status| status.observed_generation == generation)
                    })
                    .await?;
            }
        }
        Ok(())
    }

    async fn apply(&self, rig: &Rig) -> anyhow::Result<()> {
        Group::apply(&rig.namespace, &self.group.name, self.spec.clone())
            .await
            .map(drop)
    }

    /// What can serve at all is pushed, then both must have the same children.
    async fn compare(&mut self, rig: &Rig, round: usize) -> anyhow::Result<()> {
        let hosts = [&rig.git, &self.other];
        edits::possible(&mut self.spec);
        edits::secrets(rig).await?;
        edits::all_good(hosts, round)?;
        edits::pin(hosts, &mut self.spec)?;
        self.apply(rig).await?;
        let commit = edits::wanted(hosts, &self.spec)?;
        let fresh = format!("zzfresh{round:02}");
        let fresh = Group::apply(&rig.namespace, &fresh, self.spec.clone()).await?;
        for group in [&self.group, &fresh] {
            group.look(&now()).await?;
            group.serves(&commit).await?;
        }
        let found = settled(&self.group, &fresh).await?;
        anyhow::ensure!(found.is_empty(), "after round {round}:\n{found}");
        let groups = rig.namespace.api::<McpGroup>();
        groups.delete(&fresh.name, &DeleteParams::default()).await?;
        self.done.push(format!("compared {round}"));
        Ok(())
    }
}

/// What differs. Looked at again a few times: what is removed may still be on its way out.
async fn settled(one: &Group, two: &Group) -> anyhow::Result<String> {
    let end = tokio::time::Instant::now() + std::time::Duration::from_mins(1);
    loop {
        let (left, right): (Snapshot, Snapshot) = (children(one).await?, children(two).await?);
        let found = difference(&left, &right);
        if found.is_empty() || tokio::time::Instant::now() > end {
            return Ok(found);
        }
        // Awaited by asking the API server, which takes its time.
        tokio::task::yield_now().await;
    }
}
