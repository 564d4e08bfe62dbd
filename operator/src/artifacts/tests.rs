use std::net::SocketAddr;
use std::path::Path;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use ramen_group::{DesiredState, Outcome, ReportPackage};
use ramen_proto::v1::StatusRequest;
use ramen_proto::v1::admin_client::AdminClient;
use ramen_source::tree::{TreeLimits, walk_folder};
use ramen_source::{Digest, Kind, layer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

use super::*;

/// A store with one code layer, and its endpoint.
struct Place {
    dir: TempDir,
    artifacts: Artifacts,
    address: SocketAddr,
    code: LayerRef,
    stop: CancellationToken,
}

impl Place {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let prompt = dir.path().join("group/mcp/prompts/hello");
        std::fs::create_dir_all(&prompt).unwrap();
        let descriptor = json!({"type": "prompt", "name": "hello", "description": "says hello"});
        std::fs::write(prompt.join("hello.json"), descriptor.to_string()).unwrap();
        std::fs::write(prompt.join("SKILL.md"), "hello").unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        let tree = walk_folder(&dir.path().join("group"), &TreeLimits::default()).unwrap();
        let packed = layer::pack_tree(&tree, dir.path()).unwrap();
        let code = store.put(Kind::Code, &tree.id, &packed).await.unwrap();
        let artifacts = Artifacts::open(store).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(artifacts.clone().serve(listener, stop.clone()));
        Self {
            dir,
            artifacts,
            address,
            code,
            stop,
        }
    }

    fn read_token(&self) -> String {
        self.artifacts.read_token(&group("a")).into_exposed()
    }

    fn blob(&self) -> std::path::PathBuf {
        let hex = self.code.digest.strip_prefix("sha256:").unwrap();
        self.dir.path().join(format!("store/blobs/{hex}.tar.zst"))
    }

    fn code_path(&self) -> String {
        format!("/v1/layers/code/{}", self.code.digest)
    }

    async fn ask(&self, method: Method, path: &str, token: &str, body: &[u8]) -> (u16, Vec<u8>) {
        self.ask_with(
            method,
            path,
            &[("authorization", format!("Bearer {token}"))],
            body,
        )
        .await
        .expect("an answer")
    }

    async fn put_deps(&self, path: &str, token: &str, digest: Digest, body: &[u8]) -> (u16, Value) {
        let headers = [
            ("authorization", format!("Bearer {token}")),
            ("x-ramen-digest", digest.to_string()),
        ];
        let (status, body) = self
            .ask_with(Method::PUT, path, &headers, body)
            .await
            .expect("an answer");
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    /// `None` when the answer breaks off.
    async fn ask_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, String)],
        body: &[u8],
    ) -> Option<(u16, Vec<u8>)> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "x");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request
            .body(Full::new(Bytes::copy_from_slice(body)))
            .unwrap();
        let response = sender.send_request(request).await.ok()?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.ok()?;
        Some((status, body.to_bytes().to_vec()))
    }
}

fn group(name: &str) -> GroupKey {
    GroupKey::new("ns", name)
}

fn deploy(name: &str) -> DeployId {
    DeployId {
        group: group(name),
        id: "0123456789".into(),
    }
}

fn path(name: &str, tail: &str) -> String {
    format!("/v1/deploys/ns/{name}/0123456789/{tail}")
}

fn report(deps: Option<&Value>) -> Vec<u8> {
    json!({
        "code": {"key": "k", "digest": "sha256:0", "size": 0}, "deps": deps, "python": "3.11",
        "packages": [{"kind": "tool", "name": "calc", "ok": true}], "outcome": "ok",
    })
    .to_string()
    .into_bytes()
}

