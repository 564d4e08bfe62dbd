//! `cargo xtask hosts`: one ramen-host per CPython found.

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build with optimisations
    #[arg(long)]
    release: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let _ = args.release;
    anyhow::bail!("not written yet")
}
