//! `tools/list`.

use ramen_gateway::operations::OpError;
use serde_json::json;

use crate::support::Bench;

fn refuse(bench: &Bench, id: &str, error: OpError) {
    *bench.script.not_admitted.lock().unwrap() = Some((id.into(), 0, error));
}

#[tokio::test]
async fn tools_list_shows_only_the_tools_that_admit_allows() {
    let bench = Bench::plain();
    refuse(&bench, "bookmarks.delete", OpError::Forbidden("no".into()));
    assert_eq!(bench.names().await, ["bookmarks_create"]);
}

#[tokio::test]
async fn tools_list_shows_only_the_tools_that_check_allows() {
    let bench = Bench::rechecking();
    let rule = Some((
        "bookmarks.create".into(),
        0,
        OpError::Forbidden("no".into()),
    ));
    *bench.script.not_authorized.lock().unwrap() = rule;
    assert_eq!(bench.names().await, ["bookmarks_delete"]);
}

#[tokio::test]
async fn a_list_never_needs_the_agent_session() {
    let bench = Bench::rechecking_with(|descriptors| descriptors[0].flags.agent_session = true);
    assert_eq!(
        bench.names().await,
        ["bookmarks_create", "bookmarks_delete"]
    );
    assert_eq!(
        bench.call("bookmarks_create").await.refusal()["code"],
        "forbidden"
    );
}

#[tokio::test]
async fn only_forbidden_or_not_found_hides_a_tool() {
    for error in [
        OpError::Forbidden("no".into()),
        OpError::NotFound("no".into()),
    ] {
        let bench = Bench::plain();
        refuse(&bench, "bookmarks.create", error);
        assert_eq!(bench.names().await, ["bookmarks_delete"]);
    }
}

#[tokio::test]
async fn any_other_error_fails_the_list_as_a_json_rpc_internal_error_with_a_ref_in_its_data() {
    for error in [
        OpError::Internal("the database said secret".into()),
        OpError::Unavailable("no".into()),
        OpError::Invalid("no".into()),
        OpError::Conflict("no".into()),
    ] {
        let bench = Bench::plain();
        refuse(&bench, "bookmarks.create", error);
        let body = bench.rpc("tools/list", json!({})).await.json();
        assert_eq!(body["error"]["code"], -32603, "{body}");
        assert_eq!(body["error"]["data"]["ref"].as_str().unwrap().len(), 16);
        assert!(!body.to_string().contains("secret"));
    }
}
