//! What groups need besides the cluster: a git host and a package index, both reachable from pods and from nothing else.

use std::{env, net::SocketAddr, path::Path};

use anyhow::Context as _;
use ramen_source::testing::{S3, SmartHttp, SmartHttpOptions};

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
