//! Our gateway as a process, with a file of groups.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::process::{Child, Command};

use super::{PATIENCE, clean, random_key, read_address};
use crate::api_server::{ApiServer, OWN};
use crate::lab::{Lab, write};
use crate::load::Target;

/// A group of the gateway.
pub(crate) struct Group {
    pub(crate) name: String,
    /// The gateway's key at the workers.
    pub(crate) worker_key: String,
    pub(crate) workers: Vec<String>,
}

/// A running `ramen-gateway`.
pub(crate) struct Gateway {
    pub(crate) pid: u32,
    pub(crate) address: String,
    /// What all callers use.
    pub(crate) key: String,
    _child: Child,
}

impl Gateway {
    /// Starts a gateway with these groups in a file.
    pub(crate) async fn start(
        lab: &Lab,
        folder: &Path,
        groups: &[Group],
        env: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let key = random_key("rmk_")?;
        let config = list(folder, groups, &key)?;
        let mut command = Command::new(lab.bin.join("ramen-gateway"));
        clean(&mut command)
            .arg("--config")
            .arg(config)
            .envs(env.iter().copied());
        Self::run(command, folder, key).await
    }

    /// Starts a gateway that finds its groups through an API server; they open with this key.
    pub(crate) async fn of_cluster(
        lab: &Lab,
        folder: &Path,
        server: &ApiServer,
        key: &str,
    ) -> anyhow::Result<Self> {
        let file = folder.join("kubeconfig");
        server.kubeconfig(&file)?;
        let mut command = Command::new(lab.bin.join("ramen-gateway"));
        clean(&mut command)
            .args(["--discovery", "kube", "--namespace", OWN])
            .env("KUBECONFIG", file);
        Self::run(command, folder, key.to_owned()).await
    }

    /// Waits until it listens.
    async fn run(mut command: Command, folder: &Path, key: String) -> anyhow::Result<Self> {
        let address_file = folder.join("gateway.json");
        let _ = std::fs::remove_file(&address_file);
        let log =
            std::fs::File::create(folder.join("gateway.log")).context("cannot make gateway.log")?;
        let mut child = command
            .args(["--listen", "127.0.0.1:0", "--address-file"])
            .arg(&address_file)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share gateway.log")?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start ramen-gateway")?;
        let pid = child.id().context("the gateway ended")?;
        let started = Instant::now();
        let address = loop {
            if let Some(address) = read_address(&address_file, "http") {
                break address;
            }
            if let Some(status) = child.try_wait()? {
                let log = std::fs::read_to_string(folder.join("gateway.log")).unwrap_or_default();
                bail!("the gateway ended: {status}\n{log}");
            }
            if started.elapsed() > PATIENCE {
                bail!("the gateway does not listen after {PATIENCE:?}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        Ok(Self {
            pid,
            address,
            key,
            _child: child,
        })
    }

    /// The endpoint of a group.
    pub(crate) fn target(&self, group: &str) -> Target {
        Target::Http {
            address: self.address.clone(),
            path: path(group),
            key: Some(self.key.clone()),
            session: false,
        }
    }
}

/// Where a group is.
pub(crate) fn path(group: &str) -> String {
    format!("/default/{group}/mcp")
}

/// Writes the file of groups and the keys that it names.
fn list(folder: &Path, groups: &[Group], key: &str) -> anyhow::Result<PathBuf> {
    let mut text = "groups:\n".to_owned();
    for group in groups {
        let name = &group.name;
        let keys = format!("keys/{name}");
        let own = format!("worker-keys/{name}");
        for (file, key) in [(&keys, key), (&own, group.worker_key.as_str())] {
            let file = folder.join(file);
            // Left alone when it is right: a file that changes is read again.
            if std::fs::read_to_string(&file).ok().as_deref() != Some(key) {
                write(&file, key)?;
            }
        }
        let workers: Vec<String> = group.workers.iter().map(|w| format!("'{w}'")).collect();
        let _ = writeln!(
            text,
            "- {{name: {name}, keysFile: {keys}, workerKeyFile: {own}, workers: [{}]}}",
            workers.join(", ")
        );
    }
    let file = folder.join("groups.yaml");
    let new = folder.join("groups.new");
    write(&new, &text)?;
    std::fs::rename(&new, &file).context("cannot put the file of groups in place")?;
    Ok(file)
}
