//! Starts and ends the servers: the null ceiling, the peers, and our worker with all its guards on.

pub(crate) mod contextforge;
pub(crate) mod gateway;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ramen_proto::v1::admin_client::AdminClient;
use ramen_proto::v1::{DesiredState, Layer, ReloadRequest, StatusRequest, StatusResponse};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::grpc::Client;
use crate::lab::{Lab, write};
use crate::load::Target;

const PATIENCE: Duration = Duration::from_mins(1);

/// A server that says on its first line where it listens.
pub(crate) struct Server {
    pub(crate) pid: u32,
    pub(crate) target: Target,
    _child: Child,
}

impl Server {
    /// The ceiling: this program's own null server.
    pub(crate) async fn null() -> anyhow::Result<Self> {
        let mut command =
            Command::new(std::env::current_exe().context("cannot find this program")?);
        command.arg("null");
        Self::grpc(command).await
    }

    /// A Python peer that speaks gRPC.
    pub(crate) async fn grpc_peer(lab: &Lab, script: &str) -> anyhow::Result<Self> {
        Self::grpc(peer(lab, script)).await
    }

    /// A Python peer that speaks HTTP.
    pub(crate) async fn http_peer(lab: &Lab, script: &str) -> anyhow::Result<Self> {
        let (child, said) = announced(peer(lab, script)).await?;
        let target = Target::Http {
            address: format!("127.0.0.1:{}", said[0]),
            path: "/mcp".to_owned(),
            key: None,
            session: false,
        };
        Self::of(child, target)
    }

    async fn grpc(command: Command) -> anyhow::Result<Self> {
        let (child, said) = announced(command).await?;
        let address = format!("127.0.0.1:{}", said[0]);
        Self::of(child, Target::Grpc { address, key: None })
    }

    pub(crate) fn of(child: Child, target: Target) -> anyhow::Result<Self> {
        Ok(Self {
            pid: child.id().context("the server ended")?,
            target,
            _child: child,
        })
    }
}

/// Starts a server and reads its first line: `listening`, the port, and what else it says.
pub(crate) async fn announced(mut command: Command) -> anyhow::Result<(Child, Vec<String>)> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", command.as_std().get_program().display()))?;
    let stdout = child.stdout.take().context("no stdout")?;
    let mut lines = BufReader::new(stdout).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line())
        .await
        .context("the server says nothing")??;
    let said = line
        .as_deref()
        .and_then(|line| line.strip_prefix("listening "));
    let Some(said) = said else {
        bail!("a server ended before it listened (its reason is above)");
    };
    Ok((child, said.split(' ').map(str::to_owned).collect()))
}

fn peer(lab: &Lab, script: &str) -> Command {
    let mut command = Command::new(&lab.python);
    command
        .arg("-B")
        .arg(crate::lab::root().join("bench/peers").join(script));
    command
}

/// Runs the deploy step on a folder; the layers land in `<folder>/store`.
pub(crate) async fn deploy(lab: &Lab, repo: &Path, folder: &Path) -> anyhow::Result<Value> {
    let out = folder.join("out");
    let done = clean(&mut Command::new(lab.bin.join("ramen-worker")))
        .args([
            "deploy",
            "--progress",
            "none",
            "--group",
            "bench",
            "--python",
            &lab.python_version,
            "--code-dir",
        ])
        .arg(repo)
        .arg("--store")
        .arg(folder.join("store"))
        .arg("--out")
        .arg(&out)
        .arg("--uv")
        .arg(&lab.uv)
        .stdin(Stdio::null())
        .output()
        .await
        .context("cannot start ramen-worker deploy")?;
    if !done.status.success() {
        bail!(
            "deploy: {}\n{}",
            done.status,
            String::from_utf8_lossy(&done.stderr)
        );
    }
    let report = out.join("report.json");
    let text =
        std::fs::read(&report).with_context(|| format!("cannot read {}", report.display()))?;
    serde_json::from_slice(&text).context("report.json")
}

/// Takes away the person's own settings.
pub(crate) fn clean(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RAMEN_") {
            command.env_remove(name);
        }
    }
    command
}

/// The desired state that serves what a report says.
pub(crate) fn desired(report: &Value) -> DesiredState {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let layer = |value: &Value| {
        value.is_object().then(|| Layer {
            key: text(&value["key"]),
            digest: text(&value["digest"]),
            size: value["size"].as_u64().unwrap_or_default(),
        })
    };
    DesiredState {
        revision: text(&report["revision"]),
        code: layer(&report["code"]),
        deps: layer(&report["deps"]),
        python: text(&report["python"]),
        exclude: Vec::new(),
    }
}

/// A running `ramen-worker serve`.
pub(crate) struct Worker {
    pub(crate) pid: u32,
    pub(crate) folder: PathBuf,
    pub(crate) address: String,
    pub(crate) key: String,
    admin_key: String,
    child: Child,
}

