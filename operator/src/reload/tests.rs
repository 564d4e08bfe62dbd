//! Reloads against workers that are scripted behind a real gRPC server.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use ramen_group::{LayerRef, Reason};
use ramen_proto::REASON_HEADER;
use ramen_proto::v1::admin_server::{Admin, AdminServer};
use ramen_proto::v1::mcp_server::{Mcp, McpServer};
use ramen_proto::v1::{
    HostStatus, JsonRpc, ReloadRequest as Asked, ReloadResponse, StatusRequest, StatusResponse,
};
use serde_json::json;
use tonic::{Request, Response, Status};

use super::push::Target;
use super::*;

/// What a worker answers, and what it was asked.
#[derive(Default)]
struct Script {
    reloads: Mutex<VecDeque<Result<u32, Status>>>,
    status: Mutex<StatusResponse>,
    tools: Mutex<Option<Vec<&'static str>>>,
    asked: Mutex<Vec<String>>,
}

#[derive(Clone)]
struct Fake(Arc<Script>);

#[tonic::async_trait]
impl Admin for Fake {
    async fn reload(&self, request: Request<Asked>) -> Result<Response<ReloadResponse>, Status> {
        assert_eq!(
            request.metadata().get("x-ramen-admin-key").unwrap(),
            "rma_key"
        );
        let desired = request.into_inner().desired.unwrap();
        self.0.asked.lock().unwrap().push(desired.revision);
        let next = self.0.reloads.lock().unwrap().pop_front();
        match next {
            Some(Ok(tools)) => Ok(Response::new(ReloadResponse {
                generation: 2,
                tools,
                resources: 0,
                prompts: 0,
            })),
            Some(Err(status)) => Err(status),
            None => std::future::pending().await,
        }
    }

    async fn status(
        &self,
        _request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        Ok(Response::new(self.0.status.lock().unwrap().clone()))
    }
}

#[tonic::async_trait]
impl Mcp for Fake {
    async fn call(&self, request: Request<JsonRpc>) -> Result<Response<JsonRpc>, Status> {
        let bearer = request.metadata().get("authorization").unwrap();
        assert_eq!(bearer, "Bearer rmk_gateway");
        let Some(tools) = self.0.tools.lock().unwrap().clone() else {
            return Err(Status::permission_denied("this address may not call"));
        };
        let tools: Vec<_> = tools.iter().map(|name| json!({"name": name})).collect();
        let answer = json!({"jsonrpc": "2.0", "id": 0, "result": {"tools": tools}});
        let body = answer.to_string().into_bytes().into();
        Ok(Response::new(JsonRpc { body }))
    }
}