#[tokio::test]
async fn a_group_reads_layers_by_digest_and_nobody_else_does() {
    let place = Place::new().await;
    let (path, token) = (place.code_path(), place.read_token());
    let (status, body) = place.ask(Method::GET, &path, &token, b"").await;
    assert_eq!(status, 200);
    assert_eq!(Digest::of(&body).to_string(), place.code.digest);
    // By digest alone: the kind only says what it is for.
    for wrong in ["", "x", "rar_ns_a_00", &token.replace("_a_", "_b_")] {
        assert_eq!(
            place.ask(Method::GET, &path, wrong, b"").await.0,
            401,
            "{wrong}"
        );
    }
    let other = format!("/v1/layers/code/{}", Digest::of(b"other"));
    let woken = Arc::new(std::sync::Mutex::new(Vec::new()));
    let calls = Arc::clone(&woken);
    place
        .artifacts
        .on_lost(move |group| calls.lock().unwrap().push(group.clone()));
    assert_eq!(place.ask(Method::GET, &other, &token, b"").await.0, 404);
    assert_eq!(place.ask(Method::GET, &other, &token, b"").await.0, 404);
    assert_eq!(*woken.lock().unwrap(), [group("a")]);
    assert!(place.artifacts.take_lost(&group("a")) && !place.artifacts.take_lost(&group("a")));
    let bearer = format!("Bearer {token}");
    let twice = [("authorization", bearer.clone()), ("authorization", bearer)];
    let answer = place.ask_with(Method::GET, &path, &twice, b"").await;
    assert_eq!(answer.unwrap().0, 401);
    assert_eq!(
        place
            .ask_with(Method::GET, &path, &[], b"")
            .await
            .unwrap()
            .0,
        401
    );
}

#[tokio::test]
async fn everything_else_is_not_there() {
    let place = Place::new().await;
    let token = place.read_token();
    for (method, path) in [
        (Method::GET, "/"),
        (Method::GET, "/v1/layers"),
        (Method::GET, "/v1/layers/code"),
        (Method::GET, "/v1/layers/code/"),
        (Method::GET, "/v1/deploys"),
        (Method::GET, "/blobs"),
        (Method::GET, "/v1/layers/code/../../read-key"),
        (Method::PUT, &place.code_path()),
        (Method::DELETE, &place.code_path()),
        (Method::HEAD, &place.code_path()),
        (Method::POST, &super::tests::path("a", "report")),
    ] {
        let (status, _) = place.ask(method.clone(), path, &token, b"").await;
        assert_eq!(status, 404, "{method} {path}");
    }
    // A read token opens no deploy.
    let admit = place
        .artifacts
        .admit(&deploy("a"), &Secret::from("rad_a"), &place.code);
    let _receiver = admit.await.unwrap();
    let answer = place
        .ask(Method::PUT, &path("a", "report"), &token, b"{}")
        .await;
    assert_eq!(answer.0, 401);
}

