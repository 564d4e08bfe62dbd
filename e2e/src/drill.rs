//! Ends, stops and freezes components of the cluster itself.

use std::{env, process::Command};

use anyhow::{Context as _, ensure};

/// `stop`, `start`, `kill` (it comes back after a second), `freeze` or `thaw` a component: `etcd`, `kube-apiserver`,
/// `kube-controller-manager`, `kubelet`, `containerd`, … A test that does so is in a module `drills`, so that it runs
/// alone, and leaves the component running.
///
/// # Errors
/// When the test does not run in a cluster of `e2e/cluster`, or the component is not as it must be for that.
pub fn drill(order: &str, component: &str) -> anyhow::Result<()> {
    let program = env::var_os("RAMEN_CLUSTER_PROGRAM")
        .context("drills need a test that runs through `cluster exec`")?;
    let output = Command::new(program).args([order, component]).output()?;
    ensure!(
        output.status.success(),
        "{order} {component}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
