//! A git host that hangs, floods, moves its refs, or turns out to be another.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use k8s_openapi::api::batch::v1::Job;
use kube::api::ListParams;
use ramen_e2e::{
    GitHost, Group, comes_true,
    player::{Outcome, Paper, report},
    serving,
};
use ramen_source::testing::{Fault, Repo, SmartHttp, SmartHttpOptions, Sshd};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::rig::{self, Rig, condition, is, now, says, secret, words};

/// A git host at one address that a test makes behave badly.
struct Host {
    folder: TempDir,
    repo: Repo,
    address: SocketAddr,
    server: Option<SmartHttp>,
}

impl Host {
    fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let repo = Repo::init(&folder.path().join("group.git"))?;
        let mut host = Self {
            folder,
            repo,
            address: SocketAddr::from(([10, 0, 0, 1], ramen_e2e::port()?)),
            server: None,
        };
        host.becomes(Fault::None)?;
        Ok(host)
    }

    fn becomes(&mut self, fault: Fault) -> anyhow::Result<()> {
        // The address is free only then.
        self.server = None;
        let options = SmartHttpOptions {
            fault,
            listen: Some(self.address),
            ..SmartHttpOptions::default()
        };
        self.server = Some(SmartHttp::start(self.folder.path(), options)?);
        Ok(())
    }

    fn url(&self) -> anyhow::Result<String> {
        let server = self.server.as_ref().context("the host is down")?;
        Ok(server.url("group.git"))
    }

    fn push(&self, text: &str) -> anyhow::Result<String> {
        let files = says(text).map(|(path, text)| (path, text));
        let files: Vec<_> = files
            .iter()
            .map(|(p, t)| (p.as_str(), t.as_str()))
            .collect();
        Ok(self.repo.push(&files)?)
    }
}