#[tokio::test]
async fn a_deploy_hands_over_requirements_and_one_report() {
    let place = Place::new().await;
    let token = Secret::from("rad_a");
    let admit = place.artifacts.admit(&deploy("a"), &token, &place.code);
    let mut reports = admit.await.unwrap();
    assert_eq!(
        place
            .ask(Method::GET, &place.code_path(), "rad_a", b"")
            .await
            .0,
        200
    );
    let other = format!("/v1/layers/code/{}", Digest::of(b"x"));
    assert_eq!(place.ask(Method::GET, &other, "rad_a", b"").await.0, 404);

    let deps = path("a", "layers/deps/lock1");
    assert_eq!(place.ask(Method::GET, &deps, "rad_a", b"").await.0, 404);
    let digest = Digest::of(b"wheels");
    assert_eq!(
        place.put_deps(&deps, "rad_a", digest, b"other").await.0,
        409
    );
    assert_eq!(
        place.put_deps(&deps, "rad_b", digest, b"wheels").await.0,
        401
    );
    let (status, layer) = place.put_deps(&deps, "rad_a", digest, b"wheels").await;
    assert_eq!((status, &layer["size"]), (200, &json!(6)));
    assert_ne!(layer["key"], "lock1");
    let (status, again) = place.ask(Method::GET, &deps, "rad_a", b"").await;
    assert_eq!(
        (status, serde_json::from_slice(&again).ok()),
        (200, Some(layer.clone()))
    );
    let read = format!("/v1/layers/deps/{digest}");
    assert_eq!(
        place.ask(Method::GET, &read, "rad_a", b"").await.1,
        b"wheels"
    );

    let lock = path("a", "locks/inputs");
    assert_eq!(place.ask(Method::GET, &lock, "rad_a", b"").await.0, 404);
    assert_eq!(place.ask(Method::PUT, &lock, "rad_a", b"a==1").await.0, 204);
    assert_eq!(place.ask(Method::GET, &lock, "rad_a", b"").await.1, b"a==1");

    let to = path("a", "report");
    let stranger = json!({"key": "k", "digest": Digest::of(b"evil").to_string(), "size": 1});
    assert_eq!(
        place
            .ask(Method::PUT, &to, "rad_a", &report(Some(&stranger)))
            .await
            .0,
        422
    );
    assert_eq!(place.ask(Method::PUT, &to, "rad_a", b"[]").await.0, 422);
    assert!(reports.borrow_and_update().is_none());
    assert_eq!(
        place
            .ask(Method::PUT, &to, "rad_a", &report(Some(&layer)))
            .await
            .0,
        204
    );
    let known = reports
        .wait_for(Option::is_some)
        .await
        .unwrap()
        .clone()
        .unwrap();
    assert_eq!(known.outcome, Outcome::Ok);
    assert_eq!(known.code.as_ref(), Some(&place.code));

    // Once: after the report the token opens nothing, but a report that is sent again is no error.
    assert_eq!(
        place
            .ask(Method::GET, &place.code_path(), "rad_a", b"")
            .await
            .0,
        401
    );
    assert_eq!(
        place.put_deps(&deps, "rad_a", digest, b"wheels").await.0,
        401
    );
    assert_eq!(place.ask(Method::PUT, &to, "rad_a", b"[]").await.0, 204);
    // Another process finds the report.
    let again = Artifacts::open(place.artifacts.store().clone()).unwrap();
    assert_eq!(
        again.report(&deploy("a")).await.unwrap().as_ref(),
        Some(&*known)
    );
    place.artifacts.forget(&deploy("a")).await.unwrap();
    assert_eq!(again.report(&deploy("a")).await.unwrap(), None);
}

#[tokio::test]
async fn no_group_puts_anything_in_the_place_of_anothers() {
    let place = Place::new().await;
    let mut open = Vec::new();
    for name in ["a", "b"] {
        let token = Secret::new(format!("rad_{name}"));
        open.push(
            place
                .artifacts
                .admit(&deploy(name), &token, &place.code)
                .await
                .unwrap(),
        );
    }
    let evil = Digest::of(b"evil");
    let at = |name| path(name, "layers/deps/lock1");
    assert_eq!(
        place.put_deps(&at("a"), "rad_a", evil, b"evil").await.0,
        200
    );
    assert_eq!(place.ask(Method::GET, &at("b"), "rad_b", b"").await.0, 404);
    let read = format!("/v1/layers/deps/{evil}");
    assert_eq!(place.ask(Method::GET, &read, "rad_b", b"").await.0, 404);
    let good = Digest::of(b"good");
    assert_eq!(
        place.put_deps(&at("b"), "rad_b", good, b"good").await.0,
        200
    );
    let (_, layer) = place.ask(Method::GET, &at("a"), "rad_a", b"").await;
    let layer: LayerRef = serde_json::from_slice(&layer).unwrap();
    assert_eq!(layer.digest, evil.to_string());
    let lock = |name| path(name, "locks/inputs");
    assert_eq!(
        place.ask(Method::PUT, &lock("a"), "rad_a", b"evil").await.0,
        204
    );
    assert_eq!(
        place.ask(Method::GET, &lock("b"), "rad_b", b"").await.0,
        404
    );
}

