//! Secrets that are not there, lack a key, or are wrong.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use k8s_openapi::api::core::v1::{Event, Secret};
use kube::api::{DeleteParams, ListParams};
use ramen_e2e::{
    GitHost, Group,
    player::{Outcome, Paper, report},
    serving,
};
use ramen_source::testing::{Login, SmartHttpOptions};
use serde_json::json;

use super::rig::{self, is, now, says, secret, words};

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn sec15_a_secret_that_is_missing_or_lacks_a_key_heals_the_group_when_it_comes() {
    rig::on_paper(async |rig| {
        let commit = rig.push("one")?;
        let mut spec = Group::spec(&rig.git.url(), 1);
        spec["secrets"] = json!([{ "name": "values" }]);
        spec["keys"] = json!({ "secretRef": { "name": "callers" } });
        let group = Group::apply(&rig.namespace, "soup", spec.clone()).await?;
        let stalled = group
            .until(|group| is(group, "Ready", "False", "SecretMissing"))
            .await?;
        let told = words(&stalled, "Ready");
        assert!(
            told.contains("callers") || told.contains("values"),
            "{told}"
        );
        let callers = secret(&[("alice", "rmk_1")]);
        rig.namespace.apply::<Secret>("callers", callers).await?;
        let values = secret(&[("TOKEN", "v1")]);
        rig.namespace.apply::<Secret>("values", values).await?;
        // Nobody touches the group.
        group.serves(&commit).await?;

        // Credentials that lack what they must have.
        let git = GitHost::with(SmartHttpOptions {
            login: Some(Login::Basic {
                user: "u".to_owned(),
                password: "p".to_owned(),
            }),
            ..SmartHttpOptions::default()
        })?;
        let second = git.push(&says("two"))?;
        let half = secret(&[("username", "u")]);
        rig.namespace.apply::<Secret>("git", half).await?;
        spec["source"]["url"] = json!(git.url());
        spec["source"]["secretRef"] = json!({ "name": "git" });
        Group::apply(&rig.namespace, "soup", spec).await?;
        let stalled = group
            .until(|group| words(group, "Ready").contains("password"))
            .await?;
        assert!(serving(&stalled).ends_with(&commit), "{stalled:?}");
        let whole = secret(&[("username", "u"), ("password", "p")]);
        rig.namespace.apply::<Secret>("git", whole).await?;
        group.serves(&second).await?;

        // One that goes away while its group serves: told, and what serves goes on.
        rig.namespace
            .api::<Secret>()
            .delete("values", &DeleteParams::default())
            .await?;
        let stalled = group
            .until(|group| is(group, "Stalled", "True", "SecretMissing"))
            .await?;
        assert!(serving(&stalled).ends_with(&second), "{stalled:?}");
        let values = secret(&[("TOKEN", "v2")]);
        rig.namespace.apply::<Secret>("values", values).await?;
        group.serves(&second).await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_deploy_that_failed_is_made_again_when_its_secret_is_another() {
    let right = Arc::new(AtomicBool::new(true));
    let judged = Arc::clone(&right);
    let paper = Paper::new(move |deploy| {
        let mut told = report(deploy, &["say"]);
        if !judged.load(Ordering::SeqCst) {
            told["packages"][0]["ok"] = json!(false);
            told["errors"] = json!([{
                "package": "tools/say", "reason": "GoldenFailed", "message": "401",
            }]);
            told["outcome"] = json!("failed");
        }
        Outcome::Report(told)
    });
    rig::with_paper(paper, async |rig| {
        let token = async |value: &str| {
            let values = secret(&[("TOKEN", value)]);
            rig.namespace.apply::<Secret>("values", values).await
        };
        token("v1").await?;
        let first = rig.push("one")?;
        let mut spec = Group::spec(&rig.git.url(), 1);
        spec["secrets"] = json!([{ "name": "values" }]);
        let group = Group::apply(&rig.namespace, "soup", spec).await?;
        group.serves(&first).await?;
        right.store(false, Ordering::SeqCst);
        let second = rig.push("two")?;
        group.look(&now()).await?;
        let failed = group
            .until(|group| is(group, "Ready", "True", "LastGoodServes"))
            .await?;
        assert!(serving(&failed).ends_with(&first), "{failed:?}");
        // Nobody touches the group.
        right.store(true, Ordering::SeqCst);
        token("v2").await?;
        group.serves(&second).await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn git07_git08_wrong_credentials_are_told_without_telling_them_and_heal_when_they_are_right()
{
    rig::on_paper(async |rig| {
        let (other, _) = rig.live("other").await?;
        let git = GitHost::with(SmartHttpOptions {
            login: Some(Login::Basic {
                user: "u".to_owned(),
                password: "right-password".to_owned(),
            }),
            ..SmartHttpOptions::default()
        })?;
        let commit = git.push(&says("one"))?;
        let wrong = secret(&[("username", "u"), ("password", "wr0ng-passw0rd")]);
        rig.namespace.apply::<Secret>("git", wrong).await?;
        let mut spec = Group::spec(&git.url(), 1);
        spec["source"]["secretRef"] = json!({ "name": "git" });
        let group = Group::apply(&rig.namespace, "soup", spec).await?;
        let refused = group
            .until(|group| is(group, "SourceFetched", "False", "AuthenticationFailed"))
            .await?;
        // Others are looked after as ever.
        let pushed = rig.push("two")?;
        other.look(&now()).await?;
        other.serves(&pushed).await?;

        let events = rig.namespace.api::<Event>();
        let events = events.list(&ListParams::default()).await?;
        let events = serde_json::to_string(&events.items)?;
        let status = serde_json::to_string(&refused)?;
        for (place, text) in [
            ("status", status),
            ("events", events),
            ("log", rig.operator.log()),
        ] {
            assert!(
                !text.contains("wr0ng-passw0rd"),
                "the password is in the {place}"
            );
        }
        let right = secret(&[("username", "u"), ("password", "right-password")]);
        rig.namespace.apply::<Secret>("git", right).await?;
        group.serves(&commit).await?;
        Ok(())
    })
    .await;
}
