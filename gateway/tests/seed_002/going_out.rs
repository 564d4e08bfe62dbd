//! What is checked again as an answer goes out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::Full;
use ramen_gateway::operations::OpError;
use serde_json::json;

use crate::support::{Bench, Got, KEY, PEER, answering};

const ID: &str = "bookmarks.create";
const TOOL: &str = "bookmarks_create";

fn forbidden() -> OpError {
    OpError::Forbidden("not any more".into())
}

#[tokio::test]
async fn net10_a_key_revoked_while_the_tool_runs_withholds_the_answer() {
    let bench = revoking();
    let got = bench.call("a").await;
    assert_eq!(got.status, StatusCode::UNAUTHORIZED);
    assert!(!String::from_utf8_lossy(&got.body).contains("result data"));
}

/// Operations of which one revokes the key that called it.
fn revoking() -> Bench {
    let slot = Arc::new(std::sync::OnceLock::<Arc<crate::support::Script>>::new());
    let inside = Arc::clone(&slot);
    let bench = Bench::rechecking_with(move |descriptors| {
        descriptors.push(answering("a", move |_| {
            inside.get().unwrap().revoked.store(true, Ordering::SeqCst);
            Ok(json!({"secret": "result data"}))
        }));
    });
    let _ = slot.set(Arc::clone(&bench.script));
    bench
}

#[tokio::test]
async fn without_a_rechecker_nothing_is_checked_again() {
    let bench = Bench::plain();
    bench.script.revoked.store(true, Ordering::SeqCst);
    *bench.script.not_admitted.lock().unwrap() = Some((ID.into(), 1, forbidden()));
    assert_eq!(bench.call(TOOL).await.json()["result"]["isError"], false);
}

#[tokio::test]
async fn for_a_call_admit_is_run_again_for_the_operation_that_ran() {
    let bench = Bench::rechecking();
    *bench.script.not_admitted.lock().unwrap() = Some((ID.into(), 1, forbidden()));
    let got = bench.call(TOOL).await;
    assert_eq!(got.refusal()["message"], "not any more");
    assert_eq!(bench.script.ran.load(Ordering::SeqCst), 1);
    assert!(!String::from_utf8_lossy(&got.body).contains("done"));
}

#[tokio::test]
async fn for_a_call_check_is_run_again_for_the_operation_that_ran() {
    let bench = Bench::rechecking();
    *bench.script.not_authorized.lock().unwrap() = Some((ID.into(), 1, forbidden()));
    assert_eq!(bench.call(TOOL).await.refusal()["message"], "not any more");
    assert_eq!(bench.script.ran.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn both_are_run_again_on_every_answer_also_on_a_failed_one() {
    let bench = Bench::rechecking_with(|descriptors| {
        descriptors.push(answering("a", |_| {
            Err(OpError::Conflict("what the operation said".into()))
        }));
    });
    *bench.script.not_admitted.lock().unwrap() = Some(("a".into(), 1, forbidden()));
    assert_eq!(bench.call("a").await.refusal()["message"], "not any more");
}

#[tokio::test]
async fn the_guard_runs_only_when_the_call_returned_a_successful_result() {
    let bench = Bench::rechecking_with(|descriptors| {
        descriptors.push(answering("fails", |_| Err(OpError::Conflict("no".into()))));
        descriptors.push(answering("breaks", |_| Ok(json!(null))));
    });
    bench.call("fails").await;
    bench.call("breaks").await;
    assert_eq!(*bench.script.guarded.lock().unwrap(), []);
    bench.call(TOOL).await;
    let saw = (Some(ID.to_owned()), json!({"done": true, "got": {}}));
    assert_eq!(*bench.script.guarded.lock().unwrap(), [saw]);
}

#[tokio::test]
async fn the_guard_checks_what_an_answer_discloses_as_it_goes_out() {
    let bench = Bench::rechecking();
    *bench.script.guard.lock().unwrap() = Some(OpError::Forbidden("that is a secret".into()));
    let got = bench.call(TOOL).await;
    assert_eq!(
        got.refusal(),
        json!({"code": "forbidden", "message": "that is a secret"})
    );
    assert!(!String::from_utf8_lossy(&got.body).contains("done"));
}

#[tokio::test]
async fn for_the_list_admit_and_check_are_run_again_for_every_tool_that_was_listed() {
    // The second look at this one comes when the list goes out.
    for authorized in [false, true] {
        let bench = Bench::rechecking();
        let rule = Some(("bookmarks.delete".into(), 1, forbidden()));
        if authorized {
            *bench.script.not_authorized.lock().unwrap() = rule;
        } else {
            *bench.script.not_admitted.lock().unwrap() = rule;
        }
        let body = bench.rpc("tools/list", json!({})).await.json();
        assert_eq!(body["error"]["code"], -32603, "{body}");
        assert!(!body.to_string().contains("bookmarks_delete"));
    }
}

#[tokio::test]
async fn for_the_list_the_guard_runs_with_no_descriptor_and_the_listed_descriptors() {
    let bench = Bench::rechecking();
    *bench.script.not_admitted.lock().unwrap() = Some(("bookmarks.delete".into(), 0, forbidden()));
    assert_eq!(bench.names().await, [TOOL]);
    assert_eq!(*bench.script.guarded.lock().unwrap(), [(None, json!([ID]))]);
    *bench.script.guard.lock().unwrap() = Some(forbidden());
    let body = bench.rpc("tools/list", json!({})).await.json();
    assert_eq!(body["error"]["code"], -32603);
    assert!(!body.to_string().contains(TOOL));
}

#[tokio::test]
async fn the_description_of_the_api_is_checked_like_the_list() {
    let bench = Bench::rechecking();
    let described = async || {
        let request = http::Request::get("/api/v1/openapi.json")
            .header("host", "localhost")
            .header("authorization", format!("Bearer {KEY}"))
            .body(Full::<Bytes>::default())
            .unwrap();
        let (door, path) = (&bench.door, "openapi.json");
        Got::of(bench.operations.api(door, PEER, path, request).await).await
    };
    let paths = described().await.json()["paths"].clone();
    assert!(paths["/api/v1/bookmarks/create"].is_object(), "{paths}");
    *bench.script.guard.lock().unwrap() = Some(forbidden());
    let got = described().await;
    assert_eq!(got.status, StatusCode::FORBIDDEN);
    assert_eq!(got.json()["error"]["message"], "not any more");
}
