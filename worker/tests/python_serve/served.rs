//! `ramen-worker serve` as a process: started, awaited by what it logs, and ended.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use ramen_proto::v1::admin_client::AdminClient;
use ramen_proto::v1::{
    self as proto, ReloadRequest, ReloadResponse, StatusRequest, StatusResponse,
};
use ramen_source::layer::{PackOptions, pack_dir};
use ramen_source::{Kind, Store};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;
use tonic::Status;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::harness::{
    ADMIN_KEY, Client, Group, KEY, LONG, bin_dir, connect, scrape, with_admin_key,
};
use crate::pythons::wanted;

/// The Pythons to test with, as `3.11`.
pub(crate) fn pythons() -> Vec<String> {
    wanted(&bin_dir())
}

/// Runs a test with each Python.
pub(crate) async fn each_python(test: impl AsyncFn(&str)) {
    for python in pythons() {
        println!("with Python {python}");
        test(&python).await;
    }
}

/// Lines of the worker's log, as they come.
#[derive(Clone)]
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    count: watch::Receiver<usize>,
}

impl Log {
    fn of(stderr: impl std::io::Read + Send + 'static) -> Self {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let (sender, count) = watch::channel(0);
        let kept = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                let Ok(line) = line else { return };
                let mut kept = kept.lock().unwrap();
                kept.push(line);
                sender.send_replace(kept.len());
            }
        });
        Self { lines, count }
    }

    pub(crate) fn text(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    /// The first line, past or future, that `wanted` takes.
    pub(crate) async fn line(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut count = self.count.clone();
        let mut from = 0;
        let search = async {
            loop {
                let new: Vec<String> = self.lines.lock().unwrap()[from..].to_vec();
                from += new.len();
                for line in new {
                    if let Ok(line) = serde_json::from_str::<Value>(&line)
                        && wanted(&line)
                    {
                        return Some(line);
                    }
                }
                count.wait_for(|count| *count > from).await.ok()?;
            }
        };
        match tokio::time::timeout(LONG, search).await {
            Ok(Some(line)) => line,
            Ok(None) => panic!("the worker ended before it logged {what}:\n{}", self.text()),
            Err(late) => panic!("{late}, never logged: {what}:\n{}", self.text()),
        }
    }

    pub(crate) async fn message(&self, message: &str) -> Value {
        self.line(message, |line| line["message"] == message).await
    }

    /// A line that user code printed.
    pub(crate) async fn printed(&self, package: &str, text: &str) -> Value {
        self.line(text, |line| {
            line["message"] == "printed" && line["package"] == package && line["line"] == text
        })
        .await
    }
}

/// How a worker is started.
pub(crate) struct Setup {
    python: String,
    env: Vec<(String, String)>,
    deps: Option<PathBuf>,
    exclude: Vec<String>,
}

impl Setup {
    /// Two hosts of four threads.
    pub(crate) fn new(python: &str) -> Self {
        Self {
            python: python.to_owned(),
            env: Vec::new(),
            deps: None,
            exclude: Vec::new(),
        }
    }

    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn secret(self, name: &str, value: &str) -> Self {
        self.set(&format!("RAMEN_SECRET_G__{name}"), value)
    }

    /// A folder of installed requirements.
    pub(crate) fn deps(mut self, dir: &Path) -> Self {
        self.deps = Some(dir.to_owned());
        self
    }

    pub(crate) fn exclude(mut self, package: &str) -> Self {
        self.exclude.push(package.to_owned());
        self
    }

    /// A worker that serves `group`.
    pub(crate) async fn serve(self, group: &Group) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(path("keys"), format!("{KEY}\n")).unwrap();
        std::fs::write(path("admin"), format!("{ADMIN_KEY}\n")).unwrap();
        let mut desired = group.publish(Path::new(&path("store")), "one").await;
        desired.python.clone_from(&self.python);
        desired.exclude = self.exclude;
        if let Some(deps) = self.deps {
            let scratch = tempfile::tempdir().unwrap();
            let packed = pack_dir(&deps, scratch.path(), PackOptions::DEPS, &mut |_| {}).unwrap();
            let store = Store::open(Path::new(&path("store"))).unwrap();
            desired.deps = Some(store.put(Kind::Deps, "test", &packed).await.unwrap());
        }
        std::fs::write(path("desired"), serde_json::to_vec(&desired).unwrap()).unwrap();

