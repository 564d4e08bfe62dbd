//! A group in a temporary folder, and runs of `ramen-worker deploy` on it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ramen_group::{Finding, Outcome, Reason, Report};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::pythons::wanted;

/// A group repo with a store, an output folder and a folder of wheels.
pub(crate) struct Kit {
    dir: TempDir,
    /// The Python to deploy for.
    pub(crate) python: String,
    /// Passed to the program, over a nearly empty environment.
    pub(crate) env: Vec<(String, String)>,
    /// Further arguments.
    pub(crate) args: Vec<String>,
}

/// One run.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) report: Report,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The folder of the programs.
pub(crate) fn bin_dir() -> PathBuf {
    let own = Path::new(env!("CARGO_BIN_EXE_ramen-worker"))
        .parent()
        .unwrap();
    std::env::var_os("RAMEN_BIN_DIR").map_or_else(|| own.to_owned(), PathBuf::from)
}

/// The `uv` to test with.
pub(crate) fn uv() -> PathBuf {
    if let Some(uv) = std::env::var_os("RAMEN_UV") {
        return uv.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join("uv"))
        .chain([home.join(".cache/ramen/venv/bin/uv")])
        .find(|file| file.is_file())
        .expect("uv: run `make setup`, or set RAMEN_UV")
}

/// Runs a test with each Python that is to be tested.
pub(crate) fn each_python(test: impl Fn(&str)) {
    for python in wanted(&bin_dir()) {
        println!("with Python {python}");
        test(&python);
    }
}

/// Processes that work below this folder.
pub(crate) fn at_work(dir: &Path) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let cwds = entries.filter_map(|entry| std::fs::read_link(entry.path().join("cwd")).ok());
    cwds.filter(|cwd| cwd.starts_with(dir)).count()
}

impl Kit {
    /// An empty group whose packages come from [`Self::wheels`] alone.
    pub(crate) fn new() -> Self {
        Self::on("3.11")
    }

    /// One that is deployed for this Python.
    pub(crate) fn on(python: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["repo/mcp", "wheels", "home"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let wheels = dir.path().join("wheels").display().to_string();
        let mut kit = Self {
            dir,
            python: python.to_owned(),
            env: Vec::new(),
            args: Vec::new(),
        };
        kit.set("PIP_NO_INDEX", "1");
        kit.set("PIP_FIND_LINKS", &wheels);
        kit.set("PIP_CONFIG_FILE", "/dev/null");
        kit.set("UV_HTTP_RETRIES", "0");
        kit
    }

    /// A group with one tool that answers `"pong"` and nothing else.
    pub(crate) fn with_tool() -> Self {
        let kit = Self::new();
        kit.tool("ping", "def ping():\n    return 'pong'\n", &json!({}));
        kit
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.unset(name);
        self.env.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn unset(&mut self, name: &str) {
        self.env.retain(|(known, _)| known != name);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn wheels(&self) -> PathBuf {
        self.path("wheels")
    }

    /// Writes a file under `mcp/`.
    pub(crate) fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path("repo/mcp").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn requirements(&self, text: &str) {
        self.write("requirements.txt", text);
    }

    /// Writes a tool whose callable has the tool's name with `_` for `-`.
    pub(crate) fn tool(&self, name: &str, code: &str, input: &Value) {
        self.write(&format!("tools/{name}/{name}.py"), code);
        let descriptor = json!({
            "type": "tool", "name": name, "description": "A tool.",
            "callable": name.replace('-', "_"), "input": input,
        });
        self.write(&format!("tools/{name}/{name}.json"), descriptor.to_string());
    }

    /// Writes golden calls: `(tool, args, expect)`.
    pub(crate) fn golden(&self, cases: &[(&str, Value, Value)]) {
        let cases: Vec<Value> = cases
            .iter()
            .enumerate()
            .map(|(number, (tool, args, expect))| {
                json!({"name": format!("case {number}"), "tool": tool, "args": args, "expect": expect})
            })
            .collect();
        // JSON is YAML.
        self.write("tests.yaml", json!({"cases": cases}).to_string());
    }

    pub(crate) fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ramen-worker"));
        command
            .arg("deploy")
            .arg("--code-dir")
            .arg(self.path("repo"))
            .arg("--store")
            .arg(self.path("store"))
            .arg("--out")
            .arg(self.path("out"))
            .arg("--host-dir")
            .arg(bin_dir())
            .args(["--python", &self.python, "--timeout", "120", "--group", "g"])
            .args(&self.args)
            .args(more)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path("home"))
            .env("UV_CACHE_DIR", self.path("uv-cache"))
            .env("RAMEN_UV", uv())
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn deploy(&self) -> Ran {
        self.deploy_with(&[])
    }

    pub(crate) fn deploy_with(&self, more: &[&str]) -> Ran {
        let _ = std::fs::remove_file(self.path("out/report.json"));
        let output = self.command(more).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        let report = std::fs::read(self.path("out/report.json"));
        let report = report.unwrap_or_else(|error| panic!("no report ({error}): {stderr}"));
        let report: Report = serde_json::from_slice(&report).unwrap();
        let code = output
            .status
            .code()
            .unwrap_or_else(|| panic!("{:?}: {stderr}", output.status));
        Ran {
            code,
            report,
            stdout,
            stderr,
        }
    }

    /// Entries of the store of one kind (`code`, `deps`).
    pub(crate) fn layers(&self, kind: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("store").join(kind));
        let mut names: Vec<String> = entries
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Ran {
    /// Asserts that all is well.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        let report = &self.report;
        assert_eq!(
            report.outcome,
            Outcome::Ok,
            "{:#?}\n{}\n{}",
            report.errors,
            report.log,
            self.stderr
        );
        assert_eq!(self.code, 0);
        self
    }

    /// Asserts that the revision failed for one reason, and gives that entry.
    #[track_caller]
    pub(crate) fn failed(&self, reason: Reason) -> &Finding {
        let report = &self.report;
        assert_eq!(
            report.outcome,
            Outcome::Failed,
            "{:#?}\n{}",
            report.errors,
            report.log
        );
        assert_eq!(self.code, 4);
        let [finding] = &report.errors[..] else {
            panic!(
                "more or less than one entry: {:#?}\n{}",
                report.errors, report.log
            );
        };
        assert_eq!(finding.reason, reason, "{finding:?}");
        finding
    }

    /// `id reason message` of each entry of the errors list.
    pub(crate) fn errors(&self) -> Vec<String> {
        let shown = |f: &Finding| {
            format!(
                "{} {} {}",
                f.package.as_deref().unwrap_or("-"),
                f.reason,
                f.message
            )
        };
        self.report.errors.iter().map(shown).collect()
    }

    /// The entry of one package.
    #[track_caller]
    pub(crate) fn entry(&self, package: &str) -> &Finding {
        let found = self
            .report
            .errors
            .iter()
            .find(|f| f.package.as_deref() == Some(package));
        found.unwrap_or_else(|| panic!("no entry for {package}: {:#?}", self.report.errors))
    }

    /// Names of the packages that serve.
    pub(crate) fn serving(&self) -> Vec<String> {
        self.report
            .packages
            .iter()
            .filter(|p| p.ok)
            .map(|p| p.name.clone())
            .collect()
    }
}