#[tokio::test]
async fn what_is_too_large_is_refused() {
    let place = Place::new().await;
    let admit = place
        .artifacts
        .admit(&deploy("a"), &Secret::from("rad_a"), &place.code);
    let _receiver = admit.await.unwrap();
    let large = vec![b' '; report::MAX_BYTES + 1];
    // The answer may be lost behind the body that nobody reads; then the connection breaks.
    let headers = [("authorization", "Bearer rad_a".to_owned())];
    let answer = place
        .ask_with(Method::PUT, &path("a", "report"), &headers, &large)
        .await;
    assert!(answer.is_none_or(|(status, _)| status == 413));
    let headers = [
        ("authorization", "Bearer rad_a".to_owned()),
        ("x-ramen-digest", Digest::of(b"").to_string()),
        ("content-length", (u64::MAX / 2).to_string()),
    ];
    let deps = path("a", "layers/deps/k");
    let answer = place.ask_with(Method::PUT, &deps, &headers, b"").await;
    assert!(answer.is_none_or(|(status, _)| status == 413));
    let headers = [
        ("authorization", "Bearer rad_a".to_owned()),
        ("x-long", "x".repeat(64 * 1024)),
    ];
    let answer = place
        .ask_with(Method::GET, &place.code_path(), &headers, b"")
        .await;
    assert!(answer.is_none_or(|(status, _)| status == 431));
    // It still answers.
    assert_eq!(
        place
            .ask(Method::GET, &place.code_path(), "rad_a", b"")
            .await
            .0,
        200
    );
}

#[tokio::test]
async fn a_damaged_layer_is_not_handed_out_and_goes_away() {
    let place = Place::new().await;
    let mut bytes = std::fs::read(place.blob()).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(place.blob(), bytes).unwrap();
    let headers = [("authorization", format!("Bearer {}", place.read_token()))];
    let ask = || place.ask_with(Method::GET, &place.code_path(), &headers, b"");
    let desired = DesiredState {
        revision: "one".into(),
        code: place.code.clone(),
        deps: None,
        python: "3.11".into(),
        exclude: Vec::new(),
    };
    assert!(place.artifacts.holds(&desired).await.unwrap());
    assert_eq!(ask().await, None);
    assert!(!place.artifacts.holds(&desired).await.unwrap());
    assert_eq!(ask().await.unwrap().0, 404);
}

#[tokio::test]
async fn a_worker_deploys_through_the_endpoint() {
    let place = Place::new().await;
    let token = one_time().unwrap();
    let file = place.dir.path().join("token");
    std::fs::write(&file, token.expose()).unwrap();
    let admit = place.artifacts.admit(&deploy("a"), &token, &place.code);
    let mut reports = admit.await.unwrap();
    let args = deploy_args(&[
        "--code-layer".to_owned(),
        format!("{}@{}", place.code.key, place.code.digest),
        "--store".to_owned(),
        format!("http://{}", place.address),
        "--store-token-file".to_owned(),
        file.display().to_string(),
        "--report-url".to_owned(),
        format!("http://{}{}", place.address, path("a", "report")),
        "--out".to_owned(),
        place.dir.path().join("out").display().to_string(),
        "--no-install".to_owned(),
        "--progress".to_owned(),
        "none".to_owned(),
    ]);
    let report = ramen_worker::deploy::deploy(args, std::collections::BTreeMap::new())
        .await
        .unwrap();
    assert_eq!(report.outcome, Outcome::Ok, "{report:?}");
    let known = reports
        .wait_for(Option::is_some)
        .await
        .unwrap()
        .clone()
        .unwrap();
    assert_eq!(known.code.as_ref(), Some(&place.code));
    assert_eq!(known.packages[0].name, "hello");
    assert_eq!(known.packages[0].description.as_deref(), Some("says hello"));
}

fn deploy_args(args: &[String]) -> ramen_worker::deploy::DeployArgs {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: ramen_worker::deploy::DeployArgs,
    }
    let line = std::iter::once("deploy".to_owned()).chain(args.iter().cloned());
    <Line as clap::Parser>::parse_from(line).args
}

