//! Where the benchmark runs: its options, its folders, its group repo.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;

#[derive(Args)]
pub(crate) struct Options {
    /// Interleaved rounds of each measure of speed
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each load
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Only these measures, by id, separated by commas
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Few short rounds, to see that everything runs; the figures mean nothing
    #[arg(long)]
    quick: bool,
    /// Folder of the JSON that is written
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// Folder of the programs and the hosts [default: the one of this program]
    #[arg(long)]
    bin_dir: Option<PathBuf>,
    /// Python of the peers; the hosts run the same version
    #[arg(long, env = "RAMEN_TEST_PYTHON")]
    python: PathBuf,
    /// uv of the deploy step
    #[arg(long, env = "RAMEN_UV")]
    uv: PathBuf,
    /// Python with mcp-contextforge-gateway, for the measure of that peer
    #[arg(long, env = "RAMEN_BENCH_CONTEXTFORGE", value_name = "PYTHON")]
    contextforge: Option<PathBuf>,
}

pub(crate) struct Lab {
    pub(crate) rounds: usize,
    pub(crate) load: Duration,
    pub(crate) quick: bool,
    pub(crate) out: PathBuf,
    pub(crate) bin: PathBuf,
    pub(crate) python: PathBuf,
    /// "3.11": of the hosts, so that both sides run the same.
    pub(crate) python_version: String,
    pub(crate) uv: PathBuf,
    pub(crate) contextforge: Option<PathBuf>,
    only: Vec<String>,
    folder: tempfile::TempDir,
}

impl Lab {
    /// A lab with these programs of ours.
    pub(crate) fn new(options: Options, programs: &[&str]) -> anyhow::Result<Self> {
        let this = std::env::current_exe().context("cannot find this program")?;
        let beside = this.parent().map(Path::to_path_buf).unwrap_or_default();
        let bin = options.bin_dir.unwrap_or(beside);
        for program in programs {
            if !bin.join(program).exists() {
                bail!(
                    "{program} is not in {}: run `make release` first",
                    bin.display()
                );
            }
        }
        let version = said(
            &options.python,
            &["-c", "import platform; print(platform.python_version())"],
        )?;
        let python_version: String = version.split('.').take(2).collect::<Vec<_>>().join(".");
        let host = bin.join(format!("ramen-host-{python_version}"));
        let described: serde_json::Value = serde_json::from_str(&said(&host, &["--describe"])?)
            .context("what a host says of itself")?;
        if described["version"] != version.as_str() {
            bail!(
                "the peers run Python {version}, the host {}: run `make bench`, which builds it",
                described["version"]
            );
        }
        Ok(Self {
            rounds: if options.quick {
                1
            } else {
                options.rounds.max(1)
            },
            load: Duration::from_secs_f64(if options.quick { 0.3 } else { options.seconds }),
            quick: options.quick,
            out: root().join(options.out),
            bin,
            python: options.python,
            python_version,
            uv: options.uv,
            contextforge: options.contextforge,
            only: options.only,
            folder: tempfile::tempdir().context("cannot make a temporary folder")?,
        })
    }

    /// Whether one of these measures is asked for.
    pub(crate) fn wants(&self, ids: &[&str]) -> bool {
        self.only.is_empty() || self.only.iter().any(|id| ids.contains(&id.as_str()))
    }

    /// A full run: every measure, at full length.
    pub(crate) fn is_full(&self) -> bool {
        self.only.is_empty() && !self.quick
    }

    /// `full`, or fewer in a quick run.
    pub(crate) fn times(&self, full: usize) -> usize {
        if self.quick {
            full.div_ceil(10).min(3)
        } else {
            full
        }
    }

    /// A new folder of this run.
    pub(crate) fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let folder = self.folder.path().join(name);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder)
    }

    /// A group repo: the demo group's calculator, and tools that burn time.
    pub(crate) fn group(&self, name: &str) -> anyhow::Result<PathBuf> {
        let repo = self.folder(name)?;
        copy(&root().join("examples/demo-group/mcp"), &repo.join("mcp"))?;
        tool(&repo, "spin", "milliseconds", SPIN)?;
        tool(&repo, "pause", "milliseconds", PAUSE)?;
        answer(&repo, 1)?;
        Ok(repo)
    }
}

/// What a program prints.
fn said(program: &Path, args: &[&str]) -> anyhow::Result<String> {
    let output = std::process::Command::new(program)
        .args(args)
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Python CPU time, not wall time: with a busy machine the call takes longer, it does not do less.
const SPIN: &str = "import time\n\n\ndef spin(milliseconds):\n    end = time.thread_time() + milliseconds / 1000\n    \
count = 0\n    while time.thread_time() < end:\n        count += 1\n    return 'spun'\n";
const PAUSE: &str = "import time\n\n\ndef pause(milliseconds):\n    time.sleep(milliseconds / 1000)\n    return 'rested'\n";

fn tool(repo: &Path, name: &str, parameter: &str, code: &str) -> anyhow::Result<()> {
    let descriptor = serde_json::json!({
        "type": "tool", "name": name, "description": format!("{name} for the benchmark"), "callable": name,
        "input": {parameter: {"type": "number"}},
    });
    let folder = repo.join("mcp/tools").join(name);
    write(
        &folder.join(format!("{name}.json")),
        &descriptor.to_string(),
    )?;
    write(&folder.join(format!("{name}.py")), code)
}

/// (Re)writes the tool `answer`, which tells the version of the code.
pub(crate) fn answer(repo: &Path, version: usize) -> anyhow::Result<()> {
    let folder = repo.join("mcp/tools/answer");
    let descriptor = r#"{"type":"tool","name":"answer","description":"tells the version","callable":"answer","input":{}}"#;
    write(&folder.join("answer.json"), descriptor)?;
    write(
        &folder.join("answer.py"),
        &format!("def answer():\n    return 'version {version}.'\n"),
    )
}

pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in
        std::fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))?
    {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)
                .with_context(|| format!("cannot copy to {}", target.display()))?;
        }
    }
    Ok(())
}

/// The top folder of the checkout.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map(Path::to_path_buf).unwrap_or_default()
}