/// What is live goes on serving and being ready, whatever the source does.
fn goes_on(group: &ramen_crds::McpGroup, commit: &str) -> bool {
    serving(group).ends_with(commit)
        && condition(group, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Peak memory of the operator, in MiB.
fn peak(rig: &Rig) -> anyhow::Result<u64> {
    let pid = rig.operator.pid().context("the operator has ended")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    Ok(kib.context("no VmHWM")? / 1024)
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_host_that_misbehaves_is_given_up_on_and_stops_nobody_else() {
    rig::on_paper(async |rig| {
        let (other, _) = rig.live("other").await?;
        let mut host = Host::new()?;
        let mut served = host.push("one")?;
        let mut spec = Group::spec(&host.url()?, 1);
        spec["source"]["timeout"] = json!("5s");
        let group = Group::apply(&rig.namespace, "bad", spec).await?;
        rig.serves(&group, &served).await?;
        for (fault, reason) in [
            (Fault::Hang, "FetchTimeout"),
            (Fault::Drip(Duration::from_millis(50)), "FetchTimeout"),
            // Whichever bound comes first: bytes or time.
            (Fault::EndlessRefs, "Fetch"),
            (Fault::Status(503), "SourceUnreachable"),
            (Fault::Page, "SourceUnreachable"),
        ] {
            let told = format!("{fault:?}");
            host.becomes(fault)?;
            let wanted = host.push(&told)?;
            group.look(&now()).await?;
            let after = group
                .until(|group| {
                    condition(group, "SourceFetched").is_some_and(|fetched| {
                        fetched.status == "False" && fetched.reason.starts_with(reason)
                    })
                })
                .await
                .context(told.clone())?;
            assert!(goes_on(&after, &served), "{told}: {after:?}");
            // Meanwhile others are served as ever.
            let commit = rig.push(&told)?;
            other.look(&now()).await?;
            rig.serves(&other, &commit).await?;

            host.becomes(Fault::None)?;
            group.look(&now()).await?;
            rig.serves(&group, &wanted).await.context(told)?;
            served = wanted;
        }
        // These answer what the refs are, and fail at the pack.
        for fault in [Fault::EndlessPack, Fault::BreakOff] {
            let told = format!("{fault:?}");
            host.becomes(fault)?;
            let wanted = host.push(&told)?;
            group.look(&now()).await?;
            let after = group
                .until(|group| {
                    condition(group, "Deployed").is_some_and(|deployed| {
                        // A bound of time or bytes, or what git itself has against it.
                        let reason = deployed.reason.as_str();
                        deployed.status != "True"
                            && (reason.starts_with("Fetch") || reason == "SourceUnreachable")
                    })
                })
                .await
                .context(told.clone())?;
            assert!(serving(&after).ends_with(&served), "{told}: {after:?}");
            host.becomes(Fault::None)?;
            group.look(&now()).await?;
            rig.serves(&group, &wanted).await.context(told)?;
            served = wanted;
        }
        // Neither endless list nor endless pack was kept in memory.
        let peak = peak(rig)?;
        assert!(peak < 400, "the operator took {peak} MiB");
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn git01_a_branch_that_goes_away_comes_back_and_is_forced_back_is_followed() {
    rig::on_paper(async |rig| {
        let (group, first) = rig.live("soup").await?;
        let second = rig.push("two")?;
        group.look(&now()).await?;
        rig.serves(&group, &second).await?;

        rig.git.repo.delete_branch("main")?;
        group.look(&now()).await?;
        let lost = group
            .until(|group| is(group, "SourceFetched", "False", "RefNotFound"))
            .await?;
        assert!(goes_on(&lost, &second), "{lost:?}");
        assert!(words(&lost, "SourceFetched").contains("main"), "{lost:?}");

        // Forced back: the older commit is what is wanted, and its layers are still there.
        let raw = rig.git.repo.raw();
        let id = raw.revparse_single(&first)?.id();
        raw.reference("refs/heads/main", id, true, "forced back")?;
        group.look(&now()).await?;
        rig.serves(&group, &first).await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn git02_without_a_ref_the_default_branch_is_followed_also_when_it_gets_another_name() {
    rig::on_paper(async |rig| {
        let first = rig.push("one")?;
        let mut spec = Group::spec(&rig.git.url(), 1);
        spec["source"]
            .as_object_mut()
            .context("a source")?
            .remove("ref");
        let group = Group::apply(&rig.namespace, "soup", spec).await?;
        rig.serves(&group, &first).await?;

        let files = says("two");
        let entries: Vec<_> = files
            .iter()
            .map(|(path, text)| {
                (
                    format!("mcp/{path}"),
                    ramen_source::testing::Entry::text(text),
                )
            })
            .collect();
        let second = rig.git.repo.commit("trunk", &entries)?;
        rig.git.repo.set_head("trunk")?;
        rig.git.repo.delete_branch("main")?;
        group.look(&now()).await?;
        let served = rig.serves(&group, &second).await?;
        assert!(serving(&served).contains("trunk"), "{}", serving(&served));
        Ok(())
    })
    .await;
}

/// The names of all deploy jobs that were made.
fn made(rig: &Rig) -> BTreeSet<String> {
    let seen = rig.proxy.seen().into_iter();
    let jobs = seen.filter(|request| request.method == "PATCH" && request.is_of("jobs"));
    jobs.map(|request| request.path).collect()
}

/// How many deploy jobs have not ended.
async fn active(rig: &Rig) -> anyhow::Result<usize> {
    let jobs = rig.namespace.api::<Job>();
    let jobs = jobs.list(&ListParams::default()).await?;
    let runs = |job: &&Job| {
        let conditions = job.status.iter().flat_map(|status| &status.conditions);
        let ended = conditions.flatten().any(|condition| {
            matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
        });
        !ended && job.metadata.deletion_timestamp.is_none()
    };
    Ok(jobs.iter().filter(runs).count())
}

/// Waits until the newest push is known, and one deploy job alone is under way.
async fn one_goes_on(rig: &Rig, group: &Group, newest: &str) -> anyhow::Result<()> {
    group
        .until(|group| {
            let status = group.status.as_ref();
            let revision = status.and_then(|status| status.revision.as_ref());
            let observed = revision.and_then(|revision| revision.observed.as_deref());
            observed.is_some_and(|observed| observed.ends_with(newest))
        })
        .await?;
    comes_true("one deploy job goes on", async || {
        Ok(active(rig).await? == 1)
    })
    .await
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn git12_pushes_during_a_deploy_end_at_the_newest_with_few_jobs() {
    // Deploys wait until the test lets them go on.
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let paper = Paper::new(move |deploy| {
        let done = Outcome::Report(report(deploy, &["say"]));
        Outcome::After(Arc::clone(&held), Box::new(done))
    });
    rig::with_paper(paper, async |rig| {
        let first = rig.push("one")?;
        let group = rig.group("soup").await?;
        group
            .until(|group| is(group, "Reconciling", "True", "Deploying"))
            .await?;
        // Two within the same second, while the first is being deployed.
        let second = rig.push("two")?;
        group.look(&now()).await?;
        let third = rig.push("three")?;
        group.look(&now()).await?;
        assert_ne!(first, second);
        one_goes_on(rig, &group, &third).await?;
        gate.add_permits(1000);
        rig.serves(&group, &third).await?;
        let few = made(rig);
        assert!(few.len() <= 3, "{few:?} for 3 pushes");

        // Fifty more, as fast as they go, while no deploy comes to its end.
        gate.forget_permits(1000);
        let mut last = third;
        for n in 0..50 {
            last = rig.push(&format!("push {n}"))?;
            group.look(&now()).await?;
        }
        one_goes_on(rig, &group, &last).await?;
        // A few are given up for something newer, then one is seen through.
        let more = made(rig);
        assert!(more.len() <= few.len() + 4, "{more:?} after {few:?}");
        gate.add_permits(1000);
        rig.serves(&group, &last).await?;
        let all = made(rig);
        assert!(all.len() <= more.len() + 1, "{all:?} after {more:?}");
        comes_true(
            "no deploy job goes on",
            async || Ok(active(rig).await? == 0),
        )
        .await
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn an_ssh_host_with_another_key_is_refused_until_the_key_is_known() {
    if let Some(why) = Sshd::missing() {
        ramen_skip::say(&why);
        return;
    }
    rig::on_paper(async |rig| {
        let git = GitHost::ssh()?;
        let first = git.push(&says("one"))?;
        let entries: Vec<_> = git
            .credentials()
            .iter()
            .map(|(key, value)| (*key, value.as_str()))
            .collect();
        let good = secret(&entries);
        rig.namespace
            .apply::<k8s_openapi::api::core::v1::Secret>("git", good.clone())
            .await?;
        let mut spec = Group::spec(&git.url(), 1);
        spec["source"]["secretRef"] = json!({ "name": "git" });
        let group = Group::apply(&rig.namespace, "soup", spec).await?;
        rig.serves(&group, &first).await?;

        // What is known is the key of another host: as if the host had changed its own.
        let mut other = good.clone();
        let known = good["stringData"]["known_hosts"]
            .as_str()
            .context("known_hosts")?;
        let host = known.split(' ').next().context("a host")?;
        other["stringData"]["known_hosts"] = json!(format!(
            "{host} ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL0xxjKsyRX5G/rFLBWFNpDYkjJ0JwLDWMdhHH0k9eDk\n"
        ));
        rig.namespace
            .apply::<k8s_openapi::api::core::v1::Secret>("git", other)
            .await?;
        let second = git.push(&says("two"))?;
        group.look(&now()).await?;
        let refused = group
            .until(|group| is(group, "SourceFetched", "False", "HostKeyMismatch"))
            .await?;
        assert!(goes_on(&refused, &first), "{refused:?}");
        let words = words(&refused, "SourceFetched");
        assert!(words.contains("SHA256:"), "no fingerprint: {words}");

        rig.namespace
            .apply::<k8s_openapi::api::core::v1::Secret>("git", good)
            .await?;
        rig.serves(&group, &second).await?;
        Ok(())
    })
    .await;
}
