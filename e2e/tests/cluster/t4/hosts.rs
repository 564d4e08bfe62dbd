//! Where code comes from besides plain http: over ssh with a pinned host key. (TLS with basic login is in `secrets`.)

use k8s_openapi::api::core::v1::Secret;
use ramen_crds::McpGroup;
use ramen_e2e::{GitHost, Group, Release, Tier, condition, with_temp_ns};
use serde_json::json;

use super::greeting;

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_group_comes_over_ssh_and_no_other_host_key_is_taken() {
    with_temp_ns(Tier::T4, async |namespace| {
        Release::install(&namespace, json!({})).await?;
        let git = GitHost::ssh()?;
        let other = GitHost::ssh()?;
        let first = git.push(&greeting("one"))?;
        namespace
            .apply::<Secret>("git", json!({ "stringData": git.credentials() }))
            .await?;
        let mut spec = Group::spec(&git.url(), 1);
        spec["source"]["secretRef"] = json!({ "name": "git" });
        let group = Group::apply(&namespace, "library", spec).await?;
        group.serves(&first).await?;

        // The pinned key is another host's: refused with the fingerprint, and the last good one serves.
        let mut wrong = git.credentials().clone();
        let pinned = other.credentials()["known_hosts"].clone();
        let address = |host: &GitHost| {
            let known = &host.credentials()["known_hosts"];
            known
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        wrong.insert(
            "known_hosts",
            pinned.replace(&address(&other), &address(&git)),
        );
        namespace
            .apply::<Secret>("git", json!({ "stringData": wrong }))
            .await?;
        let second = git.push(&greeting("two"))?;
        group.look("two").await?;
        let refused = condition::<McpGroup>("SourceFetched", "False");
        let status = group.until(|group| refused(Some(group))).await?;
        let conditions = status
            .status
            .map(|status| status.conditions)
            .unwrap_or_default();
        let fetched = conditions
            .iter()
            .find(|condition| condition.type_ == "SourceFetched");
        let fetched = fetched.map(|condition| (&*condition.reason, &*condition.message));
        assert!(
            fetched.is_some_and(
                |(reason, message)| reason == "HostKeyMismatch" && message.contains("SHA256:")
            ),
            "{fetched:?}"
        );
        let (_, caller) = group.callers().await?.remove(0);
        assert_eq!(
            caller.tool("greet", json!({ "name": "Ana" })).await?,
            "one greets Ana"
        );

        // Mended, the Secret alone wakes the group.
        namespace
            .apply::<Secret>("git", json!({ "stringData": git.credentials() }))
            .await?;
        group.serves(&second).await?;
        Ok(())
    })
    .await;
}
