//! The gateway as a plain process, with the account that the chart gives it: where no pod runs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail};
use tokio::process::{Child, Command};

use crate::{
    http_caller::HttpCaller,
    namespace::Namespace,
    operator::{Account, binary, kubeconfig, port},
};

/// For the process to see all groups.
const LIMIT: Duration = Duration::from_mins(1);
const TICK: Duration = Duration::from_millis(50);

/// A gateway that runs. It is killed when dropped.
pub struct Gateway {
    /// `http://host:port`.
    pub url: String,
    log: PathBuf,
    child: Child,
}

impl Gateway {
    /// Starts one in the namespace of the account, for the groups of another, and waits until it has seen all of them. It
    /// asks the API server at this address ([`Account::server`], or that of a proxy before it); its kubeconfig and its log
    /// lie in `dir`.
    ///
    /// # Errors
    /// When it ends, or is not ready within a minute.
    pub async fn start(
        account: &Account,
        server: &str,
        groups: &Namespace,
        dir: &Path,
    ) -> anyhow::Result<Self> {
        let mut gateway = Self::begin(account, server, groups, dir)?;
        gateway.ready().await?;
        Ok(gateway)
    }

    /// The same without waiting for anything.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn begin(
        account: &Account,
        server: &str,
        groups: &Namespace,
        dir: &Path,
    ) -> anyhow::Result<Self> {
        fs::create_dir_all(dir)?;
        let port = port()?;
        let config = dir.join(format!("kubeconfig-gateway-{port}"));
        fs::write(&config, kubeconfig(account, server).to_string())?;
        let log = dir.join(format!("gateway-{port}.log"));
        let lines = fs::File::create(&log)?;
        let child = Command::new(binary("ramen-gateway")?)
            .env("KUBECONFIG", &config)
            .env("RAMEN_GATEWAY_LISTEN", format!("127.0.0.1:{port}"))
            .env("RAMEN_GATEWAY_DISCOVERY", "kube")
            .env("RAMEN_GATEWAY_NAMESPACE", &account.namespace)
            .env("RAMEN_GATEWAY_NAMESPACES", &groups.name)
            .env("RAMEN_LOG", "info,ramen_gateway=debug")
            .stdin(Stdio::null())
            .stdout(lines.try_clone()?)
            .stderr(lines)
            .kill_on_drop(true)
            .spawn()
            .context("starting ramen-gateway")?;
        Ok(Self {
            url: format!("http://127.0.0.1:{port}"),
            log,
            child,
        })
    }

    /// Waits until it has seen all groups.
    ///
    /// # Errors
    /// When it ends, or is not ready within a minute.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        let end = tokio::time::Instant::now() + LIMIT;
        while self.page("/readyz").await != Some(200) {
            if let Some(status) = self.child.try_wait()? {
                bail!("the gateway ended: {status}\n{}", self.log());
            }
            if tokio::time::Instant::now() > end {
                bail!("the gateway is not ready after {LIMIT:?}\n{}", self.log());
            }
            tokio::time::sleep(TICK).await;
        }
        Ok(())
    }

    /// The status of a page; `None` when nobody listens.
    pub async fn page(&self, path: &str) -> Option<u16> {
        let url = format!("{}{path}", self.url);
        let answer = crate::http::request("GET", &url, &[], b"").await;
        answer.ok().map(|answer| answer.status)
    }

    /// A caller of a group.
    pub fn caller(&self, namespace: &str, group: &str, key: &str) -> HttpCaller {
        HttpCaller::new(&self.url, namespace, group, key)
    }

    /// The process id.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// What it said.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}
