//! The charts, installed by real helm as a person would.

use std::{
    env,
    fs::File,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::{namespace::Namespace, tools::helm};

/// Addresses of Services below this one are given to nobody who does not ask for one by name.
const FIXED: std::ops::Range<u8> = 20..250;
/// Where the release with the kind lies.
const CRDS_NAMESPACE: &str = "ramen-crds";

/// The top of the repository.
pub(crate) fn top() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}

/// A chart of this repository, `ramen` or `ramen-crds`.
pub fn chart(name: &str) -> PathBuf {
    top().join("charts").join(name)
}

/// Makes sure that the kind `McpGroup` is there, by its chart and once for all tests.
///
/// # Errors
/// When helm refuses.
pub async fn crds() -> anyhow::Result<()> {
    let cluster = env::var_os("RAMEN_CLUSTER_DIR")
        .context("the kind is installed in a cluster that `cluster exec` enters")?;
    let lock = File::create(Path::new(&cluster).join("crds.lock"))?;
    // Tests are processes: whoever has the lock installs, the others find it done. It ends with the file.
    let lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await??;
    let there = helm(&["status", "ramen-crds", "-n", CRDS_NAMESPACE], None).await?;
    if !there.ok {
        install_crds(&chart("ramen-crds")).await?;
    }
    drop(lock);
    Ok(())
}

/// Installs or upgrades the chart with the kind.
///
/// # Errors
/// When helm refuses.
pub async fn install_crds(chart: &Path) -> anyhow::Result<()> {
    let chart = chart.display().to_string();
    let words = [
        "upgrade",
        "--install",
        "ramen-crds",
        &chart,
        "-n",
        CRDS_NAMESPACE,
        "--create-namespace",
        "--wait",
        // A test without helm may have applied the kind before.
        "--take-ownership",
    ];
    helm(&words, None).await?.good().map(drop)
}

/// An operator in the namespace of a test.
#[derive(Clone)]
pub struct Release {
    namespace: Namespace,
    chart: PathBuf,
    values: Value,
}

impl Release {
    /// The release's name, and that of the Deployment.
    pub const NAME: &str = "ramen";
    /// The image of workers and deploy jobs that the operator uses by itself.
    pub const WORKER: &str = "localhost/ramen-worker:dev";

    /// Installs the kind and the operator, and waits until it is ready. What the values do not say: the images of this
    /// build, no volume, fixed addresses (there is no cluster DNS), only this namespace, repositories over plain http.
    ///
    /// # Errors
    /// When helm refuses or the operator does not come up.
    pub async fn install(namespace: &Namespace, values: Value) -> anyhow::Result<Self> {
        crds().await?;
        Self::install_chart(namespace, &chart("ramen"), values).await
    }

    /// The same with another chart, such as that of an earlier commit.
    ///
    /// # Errors
    /// When helm refuses or the operator does not come up.
    pub async fn install_chart(
        namespace: &Namespace,
        chart: &Path,
        values: Value,
    ) -> anyhow::Result<Self> {
        // Two tests that begin at once begin elsewhere; who finds an address taken goes on to the next.
        let seed = namespace.name.bytes().fold(0_u32, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u32::from(byte))
        });
        let count = u32::from(FIXED.end - FIXED.start);
        for step in 0..count {
            let pick = |offset: u32| {
                let at = (seed.wrapping_add(step).wrapping_add(offset)) % count;
                format!("10.96.0.{}", u32::from(FIXED.start) + at)
            };
            let mut all = json!({
                "image": { "pullPolicy": "Never" },
                "worker": { "image": { "pullPolicy": "Never" } },
                "operator": { "allowHttp": true, "log": "info,ramen_operator=debug" },
                "persistence": { "enabled": false },
                "services": {
                    "operator": { "clusterIP": pick(0) },
                    "artifacts": { "clusterIP": pick(count / 2) },
                },
            });
            if values["gateway"]["enabled"] == true {
                all["gateway"] = json!({ "image": { "pullPolicy": "Never" } });
                all["services"]["gateway"] = json!({ "clusterIP": pick(count / 4) });
            }
            merge(&mut all, values.clone());
            let release = Self {
                namespace: namespace.clone(),
                chart: chart.to_owned(),
                values: all,
            };
            let said = release.apply(&[]).await?;
            if said.ok {
                return Ok(release);
            }
            if !said.err.contains("already allocated") {
                bail!("{}{}", said.out, said.err);
            }
            release.uninstall().await?;
        }
        bail!("every fixed address of Services is taken")
    }

    /// Upgrades to other values on top of those of now, and waits.
    ///
    /// # Errors
    /// When helm refuses or the operator does not come up.
    pub async fn upgrade(&mut self, values: Value) -> anyhow::Result<()> {
        merge(&mut self.values, values);
        self.apply(&[]).await?.good().map(drop)
    }

    /// Upgrades to another chart and other values, and waits.
    ///
    /// # Errors
    /// When helm refuses or the operator does not come up.
    pub async fn upgrade_chart(&mut self, chart: &Path, values: Value) -> anyhow::Result<()> {
        chart.clone_into(&mut self.chart);
        self.upgrade(values).await
    }

    async fn apply(&self, more: &[&str]) -> anyhow::Result<crate::tools::Said> {
        let chart = self.chart.display().to_string();
        let mut words = vec![
            "upgrade",
            "--install",
            Self::NAME,
            &chart,
            "-n",
            &self.namespace.name,
            "--values",
            "-",
            "--wait",
            "--timeout",
            "90s",
        ];
        words.extend(more);
        helm(&words, Some(&self.values)).await
    }

    /// `helm test`; gives what it printed.
    ///
    /// # Errors
    /// When a test of the chart fails.
    pub async fn test(&self) -> anyhow::Result<String> {
        let words = [
            "test",
            Self::NAME,
            "-n",
            &self.namespace.name,
            "--timeout",
            "90s",
        ];
        helm(&words, None).await?.good()
    }

    /// Takes the operator away.
    ///
    /// # Errors
    /// When helm refuses.
    pub async fn uninstall(&self) -> anyhow::Result<()> {
        let words = [
            "uninstall",
            Self::NAME,
            "-n",
            &self.namespace.name,
            "--wait",
            "--timeout",
            "90s",
        ];
        helm(&words, None).await?.good().map(drop)
    }

    /// What helm was given.
    pub fn values(&self) -> &Value {
        &self.values
    }

    /// `http://address:port` of a Service of the chart: `operator` (8080), `artifacts` (8081), `hooks` (8082).
    pub fn url(&self, service: &str, port: u16) -> String {
        let address = &self.values["services"][service]["clusterIP"];
        format!("http://{}:{port}", address.as_str().unwrap_or_default())
    }
}

/// Puts the second on top of the first, key by key.
pub fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_merged_key_by_key() {
        let mut all = json!({ "a": { "x": 1, "y": [1] }, "b": 2 });
        merge(&mut all, json!({ "a": { "y": [2, 3], "z": 4 }, "c": {} }));
        let wanted = json!({ "a": { "x": 1, "y": [2, 3], "z": 4 }, "b": 2, "c": {} });
        assert_eq!(all, wanted);
    }

    #[test]
    fn charts_are_where_helm_finds_them() {
        for name in ["ramen", "ramen-crds"] {
            assert!(chart(name).join("Chart.yaml").is_file());
        }
    }
}
