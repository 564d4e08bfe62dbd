//! Much at once: hooks, groups.

use std::{fs, time::Duration};

use futures::{StreamExt as _, stream};
use ramen_e2e::{GitHost, Group, Request, request};
use ramen_source::testing::SmartHttpOptions;
use serde_json::json;

use super::rig::{self, now, says};

const TOKEN: &str = "a-secret-of-the-receiver";

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_thousand_hooks_in_a_second_are_few_looks_and_the_last_push_is_live() {
    rig::on_paper(async |rig| {
        fs::write(rig.operator.hooks_dir().join("all.gitlab"), TOKEN)?;
        let git = ramen_source::testing::Repo::init(&rig.dir.path().join("hooked.git"))?;
        let options = SmartHttpOptions {
            listen: Some(([10, 0, 0, 1], 0).into()),
            ..SmartHttpOptions::default()
        };
        let server = ramen_source::testing::SmartHttp::start(rig.dir.path(), options)?;
        let push = |text: &str| {
            let files = says(text);
            let files: Vec<_> = files
                .iter()
                .map(|(p, t)| (p.as_str(), t.as_str()))
                .collect();
            git.push(&files)
        };
        let first = push("one")?;
        let url = server.url("hooked.git");
        let group = Group::apply(&rig.namespace, "soup", Group::spec(&url, 1)).await?;
        group.serves(&first).await?;

        let looks = || {
            let seen = server.seen();
            seen.iter().filter(|seen| seen.method == "GET").count()
        };
        let before = looks();
        let requests = rig.proxy.count();
        let last = push("two")?;
        let body =
            json!({ "ref": "refs/heads/main", "project": { "git_http_url": url } }).to_string();
        let to = format!("{}/all", rig.operator.hooks_url());
        let headers = [
            ("x-gitlab-token", TOKEN),
            ("x-gitlab-event", "Push Hook"),
            ("content-type", "application/json"),
        ];
        let began = tokio::time::Instant::now();
        let answers: Vec<u16> = stream::iter(0..1000)
            .map(|_| async {
                let answer = request("POST", &to, &headers, body.as_bytes()).await;
                answer.map_or(0, |answer| answer.status)
            })
            .buffer_unordered(100)
            .collect()
            .await;
        let count = |status: u16| answers.iter().filter(|one| **one == status).count();
        assert!(count(202) >= 1, "none was taken: {:?}", answers.first());
        assert_eq!(count(202) + count(429), 1000, "{answers:?}");
        group.serves(&last).await?;
        // The hooks of each second are one look, and a lease is renewed meanwhile.
        let took = usize::try_from(began.elapsed().as_secs())?;
        let looked = looks() - before;
        assert!(
            looked <= 20 + took,
            "{looked} looks at the refs for one push"
        );
        // No hook is a request to the API server.
        let asked = rig.proxy.count() - requests;
        assert!(
            asked < 150 + 10 * took,
            "{asked} requests to the API server"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn three_hundred_groups_at_start_all_become_ready_and_then_nothing_is_written() {
    rig::on_paper(async |rig| {
        // Not there while they are made: it finds all of them at once.
        rig.operator.stop().await?;
        let git = GitHost::http()?;
        let commit = git.push(&says("one"))?;
        let names: Vec<String> = (0..300).map(|n| format!("soup-{n:03}")).collect();
        let spec = Group::spec(&git.url(), 1);
        let groups: Vec<_> = stream::iter(&names)
            .map(|name| Group::apply(&rig.namespace, name, spec.clone()))
            .buffer_unordered(16)
            .collect()
            .await;
        rig.operator.up().await?;
        for group in groups {
            let group = group?;
            // The limit is one for a single group; these are all under way together.
            for last in [false, false, false, false, true] {
                match group.serves(&commit).await {
                    Ok(_) => break,
                    Err(error) if last => return Err(error),
                    Err(_) => {}
                }
            }
        }
        at_rest(rig).await?;
        let written = rig.operator.metric("ramen_operator_writes_total").await?;
        assert!(
            written.is_some_and(|written| written > 3000.0),
            "{written:?}"
        );
        let before = writes(rig);
        let group = Group::apply(&rig.namespace, &names[0], spec).await?;
        group.look(&now()).await?;
        group
            .until(|group| {
                let status = group.status.as_ref();
                status.is_some_and(|status| status.last_requested_at.is_some())
            })
            .await?;
        let written = writes(rig) - before;
        assert!(written <= 6, "{written} writes for one look at one group");
        Ok(())
    })
    .await;
}

/// Waits until nothing is written for two seconds: what was made lastly may still be told.
async fn at_rest(rig: &rig::Rig) -> anyhow::Result<()> {
    let end = tokio::time::Instant::now() + Duration::from_mins(1);
    let (mut last, mut since) = (writes(rig), tokio::time::Instant::now());
    while since.elapsed() < Duration::from_secs(2) {
        anyhow::ensure!(tokio::time::Instant::now() < end, "it goes on writing");
        rig.namespace.client.apiserver_version().await?;
        let now = writes(rig);
        if now != last {
            (last, since) = (now, tokio::time::Instant::now());
        }
    }
    Ok(())
}

/// Events are sent beside the run that they tell of, whenever that is.
fn writes(rig: &rig::Rig) -> usize {
    let beside = |request: &Request| request.is_of("leases") || request.is_of("events");
    let seen = rig.proxy.seen();
    seen.iter()
        .filter(|request| request.writes() && !beside(request))
        .count()
}
