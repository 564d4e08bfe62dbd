use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream::BoxStream;
use ramen_group::{DesiredState, LayerRef, PackageKind, Reason, ReportPackage};
use ramen_proto::v1::admin_server::{Admin, AdminServer};
use ramen_proto::v1::mcp_server::{Mcp, McpServer};
use ramen_proto::v1::{JsonRpc, ReloadRequest, ReloadResponse, StatusRequest, StatusResponse};
use ramen_redact::Secret;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use super::Reloaded;
use super::push::{Plan, Target, push};

const ADMIN: &str = "admin-key-of-the-test";
const KEY: &str = "rmk_gateway";

/// What a pod does.
#[derive(Clone, Debug)]
enum Does {
    Serves(&'static [&'static str]),
    /// Does not admit the operator as a caller.
    Closed(&'static [&'static str]),
    Refuses(Option<&'static str>, &'static str),
    Hangs,
}

/// A worker as the operator sees it.
#[derive(Clone)]
struct Pod {
    name: String,
    does: Does,
    log: Arc<Mutex<Vec<String>>>,
    loading: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

#[tonic::async_trait]
impl Admin for Pod {
    async fn reload(
        &self,
        request: Request<ReloadRequest>,
    ) -> Result<Response<ReloadResponse>, Status> {
        let key = request.metadata().get("x-ramen-admin-key");
        if key.is_none_or(|key| key != ADMIN) {
            return Err(Status::unauthenticated("no key of the Admin service"));
        }
        let desired = request.into_inner().desired.unwrap();
        let line = format!("{} {}", self.name, desired.revision);
        self.log.lock().unwrap().push(line);
        let at_once = self.loading.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(at_once, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.loading.fetch_sub(1, Ordering::SeqCst);
        match &self.does {
            Does::Serves(tools) | Does::Closed(tools) => Ok(Response::new(ReloadResponse {
                generation: 2,
                tools: u32::try_from(tools.len()).unwrap(),
                resources: 0,
                prompts: 0,
            })),
            Does::Refuses(reason, message) => {
                let mut status = Status::failed_precondition(*message);
                if let Some(reason) = reason {
                    status
                        .metadata_mut()
                        .insert("ramen-reason", reason.parse().unwrap());
                }
                Err(status)
            }
            Does::Hangs => std::future::pending().await,
        }
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        Err(Status::unimplemented("not asked"))
    }
}

#[tonic::async_trait]
impl Mcp for Pod {
    async fn call(&self, request: Request<JsonRpc>) -> Result<Response<JsonRpc>, Status> {
        let key = request.metadata().get("authorization").unwrap();
        assert_eq!(key, &format!("Bearer {KEY}"));
        let Does::Serves(tools) = &self.does else {
            return Err(Status::permission_denied("the address is not admitted"));
        };
        let request: Value = serde_json::from_slice(&request.into_inner().body).unwrap();
        assert_eq!(request["method"], "tools/list");
        // One tool a page.
        let page = request["params"]["cursor"].as_str().unwrap_or("0");
        let page: usize = page.parse().unwrap();
        let mut result = json!({"tools": []});
        if let Some(tool) = tools.get(page) {
            result = json!({"tools": [{"name": tool}], "nextCursor": (page + 1).to_string()});
        }
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        Ok(Response::new(JsonRpc {
            body: answer.to_string().into_bytes().into(),
        }))
    }

    type SessionStream = BoxStream<'static, Result<JsonRpc, Status>>;

    async fn session(
        &self,
        _: Request<tonic::Streaming<JsonRpc>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        Err(Status::unimplemented("not asked"))
    }
}

#[derive(Default)]
struct Pods {
    targets: Vec<Target>,
    log: Arc<Mutex<Vec<String>>>,
    loading: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Pods {
    async fn of(all: &[Does]) -> Self {
        let mut pods = Self::default();
        for (n, does) in all.iter().enumerate() {
            pods.add(&format!("pod-{n}"), does.clone()).await;
        }
        pods
    }

    async fn add(&mut self, name: &str, does: Does) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let pod = Pod {
            name: name.into(),
            does,
            log: Arc::clone(&self.log),
            loading: Arc::clone(&self.loading),
            most: Arc::clone(&self.most),
        };
        let server = tonic::transport::Server::builder()
            .add_service(AdminServer::new(pod.clone()))
            .add_service(McpServer::new(pod))
            .serve_with_incoming(TcpIncoming::from(listener));
        tokio::spawn(server);
        self.target(name, address);
    }

    fn target(&mut self, name: &str, address: SocketAddr) {
        self.targets.push(Target {
            name: name.into(),
            address,
            ready: true,
        });
    }