#[tokio::test]
async fn a_worker_serves_what_it_fetches_and_goes_on_when_the_endpoint_is_gone() {
    let place = Place::new().await;
    let file = |name: &str, text: &str| {
        let path = place.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let config = ramen_worker::config::Config::read(ramen_worker::config::ServeArgs {
        store: Some(format!("http://{}", place.address).into()),
        store_token_file: Some(file("token", &place.read_token())),
        cache_dir: Some(place.dir.path().join("cache")),
        keys_file: Some(file("keys", "rmk_gateway")),
        admin_key_file: Some(file("admin", "admin-key")),
        ..serve_args(place.dir.path())
    });
    let worker = ramen_worker::serve::Worker::start(config.unwrap())
        .await
        .unwrap();
    let desired = DesiredState {
        revision: "one".into(),
        code: place.code.clone(),
        deps: None,
        python: "3.11".into(),
        exclude: Vec::new(),
    };
    let target = crate::reload::Target {
        name: "pod".into(),
        address: worker.grpc,
        ready: true,
    };
    let mut plan = crate::reload::Plan {
        desired,
        previous: None,
        packages: vec![ReportPackage {
            kind: ramen_group::PackageKind::Prompt,
            name: "hello".into(),
            description: None,
            ok: true,
            uri: None,
        }],
        admin_key: Secret::from("admin-key"),
        call_key: Some(Secret::from("rmk_gateway")),
        canary: true,
        timeout: Duration::from_secs(20),
    };
    let pods = [target];
    let reloaded = crate::reload::push(&pods, &plan).await.unwrap();
    assert_eq!((reloaded.pods, reloaded.unreachable), (1, 0));

    // The same code under another name: nothing need be fetched.
    place.stop.cancel();
    plan.desired.revision = "two".into();
    crate::reload::push(&pods, &plan).await.unwrap();
    // Other code: the worker says why, and serves what it has.
    plan.desired.revision = "three".into();
    plan.desired.code.digest = Digest::of(b"unknown").to_string();
    let failure = crate::reload::push(&pods, &plan).await.unwrap_err();
    assert!(failure.transient, "{failure:?}");
    assert!(failure.message.contains("artifact endpoint"), "{failure:?}");
    let mut admin = AdminClient::connect(format!("http://{}", worker.grpc))
        .await
        .unwrap();
    let mut request = tonic::Request::new(StatusRequest {});
    let key = "admin-key".parse().unwrap();
    request.metadata_mut().insert("x-ramen-admin-key", key);
    let status = admin.status(request).await.unwrap().into_inner();
    assert_eq!(status.revision, "two");
    worker.stop().await;
}

fn serve_args(dir: &Path) -> ramen_worker::config::ServeArgs {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: ramen_worker::config::ServeArgs,
    }
    let dir = dir.display().to_string();
    let line = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--metrics-listen",
        "off",
        "--hosts",
        "1",
        "--drain-secs",
        "1",
        "--host-dir",
        &dir,
    ];
    <Line as clap::Parser>::parse_from(line).args
}

#[tokio::test]
async fn no_log_line_shows_a_token() {
    #[derive(Clone, Default)]
    struct Lines(Arc<std::sync::Mutex<Vec<u8>>>);
    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let place = Place::new().await;
    let token = one_time().unwrap();
    let admit = place.artifacts.admit(&deploy("a"), &token, &place.code);
    let _receiver = admit.await.unwrap();
    let secrets = [
        token.into_exposed(),
        place.read_token(),
        "wrong-secret".to_owned(),
    ];
    for secret in &secrets {
        place
            .ask(Method::GET, &place.code_path(), secret, b"")
            .await;
        place
            .ask(Method::PUT, &path("a", "report"), secret, b"[]")
            .await;
        place
            .ask(Method::PUT, &path("a", "report"), secret, &report(None))
            .await;
    }
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("took a report"), "{text}");
    assert!(text.contains("answered"));
    for secret in &secrets {
        let mac = secret.rsplit('_').next().unwrap();
        assert!(!text.contains(mac), "{text}");
    }
}
