//! `cargo xtask gen`: pages of docs/reference that are written from the code, and the check that they still agree.

mod cli;
mod env;
mod mcpgroup;
mod metrics;

use anyhow::{Context as _, bail};

use crate::workspace::{example, root};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write nothing; fail when a page differs from what the code says
    #[arg(long)]
    check: bool,
    /// Only this page (env, cli, errors, mcpgroup, metrics, operations)
    only: Option<String>,
}

type Page = fn() -> anyhow::Result<String>;
const PAGES: &[(&str, Page)] = &[
    ("env", env::page),
    ("cli", cli::page),
    // From the vocabulary of reasons in `ramen-group`.
    ("errors", || example("errors")),
    ("mcpgroup", mcpgroup::page),
    ("metrics", metrics::page),
    // From the descriptors of the gateway.
    ("operations", || example("operations")),
];

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut stale = Vec::new();
    for (name, page) in PAGES {
        if args.only.as_deref().is_some_and(|only| only != *name) {
            continue;
        }
        let shown = format!("docs/reference/{name}.md");
        let path = root().join(&shown);
        let text = page().with_context(|| format!("cannot make {shown}"))?;
        if std::fs::read_to_string(&path).is_ok_and(|old| old == text) {
            continue;
        }
        if args.check {
            stale.push(shown);
        } else {
            std::fs::write(&path, text).with_context(|| format!("cannot write {shown}"))?;
            println!("gen: wrote {shown}");
        }
    }
    if !stale.is_empty() {
        bail!(
            "generated pages differ from the code; run `make gen` and commit: {}",
            stale.join(", ")
        );
    }
    Ok(())
}