        let mut command = Command::new(env!("CARGO_BIN_EXE_ramen-worker"));
        command
            .arg("serve")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("RAMEN_LISTEN", "127.0.0.1:0")
            .env("RAMEN_METRICS_LISTEN", "127.0.0.1:0")
            .env("RAMEN_GROUP", "g")
            .env("RAMEN_KEYS_FILE", path("keys"))
            .env("RAMEN_ADMIN_KEY_FILE", path("admin"))
            .env("RAMEN_STORE", path("store"))
            .env("RAMEN_CACHE_DIR", path("cache"))
            .env("RAMEN_DESIRED", path("desired"))
            .env("RAMEN_HOST_DIR", bin_dir())
            .env("RAMEN_HOSTS", "2")
            .env("RAMEN_HOST_THREADS", "4")
            .envs(self.env)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = Log::of(child.stderr.take().unwrap());
        let mut served = Served {
            child,
            log,
            grpc: SocketAddr::from(([127, 0, 0, 1], 0)),
            metrics: SocketAddr::from(([127, 0, 0, 1], 0)),
            python: self.python,
            dir,
        };
        let addresses = served.log.message("listening").await;
        served.grpc = addresses["grpc"].as_str().unwrap().parse().unwrap();
        served.metrics = addresses["metrics"].as_str().unwrap().parse().unwrap();
        let loaded = served.log.line("what became of the revision", |line| {
            line["message"] == "serving" || line["message"] == "a revision was not loaded"
        });
        let loaded = loaded.await;
        assert_eq!(loaded["message"], "serving", "{loaded}");
        served.becomes_healthy().await;
        served
    }
}

/// A worker that serves. Ended when it is dropped.
pub(crate) struct Served {
    child: Child,
    pub(crate) log: Log,
    pub(crate) grpc: SocketAddr,
    metrics: SocketAddr,
    python: String,
    dir: TempDir,
}

impl Served {
    /// A folder of the test's own.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) async fn channel(&self) -> Channel {
        connect(self.grpc).await
    }

    pub(crate) async fn client(&self) -> Client {
        Client::new(self.channel().await, Some(KEY))
    }

    /// Tells the worker to serve `group`; what it says to that.
    pub(crate) async fn reload(
        &self,
        group: &Group,
        revision: &str,
    ) -> Result<ReloadResponse, Status> {
        let desired = group
            .publish(&self.dir.path().join("store"), revision)
            .await;
        let code = proto::Layer {
            key: desired.code.key,
            digest: desired.code.digest,
            size: desired.code.size,
        };
        let request = with_admin_key(ReloadRequest {
            desired: Some(proto::DesiredState {
                revision: desired.revision,
                code: Some(code),
                deps: None,
                python: self.python.clone(),
                exclude: desired.exclude,
            }),
        });
        let mut admin = AdminClient::new(self.channel().await);
        let answer = tokio::time::timeout(LONG, admin.reload(request)).await;
        let answer = answer.expect("a word on the reload before the hang guard")?;
        Ok(answer.into_inner())
    }

    /// What the worker says of itself.
    pub(crate) async fn status(&self) -> StatusResponse {
        let mut admin = AdminClient::new(self.channel().await);
        let answer = admin.status(with_admin_key(StatusRequest {})).await;
        answer.unwrap().into_inner()
    }

    /// Whether the group is served, asked without a key.
    pub(crate) async fn health(&self) -> Result<ServingStatus, Status> {
        let request = HealthCheckRequest {
            service: "ramen.v1.Mcp".into(),
        };
        let mut client = HealthClient::new(self.channel().await);
        let answer = tokio::time::timeout(LONG, client.check(request)).await;
        let answer = answer.expect("health before the hang guard")?;
        Ok(answer.into_inner().status())
    }

    /// Returns once the group is served.
    async fn becomes_healthy(&self) {
        let request = HealthCheckRequest {
            service: "ramen.v1.Mcp".into(),
        };
        let mut client = HealthClient::new(self.channel().await);
        let watching = async {
            let mut states = client.watch(request).await.unwrap().into_inner();
            while let Some(state) = states.message().await.unwrap() {
                if state.status() == ServingStatus::Serving {
                    return;
                }
            }
            panic!("the watch ended");
        };
        let healthy = tokio::time::timeout(LONG, watching).await;
        assert!(healthy.is_ok(), "never healthy:\n{}", self.log.text());
    }

    /// Sum of the metric's lines that begin with `prefix`.
    pub(crate) async fn metric(&self, prefix: &str) -> u64 {
        let text = scrape(self.metrics).await;
        text.lines()
            .filter(|line| line.starts_with(prefix))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
            .sum()
    }

    /// How many tools and resources were called so far, however that ended.
    pub(crate) async fn calls(&self) -> u64 {
        self.metric("ramen_calls_total").await
    }

    /// Process ids of the hosts, and of what user code started directly under the worker.
    pub(crate) fn children(&self) -> Vec<u32> {
        children(self.pid())
    }

    /// Asserts that the process that was started still runs.
    pub(crate) fn assert_alive(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "{ended:?}\n{}", self.log.text());
    }

    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// The exit of the process.
    pub(crate) async fn ended(mut self) -> ExitStatus {
        // Reading its log to the end is the wait: the pipe closes with the process.
        let mut count = self.log.count.clone();
        let closed = async { while count.changed().await.is_ok() {} };
        let closed = tokio::time::timeout(LONG, closed).await;
        assert!(closed.is_ok(), "it does not end:\n{}", self.log.text());
        self.child.wait().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the worker's log:\n{}", self.log.text());
        }
        // It may have ended already. Its hosts end with their channels.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Child processes of all threads of `pid`.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    tasks
        .into_iter()
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace()
                .map(|pid| pid.parse().unwrap())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Whether a process runs: it exists and is no zombie.
pub(crate) fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit_once(')')
            .unwrap()
            .1
            .trim_start()
            .starts_with('Z')
    })
}
