//! Images of the running cluster.

use std::{env, path::Path, process::Command};

use anyhow::{Context as _, ensure};

/// Gives an image of the cluster another name besides, as if it were another image.
///
/// # Errors
/// When the test does not run in a cluster of `e2e/cluster`.
pub fn name_image(image: &str, other: &str) -> anyhow::Result<()> {
    let cluster = env::var_os("RAMEN_CLUSTER_DIR")
        .context("images are named in a cluster that `cluster exec` enters")?;
    let socket = Path::new(&cluster).join("containerd/containerd.sock");
    let output = Command::new("ctr")
        .arg("--address")
        .arg(socket)
        .args([
            "--namespace",
            "k8s.io",
            "images",
            "tag",
            "--force",
            image,
            other,
        ])
        .output()?;
    ensure!(
        output.status.success(),
        "naming {image} {other}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
