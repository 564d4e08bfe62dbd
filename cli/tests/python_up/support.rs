//! `ramen up` as a person runs it, on folders and repositories of its own, and what it says.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// A place for one test: a state directory and whatever else it writes.
pub(crate) struct Place {
    temp: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let worker = Path::new(env!("CARGO_BIN_EXE_ramen")).with_file_name("ramen-worker");
        assert!(
            worker.is_file(),
            "{} is missing: run `make build` first",
            worker.display()
        );
        Self {
            temp: tempfile::Builder::new()
                .prefix("ramen-up-")
                .tempdir()
                .unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.path(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        // By rename, as editors do: a watcher never sees half a file.
        let temp = file.with_extension("new~");
        std::fs::write(&temp, text).unwrap();
        std::fs::rename(&temp, &file).unwrap();
        file
    }

    /// A copy of the demo group under `name`.
    pub(crate) fn demo(&self, name: &str) -> PathBuf {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/demo-group");
        let to = self.path(name);
        copy(&from, &to);
        to
    }

    /// The program with no settings but those of this place.
    pub(crate) fn ramen(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ramen"));
        self.bare(&mut command);
        command.args(args).stdin(Stdio::null());
        command
    }

    fn bare(&self, command: &mut Command) {
        command
            .env_clear()
            .env("RAMEN_STATE_DIR", self.path("state"))
            .env("HOME", self.temp.path());
        for name in ["PATH", "RAMEN_UV", "LD_LIBRARY_PATH", "PYENV_ROOT"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        if std::env::var_os("RAMEN_UV").is_none()
            && let Some(home) = std::env::home_dir()
        {
            // Where `make setup` puts it.
            command.env("RAMEN_UV", home.join(".cache/ramen/venv/bin/uv"));
        }
        for (name, value) in [
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_AUTHOR_NAME", "a"),
            ("GIT_AUTHOR_EMAIL", "a@example.com"),
            ("GIT_COMMITTER_NAME", "a"),
            ("GIT_COMMITTER_EMAIL", "a@example.com"),
        ] {
            command.env(name, value);
        }
    }

    /// Runs `ramen` to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(&self.ramen(args).output().unwrap())
    }

    pub(crate) fn git(&self, dir: &Path, args: &[&str]) -> String {
        let mut command = Command::new("git");
        self.bare(&mut command);
        let ran = Ran::of(
            &command
                .arg("-C")
                .arg(dir)
                .args(args)
                .stdin(Stdio::null())
                .output()
                .unwrap(),
        );
        assert_eq!(ran.code, Some(0), "git {args:?}: {}", ran.err);
        ran.out.trim().to_owned()
    }

    pub(crate) fn up(&self, args: &[&str]) -> Up {
        self.up_with(args, &[])
    }

    pub(crate) fn up_with(&self, args: &[&str], env: &[(&str, &str)]) -> Up {
        let mut command = self.ramen(&[&["up", "--output", "json"], args].concat());
        command.envs(env.iter().copied());
        let log = std::fs::File::create(self.path("up.err")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let said = Arc::<Said>::default();
        let (stdout, into) = (child.stdout.take().unwrap(), Arc::clone(&said));
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let status: Value =
                    serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
                into.lines.lock().unwrap().push(status);
                into.changed.notify_all();
            }
        });
        Up {
            child,
            said,
            log: self.path("up.err"),
        }
    }

    /// Processes that were started for this place: its state directory is in their environment or arguments.
    pub(crate) fn processes(&self) -> Vec<String> {
        let needle = self.path("state").into_os_string().into_string().unwrap();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
                continue;
            };
            let read =
                |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let (environment, line) = (read("environ"), read("cmdline"));
            let holds = |bytes: &[u8]| bytes.windows(needle.len()).any(|w| w == needle.as_bytes());
            if holds(&environment) || holds(&line) {
                found.push(format!(
                    "{pid} {}",
                    String::from_utf8_lossy(&line).replace('\0', " ")
                ));
            }
        }
        found
    }

    /// Waits until nothing of this place runs any more.
    pub(crate) fn until_nothing_runs(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "still running: {left:?}");
            std::thread::yield_now();
        }
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            if entry.file_name() != "__pycache__" {
                copy(&entry.path(), &target);
            }
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// What a program left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }
}

#[derive(Default)]
struct Said {
    lines: Mutex<Vec<Value>>,
    changed: Condvar,
}

/// A running `ramen up`.
pub(crate) struct Up {
    pub(crate) child: Child,
    said: Arc<Said>,
    log: PathBuf,
}

impl Up {
    /// How much was said so far, for [`Self::until_after`].
    pub(crate) fn mark(&self) -> usize {
        self.said.lines.lock().unwrap().len()
    }

    /// The last state of a group, once it is as wanted.
    pub(crate) fn until(
        &mut self,
        what: &str,
        group: &str,
        test: impl Fn(&Value) -> bool,
    ) -> Value {
        self.wait(what, |lines| {
            lines
                .iter()
                .rev()
                .find(|s| s["name"] == group)
                .filter(|s| test(s))
                .cloned()
        })
    }

    /// A state that was said after a mark.
    pub(crate) fn until_after(
        &mut self,
        mark: usize,
        what: &str,
        test: impl Fn(&Value) -> bool,
    ) -> Value {
        self.wait(what, |lines| {
            lines[mark..].iter().find(|s| test(s)).cloned()
        })
    }

    /// Everything that was said.
    pub(crate) fn all(&self) -> Vec<Value> {
        self.said.lines.lock().unwrap().clone()
    }

    fn wait(&mut self, what: &str, find: impl Fn(&[Value]) -> Option<Value>) -> Value {
        let deadline = Instant::now() + PATIENCE;
        let mut lines = self.said.lines.lock().unwrap();
        loop {
            if let Some(found) = find(&lines) {
                return found;
            }
            let log = || std::fs::read_to_string(&self.log).unwrap_or_default();
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "did not happen: {what}\n{:#?}\n{}",
                lines.last(),
                log()
            );
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none(),
                "ended ({ended:?}) before: {what}\n{}",
                log()
            );
            lines = self
                .said
                .changed
                .wait_timeout(lines, left.min(Duration::from_secs(1)))
                .unwrap()
                .0;
        }
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// SIGTERM; the exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        self.signal(rustix::process::Signal::TERM);
        self.child.wait().unwrap().code()
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A bare repository and a working copy of it.
pub(crate) struct Repo {
    pub(crate) work: PathBuf,
    pub(crate) bare: PathBuf,
}

impl Place {
    /// A repository with the demo group on `main`.
    pub(crate) fn repo(&self, name: &str) -> Repo {
        let work = self.demo(&format!("{name}-work"));
        let bare = self.path(&format!("{name}.git"));
        std::fs::create_dir_all(&bare).unwrap();
        self.git(&bare, &["init", "-q", "--bare", "-b", "main"]);
        self.git(&work, &["init", "-q", "-b", "main"]);
        self.git(&work, &["remote", "add", "origin", bare.to_str().unwrap()]);
        let repo = Repo { work, bare };
        self.push(&repo);
        repo
    }

    /// Commits and pushes everything; the commit.
    pub(crate) fn push(&self, repo: &Repo) -> String {
        self.git(&repo.work, &["add", "-A"]);
        self.git(&repo.work, &["commit", "-q", "--allow-empty", "-m", "x"]);
        self.git(&repo.work, &["push", "-q", "-f", "origin", "main"]);
        self.git(&repo.work, &["rev-parse", "HEAD"])
    }
}
