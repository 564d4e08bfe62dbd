//! `cargo xtask crdgen`: the kind McpGroup as YAML, and the check that the files still agree with the types.

use anyhow::{Context as _, bail};

use crate::workspace::root;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write nothing; fail when a file differs from what the types say
    #[arg(long)]
    check: bool,
}

/// The same text for `kubectl apply -f` and for the chart.
const FILES: &[&str] = &[
    "crds/yaml/mcpgroups.ramen.dev.yaml",
    "charts/ramen-crds/files/mcpgroups.ramen.dev.yaml",
];

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let text = serde_saphyr::to_string(&ramen_crds::crd()).context("the kind cannot be written")?;
    let text = format!("# Written by `cargo xtask crdgen` from crds/src. Do not edit.\n{text}");
    for file in FILES {
        let path = root().join(file);
        if std::fs::read_to_string(&path).is_ok_and(|old| old == text) {
            continue;
        }
        if args.check {
            bail!("{file} differs from the types; run `cargo xtask crdgen` and commit");
        }
        let folder = path.parent().context("a file lies in a folder")?;
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder of {file}"))?;
        std::fs::write(&path, &text).with_context(|| format!("cannot write {file}"))?;
        println!("crdgen: wrote {file}");
    }
    Ok(())
}
