//! `cargo xtask check-deps`: heavy or dangerous libraries stay out of the crates that must not know them. `deny.toml`
//! names the only direct users of the worst; this looks at whole trees.

use anyhow::bail;

use crate::workspace::{cargo, output};

/// A crate of ours and what its tree of normal dependencies never holds.
const NEVER: &[(&str, &[&str])] = &[
    (
        "ramen-crds",
        &["tokio", "hyper", "tonic", "kube-client", "pyo3", "git2"],
    ),
    ("ramen-proto", &["kube", "pyo3", "git2", "ramen-mcp"]),
    (
        "ramen-redact",
        &["tokio", "tonic", "hyper", "kube", "pyo3", "git2"],
    ),
    (
        "ramen-mcp",
        &["tokio", "tonic", "hyper", "kube", "pyo3", "git2"],
    ),
    (
        "ramen-group",
        &["tokio", "tonic", "hyper", "kube", "pyo3", "git2"],
    ),
    (
        "ramen-rollout",
        &["tokio", "tonic", "hyper", "kube", "pyo3", "git2"],
    ),
    ("ramen-source", &["kube", "pyo3", "tonic"]),
    ("ramen-frame", &["tokio", "tonic", "kube", "pyo3", "git2"]),
    (
        "ramen-listener",
        &["tonic", "kube", "pyo3", "git2", "ramen-mcp", "ramen-redact"],
    ),
    (
        "ramen-worker",
        &["kube", "pyo3", "pyo3-ffi", "git2", "ramen-crds"],
    ),
    (
        "ramen-host",
        &["tokio", "tonic", "hyper", "kube", "git2", "ramen-redact"],
    ),
    (
        "ramen-gateway",
        &["pyo3", "pyo3-ffi", "git2", "ramen-worker", "ramen-operator"],
    ),
    ("ramen-client", &["tonic", "kube", "pyo3", "git2"]),
    ("ramen-cli", &["pyo3", "pyo3-ffi"]),
];

/// The same of packages without their default features: what a feature is there to keep out.
const NEVER_BARE: &[(&str, &[&str])] = &[
    ("ramen-cli", &["kube-client"]),
    ("ramen-gateway", &["kube", "kube-client", "ramen-crds"]),
];

pub(crate) fn run() -> anyhow::Result<()> {
    let mut faults = Vec::new();
    let bare = NEVER_BARE.iter().map(|rule| (rule, true));
    for ((package, never), bare) in NEVER.iter().map(|rule| (rule, false)).chain(bare) {
        let mut tree = cargo([
            "tree", "--quiet", "-p", package, "-e", "normal", "--prefix", "none", "--format", "{p}",
        ]);
        if bare {
            tree.arg("--no-default-features");
        }
        let tree = output(&mut tree)?;
        for name in tree.lines().filter_map(|line| line.split(' ').next()) {
            if never.contains(&name) {
                let fault = format!(
                    "{package} must not depend on {name} (why: cargo tree -p {package} -e normal -i {name})"
                );
                if !faults.contains(&fault) {
                    faults.push(fault);
                }
            }
        }
    }
    if !faults.is_empty() {
        bail!("forbidden dependencies:\n  {}", faults.join("\n  "));
    }
    Ok(())
}
