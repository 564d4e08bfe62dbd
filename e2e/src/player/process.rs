//! A pod's container as a process of this machine.

use std::{
    net::Ipv4Addr,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use tokio::{
    process::{Child, Command},
    sync::mpsc::UnboundedReceiver,
    time::MissedTickBehavior,
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::{Order, Stage, address, files::Files, told};
use crate::operator::signal;

/// Between two looks at a container and its files.
const TICK: Duration = Duration::from_millis(250);
/// Between the end of a container and its next start.
const RESTART: Duration = Duration::from_millis(500);
/// For a probe.
const PROBE: Duration = Duration::from_secs(3);

/// What an image has besides the container's own command.
#[derive(Debug, Clone)]
pub struct Programs {
    /// Where `ramen-worker` and the hosts are.
    dir: PathBuf,
    uv: Option<std::ffi::OsString>,
}

impl Programs {
    /// What `make build` has built.
    ///
    /// # Errors
    /// When it has not.
    pub fn built() -> anyhow::Result<Self> {
        let worker = crate::operator::binary("ramen-worker")?;
        let dir = worker.parent().context("a program without a folder")?;
        Ok(Self {
            dir: dir.to_owned(),
            uv: std::env::var_os("RAMEN_UV"),
        })
    }
}

/// Makes every address of 10.128.0.0/10 one of this machine's own.
pub(super) fn addresses() -> anyhow::Result<()> {
    ensure!(
        std::env::var_os("RAMEN_CLUSTER").is_some(),
        "pods as processes have addresses inside the cluster's namespaces only: run the test through `cluster exec`"
    );
    let done = std::process::Command::new("ip")
        .args(["route", "replace", "local", "10.128.0.0/10", "dev", "lo"])
        .output()
        .context("running ip")?;
    ensure!(
        done.status.success(),
        "giving pods addresses: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(())
}

/// Until the container has ended for good, or the pod is gone.
pub(super) async fn run(
    stage: &Stage,
    programs: &Programs,
    pod: &Pod,
    mut orders: UnboundedReceiver<Order>,
) -> anyhow::Result<()> {
    let files = Files::new(&stage.client, pod, &stage.dir)?;
    let address = address();
    let forever = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.restart_policy.as_deref())
        == Some("Always");
    let mut restarts = 0;
    while let Some(child) = begin(stage, programs, &files, address, &mut orders).await? {
        let running = told::State::Running {
            ready: false,
            restarts,
        };
        told::tell(&stage.client, pod, address, running).await?;
        let mut container = Running {
            stage,
            pod,
            files: &files,
            address,
            restarts,
            child,
        };
        let Some(status) = container.watch(&mut orders).await? else {
            container.end().await?;
            break;
        };
        if !forever {
            let code = status.code().unwrap_or(137);
            return told::tell(&stage.client, pod, address, told::State::Ended { code }).await;
        }
        restarts += 1;
        let unready = told::State::Running {
            ready: false,
            restarts,
        };
        told::tell(&stage.client, pod, address, unready).await?;
        tokio::time::sleep(RESTART).await;
    }
    files.remove();
    Ok(())
}

/// Starts the container as soon as its files and variables are there; `None` when the pod is gone before.
async fn begin(
    stage: &Stage,
    programs: &Programs,
    files: &Files,
    address: Ipv4Addr,
    orders: &mut UnboundedReceiver<Order>,
) -> anyhow::Result<Option<Child>> {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            order = orders.recv() => if order.is_none() { return Ok(None) },
            _ = ticks.tick() => {}
        }
        let ready = async {
            files.refresh().await?;
            files.env().await
        };
        // A Secret that is not there holds the container up, and nothing else.
        let Ok(env) = ready.await else { continue };
        let _turn = stage.starts.acquire().await?;
        return command(programs, files, &env, address)?
            .spawn()
            .map(Some)
            .context("starting a container");
    }
}

fn command(
    programs: &Programs,
    files: &Files,
    env: &[(String, String)],
    address: Ipv4Addr,
) -> anyhow::Result<Command> {
    let container = files.container()?;
    let program = container.command.iter().flatten().next();
    let program = program.context("a container without a command")?;
    let log = files.log()?;
    let mut command = Command::new(programs.dir.join(program));
    command
        .args(files.args()?)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("LANG", "C.UTF-8")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true);
    if let Some(uv) = &programs.uv {
        command.env("RAMEN_UV", uv);
    }
    for (name, value) in env {
        // The pod's own address: other pods listen on the same port.
        let value = match value.strip_prefix("0.0.0.0:") {
            Some(port) => format!("{address}:{port}"),
            None => value.clone(),
        };
        command.env(name, value);
    }
    Ok(command)
}

struct Running<'a> {
    stage: &'a Stage,
    pod: &'a Pod,
    files: &'a Files,
    address: Ipv4Addr,
    restarts: u32,
    child: Child,
}

impl Running<'_> {
    /// Until it ends, which gives the status, or the pod is gone. Meanwhile its files follow, and it is probed where the
    /// pod says so.
    async fn watch(
        &mut self,
        orders: &mut UnboundedReceiver<Order>,
    ) -> anyhow::Result<Option<ExitStatus>> {
        let port = probe_port(self.pod);
        let mut ready = false;
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                status = self.child.wait() => return Ok(Some(status?)),
                order = orders.recv() => match order {
                    None => return Ok(None),
                    Some(Order::Kill) => self.child.start_kill()?,
                },
                _ = ticks.tick() => {
                    // While the API server is away, a kubelet leaves everything as it is.
                    let _ = self.files.refresh().await;
                    let Some(port) = port else { continue };
                    let serves = serves(self.address, port).await;
                    if serves != ready {
                        let state = told::State::Running { ready: serves, restarts: self.restarts };
                        if told::tell(&self.stage.client, self.pod, self.address, state).await.is_ok() {
                            ready = serves;
                        }
                    }
                }
            }
        }
    }

    /// SIGTERM, then SIGKILL when the pod's time is over.
    async fn end(&mut self) -> anyhow::Result<()> {
        let spec = self.pod.spec.as_ref();
        let grace = spec.and_then(|spec| spec.termination_grace_period_seconds);
        let grace = Duration::from_secs(grace.unwrap_or(30).unsigned_abs());
        if signal(&self.child, "TERM").is_ok()
            && tokio::time::timeout(grace, self.child.wait())
                .await
                .is_err()
        {
            self.child.kill().await?;
        }
        Ok(())
    }
}

fn probe_port(pod: &Pod) -> Option<u16> {
    let container = pod.spec.as_ref()?.containers.first()?;
    let probe = container.readiness_probe.as_ref()?.grpc.as_ref()?;
    u16::try_from(probe.port).ok()
}

/// The readiness probe.
async fn serves(address: Ipv4Addr, port: u16) -> bool {
    let asked = async {
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}:{port}"));
        let channel = endpoint.ok()?.connect().await.ok()?;
        let mut client = HealthClient::new(channel);
        let request = HealthCheckRequest {
            service: String::new(),
        };
        let answer = client.check(request).await.ok()?;
        Some(answer.into_inner().status())
    };
    let answer = tokio::time::timeout(PROBE, asked).await;
    answer.is_ok_and(|status| status == Some(ServingStatus::Serving))
}
