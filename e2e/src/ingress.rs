//! A real Ingress controller that serves the Gateway API as well: Traefik, as a process on the node.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::Context as _;
use serde_json::json;
use tokio::process::{Child, Command};

use crate::{
    namespace::Namespace,
    operator::port,
    tools::{kubectl, kubectl_with},
    wait::comes_true,
};

/// The program, and the folder of the Gateway API's own sources; `e2e/run.sh` sets both.
const PROGRAM: &str = "RAMEN_TRAEFIK";
const KINDS: &str = "RAMEN_GATEWAY_API";

/// A controller that runs. It is killed when dropped.
pub struct Ingress {
    /// Where Ingresses are served, over TLS.
    pub ingresses: u16,
    /// Where Gateways may listen.
    pub gateways: u16,
    log: PathBuf,
    _child: Child,
    _folder: tempfile::TempDir,
}

impl Ingress {
    /// The name of its `IngressClass` and of its `GatewayClass`.
    pub const CLASS: &str = "traefik";

    /// Starts one that looks at one namespace. `None` where the program cannot be had, which is said loudly.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start(namespace: &Namespace) -> anyhow::Result<Option<Self>> {
        let (Some(program), Some(kinds)) = (env::var_os(PROGRAM), env::var_os(KINDS)) else {
            ramen_skip::say(&format!(
                "its part with an Ingress: {PROGRAM} or {KINDS} is not set"
            ));
            return Ok(None);
        };
        install_kinds(&PathBuf::from(kinds).join("config/crd/standard")).await?;
        let folder = tempfile::tempdir()?;
        let log = folder.path().join("log");
        let lines = fs::File::create(&log)?;
        let (ingresses, gateways) = (port()?, port()?);
        let child = Command::new(program)
            .args(arguments(&namespace.name, ingresses, gateways))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(lines.try_clone()?)
            .stderr(lines)
            .kill_on_drop(true)
            .spawn()
            .context("starting the Ingress controller")?;
        let controller = Self {
            ingresses,
            gateways,
            log,
            _child: child,
            _folder: folder,
        };
        let listens = comes_true("the Ingress controller listens", async || {
            let reached = tokio::net::TcpStream::connect(("127.0.0.1", gateways)).await;
            Ok(reached.is_ok())
        });
        listens.await.with_context(|| controller.log())?;
        Ok(Some(controller))
    }

    /// What it said.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

fn arguments(namespace: &str, ingresses: u16, gateways: u16) -> Vec<String> {
    let class = Ingress::CLASS;
    let mut arguments = Vec::new();
    let mut set = |setting: &str, value: &dyn std::fmt::Display| {
        arguments.push(format!("--{setting}={value}"));
    };
    set("global.checkNewVersion", &false);
    set("global.sendAnonymousUsage", &false);
    set("entryPoints.ingresses.address", &format!(":{ingresses}"));
    // Else the routes of an Ingress would be served where the Gateway listens, too.
    set("entryPoints.ingresses.asDefault", &true);
    set("entryPoints.ingresses.http.tls", &true);
    set("entryPoints.gateways.address", &format!(":{gateways}"));
    set("providers.kubernetesIngress.namespaces", &namespace);
    set("providers.kubernetesIngress.ingressClass", &class);
    set("providers.kubernetesGateway.namespaces", &namespace);
    arguments
}

/// The kinds of the Gateway API as they are published, and the two classes.
async fn install_kinds(folder: &Path) -> anyhow::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // The rest of the folder are policies about installing other versions of these.
        if name.starts_with("gateway.networking.k8s.io_") && !name.contains("_vap_") {
            files.push(path.display().to_string());
        }
    }
    let mut words = vec!["apply", "--server-side", "--force-conflicts"];
    words.extend(files.iter().flat_map(|file| ["-f", file]));
    kubectl(&words).await?.good()?;
    let mut words = vec!["wait", "--for=condition=Established", "--timeout=60s"];
    words.extend(files.iter().flat_map(|file| ["-f", file]));
    kubectl(&words).await?.good()?;
    let class = |version: &str, kind: &str, field: &str, controller: &str| {
        json!({
            "apiVersion": version, "kind": kind, "metadata": { "name": Ingress::CLASS },
            "spec": { field: controller },
        })
    };
    let classes = json!({ "apiVersion": "v1", "kind": "List", "items": [
        class("networking.k8s.io/v1", "IngressClass", "controller", "traefik.io/ingress-controller"),
        class("gateway.networking.k8s.io/v1", "GatewayClass", "controllerName", "traefik.io/gateway-controller"),
    ]});
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    kubectl_with(&apply, &classes.to_string()).await?.good()?;
    Ok(())
}