impl Worker {
    /// Starts a worker in a folder that [`deploy`] filled, and waits until it serves.
    pub(crate) async fn start(
        lab: &Lab,
        folder: &Path,
        report: &Value,
        env: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let key = random_key("rmk_")?;
        let admin_key = random_key("")?;
        write(&folder.join("keys/key"), &key)?;
        write(&folder.join("admin-key"), &admin_key)?;
        let desired = serde_json::json!({
            "revision": report["revision"].as_str().unwrap_or("bench"), "code": report["code"], "deps": report["deps"], "python": report["python"],
            "exclude": [],
        });
        write(&folder.join("desired.json"), &desired.to_string())?;
        let temporary = folder.join("tmp");
        std::fs::create_dir_all(&temporary).context("cannot make the worker's temporary folder")?;
        let address_file = folder.join("address.json");
        let _ = std::fs::remove_file(&address_file);
        let log =
            std::fs::File::create(folder.join("worker.log")).context("cannot make worker.log")?;
        let mut command = Command::new(lab.bin.join("ramen-worker"));
        let mut child = clean(&mut command)
            .arg("serve")
            .env("RAMEN_LISTEN", "127.0.0.1:0")
            .env("RAMEN_METRICS_LISTEN", "127.0.0.1:0")
            .env("RAMEN_GROUP", "bench")
            .env("RAMEN_KEYS_DIR", folder.join("keys"))
            .env("RAMEN_ADMIN_KEY_FILE", folder.join("admin-key"))
            .env("RAMEN_STORE", folder.join("store"))
            .env("RAMEN_CACHE_DIR", folder.join("cache"))
            .env("RAMEN_DESIRED", folder.join("desired.json"))
            .env("RAMEN_ADDRESS_FILE", &address_file)
            .env("RAMEN_LOG", "info")
            .env(
                "RAMEN_SECRET_BENCH__TOKEN",
                "a-secret-that-is-looked-for-in-every-answer",
            )
            .env("TMPDIR", &temporary)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share worker.log")?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start ramen-worker serve")?;
        let pid = child.id().context("the worker ended")?;
        let started = Instant::now();
        loop {
            if let Some(address) = read_address(&address_file, "grpc")
                && is_serving(&address).await
            {
                return Ok(Self {
                    pid,
                    folder: folder.to_path_buf(),
                    address,
                    key,
                    admin_key,
                    child,
                });
            }
            if let Some(status) = child.try_wait()? {
                let log = std::fs::read_to_string(folder.join("worker.log")).unwrap_or_default();
                bail!("the worker ended: {status}\n{log}");
            }
            if started.elapsed() > PATIENCE {
                bail!("the worker does not serve after {PATIENCE:?}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn target(&self) -> Target {
        Target::Grpc {
            address: self.address.clone(),
            key: Some(self.key.clone()),
        }
    }

    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        Client::connect(&self.address, Some(&self.key)).await
    }

    pub(crate) async fn admin(&self) -> anyhow::Result<Admin> {
        let channel = Client::connect(&self.address, None).await?.channel;
        Ok(Admin {
            inner: AdminClient::new(channel),
            key: self.admin_key.parse().context("admin key")?,
        })
    }

    /// SIGTERM, and its end is waited for.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        signal(self.pid, rustix::process::Signal::TERM)?;
        let status = tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .context("the worker does not end")??;
        if !status.success() {
            bail!(
                "the worker ended with {status}; its log is {}",
                self.folder.join("worker.log").display()
            );
        }
        Ok(())
    }
}

/// The administration of a worker.
pub(crate) struct Admin {
    inner: AdminClient<tonic::transport::Channel>,
    key: tonic::metadata::MetadataValue<tonic::metadata::Ascii>,
}

impl Admin {
    pub(crate) async fn reload(&mut self, desired: DesiredState) -> anyhow::Result<()> {
        let mut request = tonic::Request::new(ReloadRequest {
            desired: Some(desired),
        });
        request
            .metadata_mut()
            .insert("x-ramen-admin-key", self.key.clone());
        self.inner.reload(request).await.context("Reload")?;
        Ok(())
    }

    pub(crate) async fn status(&mut self) -> anyhow::Result<StatusResponse> {
        let mut request = tonic::Request::new(StatusRequest {});
        request
            .metadata_mut()
            .insert("x-ramen-admin-key", self.key.clone());
        Ok(self
            .inner
            .status(request)
            .await
            .context("Status")?
            .into_inner())
    }
}

pub(crate) fn signal(pid: u32, signal: rustix::process::Signal) -> anyhow::Result<()> {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .context("no such process id")?;
    rustix::process::kill_process(pid, signal).context("cannot send a signal")
}

pub(crate) fn random_key(prefix: &str) -> anyhow::Result<String> {
    use std::io::Read as _;
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut f| f.read_exact(&mut bytes))
        .context("no random numbers")?;
    let mut key = prefix.to_owned();
    for byte in bytes {
        let _ = write!(key, "{byte:02x}");
    }
    Ok(key)
}

/// Where a server says that it serves `what`.
pub(crate) fn read_address(file: &Path, what: &str) -> Option<String> {
    let told: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    told[what].as_str().map(str::to_owned)
}

pub(crate) async fn is_serving(address: &str) -> bool {
    let Ok(client) = Client::connect(address, None).await else {
        return false;
    };
    HealthClient::new(client.channel)
        .check(HealthCheckRequest {
            service: String::new(),
        })
        .await
        .is_ok_and(|answer| answer.into_inner().status() == ServingStatus::Serving)
}
