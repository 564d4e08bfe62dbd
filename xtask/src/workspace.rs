//! Where things are, and how to run a program. Shared by the commands.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail};

/// The top folder of the checkout.
pub(crate) fn root() -> PathBuf {
    // `cargo xtask` sets it at run time; the built-in value is stale when a build cache outlives the checkout.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest
        .parent()
        .map_or_else(|| manifest.clone(), Path::to_path_buf)
}

/// The target folder that cargo uses.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// `cargo` with the given arguments, in the top folder, without what the outer cargo put into the environment.
pub(crate) fn cargo<I, S>(args: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs to the end; an error when it cannot start or does not exit with 0.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = show(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// Runs to the end and gives back stdout.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let shown = show(command);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {shown}"))?;
    if !output.status.success() {
        bail!("{shown}: {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{shown}: output is not UTF-8"))
}

/// Files of the checkout that git tracks or would track, relative to the top folder, sorted.
pub(crate) fn files() -> anyhow::Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.current_dir(root()).args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let listed = output(&mut git)?;
    let mut files: Vec<PathBuf> = listed
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        .filter(|path| root().join(path).is_file())
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// Tells an error, without a backtrace whatever the environment says.
pub(crate) fn exit_code(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn show(command: &Command) -> String {
    let mut shown = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        shown.push(' ');
        shown.push_str(&arg.to_string_lossy());
    }
    shown
}

/// Builds with `cargo build` and these arguments, unless whoever calls has built everything: `make test` does, at once, and a
/// selection of its own would compile the dependencies anew, with other features.
pub(crate) fn build<const N: usize>(args: [&str; N]) -> anyhow::Result<PathBuf> {
    if std::env::var_os("RAMEN_BUILT").is_none() {
        run(cargo(["build", "--quiet"]).args(args))?;
    }
    Ok(target().join("debug"))
}

/// What an example of this crate prints. An example, so that xtask itself builds without the crates that it describes.
pub(crate) fn example(name: &str) -> anyhow::Result<String> {
    let built = build(["-p", "xtask", "--example", name])?;
    output(&mut Command::new(built.join("examples").join(name)))
}
