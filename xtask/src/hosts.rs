//! `cargo xtask hosts`: one `ramen-host` per CPython found on this machine, as
//! `<target>/<profile>/ramen-host-3.x`.
//!
//! Each version has a target folder of its own, so that building one never invalidates another.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::workspace::{cargo, run as run_command, target};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build with optimisations
    #[arg(long)]
    release: bool,
    /// Build for these only: a minor version such as 3.11, or the path of an interpreter
    #[arg(long, value_name = "VERSION|PATH")]
    python: Vec<String>,
    /// Print what would be built and stop
    #[arg(long)]
    list: bool,
}

/// Oldest and newest minor version that a host is built and tested for.
const MINORS: std::ops::RangeInclusive<u32> = 11..=14;

/// What an interpreter says of itself.
#[derive(Debug, Clone, Deserialize)]
struct Python {
    executable: PathBuf,
    version: (u32, u32, u32),
    shared: bool,
    optimised: bool,
    free_threaded: bool,
    implementation: String,
}

const PROBE: &str = r"
import json, sys, sysconfig
var = sysconfig.get_config_var
json.dump({
    'executable': getattr(sys, '_base_executable', None) or sys.executable,
    'version': list(sys.version_info[:3]),
    'shared': bool(var('Py_ENABLE_SHARED')),
    'optimised': '--enable-optimizations' in (var('CONFIG_ARGS') or ''),
    'free_threaded': bool(var('Py_GIL_DISABLED')),
    'implementation': sys.implementation.name,
}, sys.stdout)
";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let found = choose(args)?;
    if found.is_empty() {
        bail!(
            "no CPython 3.{}–3.{} with a shared libpython found (Debian: apt-get install python3-dev; \
             pyenv: PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install 3.13)",
            MINORS.start(),
            MINORS.end()
        );
    }
    for (minor, python) in &found {
        println!("python3.{minor}: {}", python.executable.display());
    }
    if args.list {
        return Ok(());
    }
    for (minor, python) in &found {
        let built = build(*minor, python, args.release)?;
        println!("built {}", built.display());
    }
    Ok(())
}

/// One interpreter per minor version, by the wishes on the command line or by what is there.
fn choose(args: &Args) -> anyhow::Result<BTreeMap<u32, Python>> {
    let mut found = BTreeMap::new();
    let minors = args
        .python
        .iter()
        .filter_map(|wish| minor_of(wish))
        .collect::<BTreeSet<_>>();
    for path in args.python.iter().filter(|wish| minor_of(wish).is_none()) {
        let python = probe(Path::new(path)).with_context(|| format!("{path} is no Python"))?;
        if let Some(fault) = fault(&python) {
            bail!("{path}: {fault}");
        }
        found.insert(python.version.1, python);
    }
    if !args.python.is_empty() && minors.is_empty() {
        return Ok(found);
    }
    for path in candidates() {
        let Some(python) = probe(&path) else { continue };
        if fault(&python).is_some() {
            continue;
        }
        let minor = python.version.1;
        if !minors.is_empty() && !minors.contains(&minor) {
            continue;
        }
        if found
            .get(&minor)
            .is_none_or(|best| rank(best) < rank(&python))
        {
            found.insert(minor, python);
        }
    }
    for minor in minors {
        if !found.contains_key(&minor) {
            bail!("no CPython 3.{minor} with a shared libpython found");
        }
    }
    Ok(found)
}

/// The system's own build first (distributions optimise theirs), then an optimised one, then
/// the newest patch release.
fn rank(python: &Python) -> (bool, bool, u32) {
    (
        python.executable.starts_with("/usr/bin"),
        python.optimised,
        python.version.2,
    )
}

fn fault(python: &Python) -> Option<String> {
    let (major, minor, _) = python.version;
    if python.implementation != "cpython" || major != 3 || !MINORS.contains(&minor) {
        Some(format!(
            "{} {major}.{minor} is not supported (CPython 3.{}–3.{} are)",
            python.implementation,
            MINORS.start(),
            MINORS.end()
        ))
    } else if python.free_threaded {
        Some("free-threaded builds are not supported yet".to_owned())
    } else if python.shared {
        None
    } else {
        Some("it has no shared libpython (built without --enable-shared)".to_owned())
    }
}

fn minor_of(wish: &str) -> Option<u32> {
    wish.strip_prefix("3.")?.parse().ok()
}

/// Every place where an interpreter may be, without duplicates.
fn candidates() -> Vec<PathBuf> {
    let mut names = MINORS
        .map(|minor| format!("python3.{minor}"))
        .collect::<Vec<_>>();
    names.push("python3".to_owned());
    let mut folders = vec![PathBuf::from("/usr/bin"), PathBuf::from("/usr/local/bin")];
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let pyenv = env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| env::home_dir().map(|home| home.join(".pyenv")));
    if let Some(versions) = pyenv.and_then(|root| fs::read_dir(root.join("versions")).ok()) {
        folders.extend(versions.flatten().map(|entry| entry.path().join("bin")));
    }
    let mut seen = BTreeSet::new();
    folders
        .iter()
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)))
        .filter(|path| path.is_file())
        .filter(|path| seen.insert(fs::canonicalize(path).unwrap_or_else(|_| path.clone())))
        .collect()
}

fn probe(path: &Path) -> Option<Python> {
    let output = Command::new(path)
        .args(["-I", "-S", "-c", PROBE])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    serde_json::from_slice(&output.stdout).ok()
}

fn build(minor: u32, python: &Python, release: bool) -> anyhow::Result<PathBuf> {
    let folder = target().join("hosts").join(format!("3.{minor}"));
    let profile = if release { "release" } else { "debug" };
    let mut command = cargo([
        "build",
        "--quiet",
        "--package",
        "ramen-host",
        "--bin",
        "ramen-host",
    ]);
    command
        .arg("--target-dir")
        .arg(&folder)
        .env("PYO3_PYTHON", &python.executable);
    // A cross-compile setting of the outer build must not leak in.
    command
        .env_remove("PYO3_CONFIG_FILE")
        .env_remove("PYTHONHOME")
        .env_remove("PYTHONPATH");
    if release {
        command.arg("--release");
    }
    run_command(&mut command)?;
    let name = format!("ramen-host-3.{minor}");
    let to = target().join(profile);
    fs::create_dir_all(&to).with_context(|| format!("cannot create {}", to.display()))?;
    // Beside, then renamed: a host that runs keeps its file, and nobody sees half of one.
    let mut part = OsString::from(format!(".{name}."));
    part.push(std::process::id().to_string());
    let part = to.join(part);
    let from = folder.join(profile).join("ramen-host");
    fs::copy(&from, &part)
        .with_context(|| format!("cannot copy {} to {}", from.display(), part.display()))?;
    let to = to.join(name);
    fs::rename(&part, &to).with_context(|| format!("cannot rename to {}", to.display()))?;
    Ok(to)
}