/// Starts a worker; it ends with the test.
async fn worker(name: &str, reloads: Vec<Result<u32, Status>>) -> (Target, Arc<Script>) {
    let script = Arc::new(Script {
        reloads: Mutex::new(reloads.into()),
        ..Script::default()
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let fake = Fake(Arc::clone(&script));
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(
        tonic::transport::Server::builder()
            .add_service(AdminServer::new(fake.clone()))
            .add_service(McpServer::new(fake))
            .serve_with_incoming(incoming),
    );
    let target = Target {
        name: name.to_owned(),
        address,
        ready: true,
    };
    (target, script)
}

/// A pod at whose address nobody listens.
fn nobody(name: &str) -> Target {
    Target {
        name: name.to_owned(),
        address: ramen_source::testing::FreePort::nobody().unwrap(),
        ready: true,
    }
}

fn desired(revision: &str) -> DesiredState {
    DesiredState {
        revision: revision.to_owned(),
        code: LayerRef {
            key: "t".to_owned(),
            digest: "sha256:00".to_owned(),
            size: 1,
        },
        deps: None,
        python: "3.11".to_owned(),
        exclude: Vec::new(),
    }
}

fn plan(tools: &[&str]) -> Plan {
    Plan {
        desired: desired("new"),
        previous: Some(desired("old")),
        expected: (!tools.is_empty()).then(|| offer::tests::expected(tools)),
        admin_key: Secret::from("rma_key".to_owned()),
        call_key: Some(Secret::from("rmk_gateway".to_owned())),
        canary: true,
        timeout: Duration::from_secs(30),
    }
}

fn refusal(reason: &'static str) -> Status {
    let mut status = Status::failed_precondition("packages do not load: tools/x: boom");
    let reason = tonic::metadata::MetadataValue::from_static(reason);
    status.metadata_mut().insert(REASON_HEADER, reason);
    status
}

fn asked(script: &Script) -> Vec<String> {
    script.asked.lock().unwrap().clone()
}

#[tokio::test]
async fn what_the_canary_refuses_no_other_pod_is_asked() {
    let (canary, first) = worker("a", vec![Err(refusal("ReloadFailed"))]).await;
    let (other, second) = worker("b", vec![Ok(1)]).await;
    let failure = push(&[canary, other], &plan(&["add"])).await.unwrap_err();
    assert_eq!(
        (failure.reason, failure.transient),
        (Reason::ReloadFailed, false)
    );
    assert_eq!(
        failure.message,
        "pod a: packages do not load: tools/x: boom"
    );
    assert_eq!((asked(&first).len(), asked(&second).len()), (1, 0));
}

#[tokio::test]
async fn a_missing_layer_is_named_and_may_pass() {
    let (canary, _) = worker("a", vec![Err(refusal("LayerMissing"))]).await;
    let failure = push(&[canary], &plan(&[])).await.unwrap_err();
    assert_eq!(
        (failure.reason, failure.transient),
        (Reason::LayerMissing, true)
    );
}

#[tokio::test]
async fn a_pod_that_nobody_reaches_reads_the_config_map_and_the_next_is_the_canary() {
    let gone = nobody("a");
    let (canary, script) = worker("b", vec![Ok(1)]).await;
    *script.tools.lock().unwrap() = Some(vec!["add"]);
    let (other, third) = worker("c", vec![Ok(1)]).await;
    *third.tools.lock().unwrap() = Some(vec!["add"]);
    let reloaded = push(&[gone, canary, other], &plan(&["add"])).await.unwrap();
    let wanted = Reloaded {
        pods: vec!["b".to_owned(), "c".to_owned()],
        unreachable: 1,
    };
    assert_eq!(reloaded, wanted);
    assert_eq!(
        (asked(&script), asked(&third)),
        (vec!["new".into()], vec!["new".into()])
    );
}

#[tokio::test]
async fn no_pods_at_all_is_success() {
    assert_eq!(
        push(&[], &plan(&["add"])).await.unwrap(),
        Reloaded::default()
    );
}

#[tokio::test]
async fn a_canary_that_serves_something_else_goes_back() {
    for (tools, listed, words) in [
        (2, vec!["add", "more"], "2 tools instead of 1"),
        (1, vec!["sub"], "tools/list lacks add"),
    ] {
        let (canary, script) = worker("a", vec![Ok(tools), Ok(1)]).await;
        *script.tools.lock().unwrap() = Some(listed);
        let (other, second) = worker("b", vec![]).await;
        let failure = push(&[canary, other], &plan(&["add"])).await.unwrap_err();
        assert!(failure.message.contains(words), "{}", failure.message);
        assert!(!failure.transient);
        assert_eq!(asked(&script), ["new", "old"]);
        assert_eq!(asked(&second), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_worker_that_lets_no_call_of_the_operator_in_is_judged_by_its_numbers() {
    let (pod, script) = worker("a", vec![Ok(1)]).await;
    assert_eq!(push(&[pod], &plan(&["add"])).await.unwrap().pods, ["a"]);
    assert_eq!(asked(&script), ["new"]);
}

#[tokio::test]
async fn where_others_serve_a_revision_it_is_not_to_blame() {
    let (canary, script) = worker("a", vec![Ok(1)]).await;
    *script.tools.lock().unwrap() = Some(vec!["add"]);
    let (other, _) = worker("b", vec![Err(refusal("ReloadFailed"))]).await;
    let failure = push(&[canary, other], &plan(&["add"])).await.unwrap_err();
    assert!(failure.transient);
    assert!(
        failure.message.starts_with("pod b: ") && failure.message.ends_with("(1 pod serves it)"),
        "{}",
        failure.message
    );
}

#[tokio::test]
async fn without_a_canary_all_are_asked_at_once() {
    let (one, first) = worker("a", vec![Err(refusal("ReloadFailed"))]).await;
    let (two, second) = worker("b", vec![Err(refusal("ReloadFailed"))]).await;
    let plan = Plan {
        canary: false,
        ..plan(&["add"])
    };
    let failure = push(&[one, two], &plan).await.unwrap_err();
    assert!(!failure.transient);
    assert_eq!((asked(&first).len(), asked(&second).len()), (1, 1));
}

#[tokio::test]
async fn a_key_that_has_not_arrived_yet_is_tried_again() {
    let (pod, _) = worker(
        "a",
        vec![Err(Status::unauthenticated("the key is not known"))],
    )
    .await;
    let failure = push(&[pod], &plan(&[])).await.unwrap_err();
    assert!(failure.transient);
    assert!(
        failure.message.contains("does not let the operator in"),
        "{}",
        failure.message
    );
}

#[tokio::test]
async fn a_load_that_takes_longer_than_the_rollout_may_is_tried_again() {
    let (pod, _) = worker("a", vec![]).await;
    let plan = Plan {
        timeout: Duration::from_millis(20),
        ..plan(&[])
    };
    let failure = push(&[pod], &plan).await.unwrap_err();
    assert_eq!(
        (failure.reason, failure.transient),
        (Reason::ReloadFailed, true)
    );
}

fn inspection() -> InspectRequest {
    InspectRequest {
        group: GroupKey::new("team-a", "calc"),
        desired: desired("new"),
        admin_key: Secret::from("rma_key".to_owned()),
        timeout: Duration::from_secs(30),
    }
}

fn hosts(restarts: u64, state: &str) -> StatusResponse {
    StatusResponse {
        revision: "new".to_owned(),
        desired_revision: "new".to_owned(),
        health: "NOT_SERVING".to_owned(),
        hosts: vec![HostStatus {
            restarts,
            state: state.to_owned(),
            ..HostStatus::default()
        }],
        ..StatusResponse::default()
    }
}

async fn said(status: StatusResponse, reloads: Vec<Result<u32, Status>>) -> Option<(String, bool)> {
    let (mut pod, script) = worker("a", reloads).await;
    pod.ready = false;
    *script.status.lock().unwrap() = status;
    let mut said = inspect::inspect(vec![pod], &inspection()).await;
    said.pop().map(|ailment| (ailment.message, ailment.blames))
}

#[tokio::test]
async fn hosts_that_end_again_and_again_are_the_revisions_fault() {
    let (message, blames) = said(hosts(3, "dead"), vec![]).await.unwrap();
    assert!(
        blames && message.contains("host processes end"),
        "{message}"
    );
    // Once or twice is an accident; one that is up serves.
    assert_eq!(said(hosts(2, "dead"), vec![]).await, None);
    assert_eq!(said(hosts(9, "ready"), vec![]).await, None);
}

#[tokio::test]
async fn a_pod_that_could_not_load_is_asked_to_once_more_and_says_why() {
    let refused = StatusResponse {
        desired_revision: "new".to_owned(),
        last_error: "packages do not load".to_owned(),
        ..StatusResponse::default()
    };
    let (message, blames) = said(refused.clone(), vec![Err(refusal("ReloadFailed"))])
        .await
        .unwrap();
    assert!(blames && message.contains("tools/x: boom"), "{message}");
    let (_, blames) = said(refused.clone(), vec![Err(refusal("LayerMissing"))])
        .await
        .unwrap();
    assert!(!blames, "a layer is made again");
    assert_eq!(said(refused, vec![Ok(1)]).await, None);
    // It is at it.
    let loads = StatusResponse {
        desired_revision: "new".to_owned(),
        ..StatusResponse::default()
    };
    assert_eq!(said(loads, vec![]).await, None);
}

#[tokio::test]
async fn a_pod_that_nobody_reaches_says_nothing_of_the_revision() {
    let mut pod = nobody("a");
    pod.ready = false;
    let said = inspect::inspect(vec![pod], &inspection()).await;
    assert!(!said[0].blames && said[0].message.contains("does not answer the operator"));
}

fn survey_request() -> SurveyRequest {
    SurveyRequest {
        pods: vec![crate::pods::tests::worker("a")],
        desired: desired("new"),
        image: Some(crate::pods::tests::worker("a").image),
        admin_key: Secret::from("rma_key".to_owned()),
        timeout: Duration::from_secs(30),
    }
}

/// What a pod that serves this, and refuses anything else, says when it is asked about the revision `new`.
async fn asked_about_new(status: StatusResponse) -> Answer {
    let (pod, script) = worker("a", vec![Err(refusal("ReloadFailed"))]).await;
    *script.status.lock().unwrap() = status;
    let request = survey_request();
    let mut said = survey::survey(vec![pod], &request).await;
    assert_eq!(said.len(), 1);
    said.pop().unwrap().answer
}

#[tokio::test]
async fn a_pod_says_whether_it_serves_what_is_wanted() {
    let serving = |revision: &str, digest: &str| StatusResponse {
        revision: revision.to_owned(),
        serving: Some(ramen_proto::v1::DesiredState {
            revision: revision.to_owned(),
            code: Some(ramen_proto::v1::Layer {
                key: "t".to_owned(),
                digest: digest.to_owned(),
                size: 1,
            }),
            deps: None,
            python: "3.11".to_owned(),
            exclude: Vec::new(),
        }),
        ..StatusResponse::default()
    };
    let behind = |words: &str| Answer::Behind(words.to_owned());
    let same = asked_about_new(serving("new", "sha256:00")).await;
    assert_eq!(same, Answer::Serves);
    // Another commit of the same tree.
    let same = asked_about_new(serving("old", "sha256:00")).await;
    assert_eq!(same, Answer::Serves);
    let refused = StatusResponse {
        last_error: "no room on the disk".to_owned(),
        ..serving("old", "sha256:01")
    };
    let other = asked_about_new(refused).await;
    assert_eq!(other, behind("it serves old: no room on the disk"));
    let earlier = asked_about_new(serving("new", "sha256:01")).await;
    assert_eq!(
        earlier,
        behind("it serves an earlier deploy of new: packages do not load: tools/x: boom")
    );
    // Workers of earlier versions name the revision alone.
    let words = "it serves old: packages do not load: tools/x: boom";
    for (revision, wanted) in [("new", Answer::Serves), ("old", behind(words))] {
        let named = StatusResponse {
            serving: None,
            ..serving(revision, "")
        };
        assert_eq!(asked_about_new(named).await, wanted);
    }
    let said = survey::survey(vec![nobody("gone")], &survey_request()).await;
    assert_eq!(said[0].answer, Answer::Silent);
}

#[tokio::test]
async fn a_pod_that_serves_something_else_is_told_what_is_wanted() {
    for (serves, told) in [("old", vec!["new"]), ("new", vec![])] {
        let (pod, script) = worker("a", vec![Ok(1)]).await;
        *script.status.lock().unwrap() = StatusResponse {
            revision: serves.to_owned(),
            ..StatusResponse::default()
        };
        let said = survey::survey(vec![pod], &survey_request()).await;
        assert_eq!(said[0].answer, Answer::Serves);
        assert_eq!(asked(&script), told);
    }
    // Not one of another image, which goes.
    let (pod, script) = worker("a", vec![Ok(1)]).await;
    script.status.lock().unwrap().revision = "old".to_owned();
    let request = SurveyRequest {
        image: Some("other:2".to_owned()),
        ..survey_request()
    };
    let said = survey::survey(vec![pod], &request).await;
    assert_eq!(said[0].answer, Answer::Behind("it serves old".to_owned()));
    assert_eq!(asked(&script), Vec::<String>::new());
}