    /// One where nobody listens.
    async fn gone(mut self) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        self.targets.insert(
            0,
            Target {
                name: "gone".into(),
                address,
                ready: false,
            },
        );
        self
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

fn desired(revision: &str) -> DesiredState {
    DesiredState {
        revision: revision.into(),
        code: LayerRef {
            key: "tree".into(),
            digest: "sha256:00".into(),
            size: 1,
        },
        deps: None,
        python: "3.11".into(),
        exclude: Vec::new(),
    }
}

fn plan() -> Plan {
    let package = |name: &str| ReportPackage {
        kind: PackageKind::Tool,
        name: name.into(),
        description: None,
        ok: true,
        uri: None,
    };
    Plan {
        desired: desired("new"),
        previous: Some(desired("old")),
        packages: vec![package("a"), package("b")],
        admin_key: Secret::from(ADMIN),
        call_key: Some(Secret::from(KEY)),
        canary: true,
        timeout: Duration::from_secs(10),
    }
}

const GOOD: Does = Does::Serves(&["a", "b"]);

#[tokio::test]
async fn no_pods_at_all_is_success() {
    assert_eq!(push(&[], &plan()).await, Ok(Reloaded::default()));
}

#[tokio::test]
async fn one_pod_loads_first_then_the_rest_a_few_at_a_time() {
    let pods = Pods::of(&[const { GOOD }; 20]).await;
    let reloaded = push(&pods.targets, &plan()).await.unwrap();
    assert_eq!((reloaded.pods, reloaded.unreachable), (20, 0));
    let log = pods.log();
    assert_eq!(log.len(), 20);
    assert_eq!(log[0], "pod-0 new");
    let most = pods.most.load(Ordering::SeqCst);
    assert!((2..=8).contains(&most), "{most}");
}

#[tokio::test]
async fn what_the_canary_refuses_no_other_pod_is_asked() {
    let refuses = Does::Refuses(Some("ReloadFailed"), "tools/a: ImportError: boom");
    let pods = Pods::of(&[refuses, GOOD, GOOD]).await;
    let failure = push(&pods.targets, &plan()).await.unwrap_err();
    assert_eq!(failure.reason, Reason::ReloadFailed);
    assert!(!failure.transient);
    assert_eq!(failure.message, "pod pod-0: tools/a: ImportError: boom");
    assert_eq!(pods.log(), ["pod-0 new"]);
}

#[tokio::test]
async fn a_reason_that_the_worker_names_is_kept() {
    for (named, reason) in [
        (Some("LayerMissing"), Reason::LayerMissing),
        (Some("DiskFull"), Reason::DiskFull),
    ] {
        let pods = Pods::of(&[Does::Refuses(named, "x")]).await;
        let failure = push(&pods.targets, &plan()).await.unwrap_err();
        assert_eq!((failure.reason, failure.transient), (reason, true));
    }
    for named in [None, Some("SomethingNewer")] {
        let pods = Pods::of(&[Does::Refuses(named, "x")]).await;
        let failure = push(&pods.targets, &plan()).await.unwrap_err();
        assert_eq!(failure.reason, Reason::ReloadFailed);
    }
}

#[tokio::test]
async fn a_pod_that_cannot_be_reached_is_left_to_its_configmap() {
    let pods = Pods::of(&[GOOD, GOOD]).await.gone().await;
    let reloaded = push(&pods.targets, &plan()).await.unwrap();
    assert_eq!((reloaded.pods, reloaded.unreachable), (2, 1));
    assert_eq!(pods.log(), ["pod-0 new", "pod-1 new"]);
}

#[tokio::test]
async fn other_tools_than_those_of_the_report_send_the_pod_back() {
    let pods = Pods::of(&[Does::Serves(&["a", "c"]), GOOD]).await;
    let failure = push(&pods.targets, &plan()).await.unwrap_err();
    let message = "pod pod-0: tools/list lacks b and has c besides";
    assert_eq!(
        (failure.message.as_str(), failure.transient),
        (message, false)
    );
    assert_eq!(pods.log(), ["pod-0 new", "pod-0 old"]);

    let pods = Pods::of(&[Does::Serves(&["a"]), GOOD]).await;
    let failure = push(&pods.targets, &plan()).await.unwrap_err();
    assert_eq!(failure.message, "pod pod-0: it serves 1 tools instead of 2");
    assert_eq!(pods.log(), ["pod-0 new", "pod-0 old"]);
}

#[tokio::test]
async fn where_the_operator_may_not_call_the_numbers_have_to_do() {
    let pods = Pods::of(&[Does::Closed(&["a", "b"])]).await;
    push(&pods.targets, &plan()).await.unwrap();
    let pods = Pods::of(&[Does::Closed(&["a"])]).await;
    push(&pods.targets, &plan()).await.unwrap_err();
    let unknown = Plan {
        packages: Vec::new(),
        ..plan()
    };
    push(&pods.targets, &unknown).await.unwrap();
}

#[tokio::test]
async fn a_later_pod_that_fails_is_told_and_may_be_tried_again() {
    let pods = Pods::of(&[GOOD, Does::Refuses(Some("ReloadFailed"), "no"), GOOD]).await;
    let failure = push(&pods.targets, &plan()).await.unwrap_err();
    assert!(failure.transient);
    assert_eq!(failure.message, "pod pod-1: no (2 pods serve it)");
    assert_eq!(pods.log().len(), 3);
}

#[tokio::test]
async fn a_pod_that_never_answers_does_not_hold_up_for_ever() {
    let pods = Pods::of(&[Does::Hangs]).await;
    let short = Plan {
        timeout: Duration::from_millis(300),
        ..plan()
    };
    let failure = push(&pods.targets, &short).await.unwrap_err();
    assert!(failure.transient);
    assert_eq!(failure.reason, Reason::ReloadFailed);
}

#[tokio::test]
async fn a_key_that_is_refused_is_told_and_not_shown() {
    let pods = Pods::of(&[GOOD]).await;
    let wrong = Plan {
        admin_key: Secret::from("wrong-admin-key"),
        ..plan()
    };
    let failure = push(&pods.targets, &wrong).await.unwrap_err();
    assert!(failure.transient);
    assert!(
        failure.message.contains("does not let the operator in"),
        "{failure:?}"
    );
    assert!(!failure.message.contains("wrong-admin-key"));
    assert!(!format!("{wrong:?}").contains("wrong-admin-key"));
}
