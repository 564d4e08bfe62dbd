//! What groups need besides the cluster, reachable from pods and from nothing else: a git host, a package index, an MCP
//! server of others.

use std::{env, net::SocketAddr, path::Path, process::Stdio};

use anyhow::Context as _;
use ramen_source::testing::{S3, SmartHttp, SmartHttpOptions};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::{namespace::Namespace, probe::Probe};

/// The node's address inside the cluster's namespaces: pods reach there what a test serves.
pub(crate) const NODE: [u8; 4] = [10, 0, 0, 1];

/// Serves the bare repositories below a folder over smart HTTP, with logins, TLS or faults as the options say, at an
/// address that pods reach. The test must run inside the cluster's namespaces (`cluster exec`, as `make e2e` does).
///
/// # Errors
/// When the test runs outside.
pub fn git_server(root: &Path, mut options: SmartHttpOptions) -> anyhow::Result<SmartHttp> {
    options.listen = Some(SocketAddr::from((NODE, 0)));
    SmartHttp::start(root, options).with_context(|| {
        let inside = env::var_os("RAMEN_CLUSTER").is_some();
        let hint = if inside {
            ""
        } else {
            " (run the test through `cluster exec`)"
        };
        format!("serving git at the node's address{hint}")
    })
}

/// A server of S3's protocol with one bucket, at an address that pods reach.
///
/// # Errors
/// When the test does not run inside the cluster.
pub async fn s3() -> anyhow::Result<S3> {
    let server = S3::start(SocketAddr::from((NODE, 0))).await;
    server.context("serving a bucket at the node's address (run the test through `cluster exec`)")
}

/// A package index in a pod of its own, so that egress to it can be allowed, refused and cut off.
pub struct PackageIndex {
    /// For `PIP_INDEX_URL`.
    pub url: String,
    /// The pod's address.
    pub address: String,
}

impl PackageIndex {
    /// The port it listens on.
    pub const PORT: u16 = 8000;
    /// The pod's name, and the value of its label `app`.
    pub const NAME: &str = "package-index";

    /// Starts one with these packages: name, version, source of the one module.
    ///
    /// # Errors
    /// When the pod is not ready within a minute.
    pub async fn start(
        namespace: &Namespace,
        packages: &[(&str, &str, &str)],
    ) -> anyhow::Result<Self> {
        // A JSON list of lists of strings is a Python one, too.
        let packages = serde_json::to_string(packages)?;
        let script = format!("PACKAGES = {packages}\n{}", include_str!("index.py"));
        let address = Probe::new(Self::NAME, &script)
            .listens(Self::PORT)
            .start(namespace)
            .await?;
        let url = format!("http://{address}:{}/simple/", Self::PORT);
        Ok(Self { url, address })
    }
}

/// A server of the official Python SDK that we did not write, at an address that pods reach. It has the tool `days_until`,
/// wants a token, and is killed when dropped.
pub struct McpServer {
    /// Its endpoint.
    pub url: String,
    child: Child,
}

impl McpServer {
    /// Where pods reach it.
    pub const ADDRESS: std::net::Ipv4Addr =
        std::net::Ipv4Addr::new(NODE[0], NODE[1], NODE[2], NODE[3]);

    /// Starts one for those with this token, and waits until it listens.
    ///
    /// # Errors
    /// When there is no Python with the SDK, or the test runs outside of the cluster.
    pub async fn start(token: &str, port: u16) -> anyhow::Result<Self> {
        let python = env::var_os("RAMEN_TEST_PYTHON");
        let python = python.context("RAMEN_TEST_PYTHON names no Python with the official SDK")?;
        let mut child = Command::new(python)
            .args(["-c", include_str!("clock.py")])
            .args([Self::ADDRESS.to_string(), port.to_string()])
            .env("TOKEN", token)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting a server of the official SDK")?;
        let mut said = BufReader::new(child.stdout.take().context("a pipe was asked for")?);
        let mut url = String::new();
        said.read_line(&mut url).await?;
        let url = url.trim().to_owned();
        anyhow::ensure!(url.starts_with("http://"), "the server ended: {url:?}");
        Ok(Self { url, child })
    }

    /// Ends it at once.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }
}
