//! `cargo xtask check-dirs`: the layout of docs/architecture.md. With `--crates` each crate is also checked on its own,
//! so that none builds only thanks to features that a neighbour turned on.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};

use crate::workspace::{cargo, files, root, run as run_command};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also `cargo check` each crate on its own (slow)
    #[arg(long)]
    crates: bool,
}

/// Every top-level folder is one of these; a new one is an architecture decision.
const FOLDERS: &[&str] = &[
    "images",
    "operator",
    "gateway",
    "client",
    "charts",
    ".cargo",
    ".ci",
    ".config",
    "bench",
    "changelog.d",
    "cli",
    "crds",
    "demo",
    "docs",
    "e2e",
    "examples",
    "fuzz",
    "group",
    "listener",
    "mcp",
    "proto",
    "python",
    "redact",
    "rollout",
    "scripts",
    "source",
    "tests",
    "worker",
    "xtask",
];

/// Crate names that say nothing about what is inside.
const VAGUE: &[&str] = &["common", "utils", "types", "helpers", "misc", "shared"];

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut faults = BTreeSet::new();
    for path in files()? {
        let mut parts = path
            .components()
            .map(|c| c.as_os_str().to_string_lossy().into_owned());
        let (Some(top), true) = (parts.next(), path.components().count() > 1) else {
            continue;
        };
        if !FOLDERS.contains(&top.as_str()) {
            faults.insert(format!("{top}/ is not a folder of the architecture map"));
        }
        if path.ends_with("mod.rs") && !path.starts_with("tests/fixtures") {
            faults.insert(format!(
                "{}: write foo.rs beside foo/, not foo/mod.rs",
                path.display()
            ));
        }
        if path.ends_with("Cargo.toml") {
            let folder = path
                .parent()
                .and_then(|p| p.file_name())
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if VAGUE.contains(&folder.as_str()) {
                faults.insert(format!(
                    "{}: a crate is named for what it owns",
                    path.display()
                ));
            }
            let text = std::fs::read_to_string(root().join(&path))
                .with_context(|| format!("cannot read {}", path.display()))?;
            if text.contains("[package]") && !text.contains("license") {
                faults.insert(format!("{}: no license field", path.display()));
            }
        }
    }
    if !faults.is_empty() {
        bail!(
            "layout:\n  {}",
            faults.into_iter().collect::<Vec<_>>().join("\n  ")
        );
    }
    if args.crates {
        for package in [
            "ramen-crds",
            "ramen-proto",
            "ramen-redact",
            "ramen-mcp",
            "ramen-group",
            "ramen-rollout",
            "ramen-frame",
            "ramen-worker",
            "ramen-cli",
            "xtask",
        ] {
            run_command(&mut cargo(["check", "--quiet", "-p", package]))?;
        }
        for features in ["git", "store"] {
            run_command(&mut cargo([
                "check",
                "--quiet",
                "-p",
                "ramen-source",
                "--no-default-features",
                "--features",
                features,
            ]))?;
        }
    }
    Ok(())
}
