//! A pod that runs a few lines of Python: a client or a server of a test, from inside the cluster.

use std::collections::BTreeMap;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use serde_json::{Value, json};

use crate::{namespace::Namespace, wait::finished};

/// Unless the test says otherwise: a Debian with Python 3.11, made by `e2e/cluster`.
const IMAGE: &str = "localhost/ramen-base:dev";

/// A program for a pod.
pub struct Probe<'a> {
    name: &'a str,
    script: &'a str,
    image: &'a str,
    labels: BTreeMap<&'a str, &'a str>,
    env: BTreeMap<&'a str, &'a str>,
    port: Option<u16>,
    low_ports: bool,
}

impl<'a> Probe<'a> {
    /// A pod of that name that runs that Python.
    pub fn new(name: &'a str, script: &'a str) -> Self {
        Self {
            name,
            script,
            image: IMAGE,
            labels: BTreeMap::from([("app", name)]),
            env: BTreeMap::new(),
            port: None,
            low_ports: false,
        }
    }

    /// With a label besides `app`, which is the name.
    #[must_use]
    pub fn label(mut self, key: &'a str, value: &'a str) -> Self {
        self.labels.insert(key, value);
        self
    }

    /// In another image that has Python at the same place, such as the worker's.
    #[must_use]
    pub fn image(mut self, image: &'a str) -> Self {
        self.image = image;
        self
    }

    /// With an environment variable.
    #[must_use]
    pub fn env(mut self, name: &'a str, value: &'a str) -> Self {
        self.env.insert(name, value);
        self
    }

    /// Ready only once that TCP port is open.
    #[must_use]
    pub fn listens(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Allowed to listen on ports below 1024 without being root.
    #[must_use]
    pub fn low_ports(mut self) -> Self {
        self.low_ports = true;
        self
    }

    /// What a pod or a template of pods needs: metadata with the labels, and a spec that meets the restricted standard.
    pub fn template(&self) -> Value {
        let env = self
            .env
            .iter()
            .map(|(name, value)| json!({ "name": name, "value": value }));
        let mut container = json!({
            "name": "probe",
            "image": self.image,
            "env": env.collect::<Vec<_>>(),
            "volumeMounts": [{ "name": "tmp", "mountPath": "/tmp" }],
            "imagePullPolicy": "Never",
            "command": ["/usr/bin/python3.11", "-u", "-c", self.script],
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"] },
                "readOnlyRootFilesystem": true,
            },
        });
        if let Some(port) = self.port {
            container["ports"] = json!([{ "containerPort": port }]);
            container["readinessProbe"] =
                json!({ "tcpSocket": { "port": port }, "periodSeconds": 1 });
        }
        let mut pod = json!({
            "metadata": { "labels": self.labels },
            "spec": {
                "containers": [container],
                "volumes": [{ "name": "tmp", "emptyDir": {} }],
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 0,
                "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            },
        });
        if self.low_ports {
            // One of the few that the restricted standard allows.
            pod["spec"]["securityContext"]["sysctls"] =
                json!([{ "name": "net.ipv4.ip_unprivileged_port_start", "value": "0" }]);
        }
        pod
    }

    /// Runs it to its end; gives the exit code and what it printed.
    ///
    /// # Errors
    /// When it does not end within a minute.
    pub async fn run(&self, namespace: &Namespace) -> anyhow::Result<(i32, String)> {
        let mut pod = self.template();
        pod["spec"]["restartPolicy"] = json!("Never");
        namespace.apply::<Pod>(self.name, pod).await?;
        let ended = namespace.until::<Pod>(self.name, finished).await?;
        let code = ended
            .and_then(|pod| {
                let state = pod.status?.container_statuses?.into_iter().next()?.state?;
                Some(state.terminated?.exit_code)
            })
            .context("a pod that has ended has no exit code")?;
        let log = namespace
            .api::<Pod>()
            .logs(self.name, &LogParams::default())
            .await?;
        Ok((code, log))
    }

    /// Starts it and waits until it is ready; gives its address.
    ///
    /// # Errors
    /// When it is not ready within a minute.
    pub async fn start(&self, namespace: &Namespace) -> anyhow::Result<String> {
        namespace.apply::<Pod>(self.name, self.template()).await?;
        let ready = namespace
            .until::<Pod>(self.name, crate::condition("Ready", "True"))
            .await?;
        ready
            .and_then(|pod| pod.status?.pod_ip)
            .context("a pod that is ready has no address")
    }
}
