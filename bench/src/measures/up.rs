//! `ramen up` on a git repo: the seconds from the start of `git push` to the first answer of the new code. The repo's
//! post-receive hook tells `ramen up` to look; everything between is as in the demo.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::grpc::Client;
use crate::lab::{Lab, answer, root, write};
use crate::report::Findings;
use crate::servers::{clean, is_serving, read_address, signal};

/// Small wheels without requirements of their own: `(requirement, module)`.
const WHEELS: &[(&str, &str)] = &[
    ("idna==3.20", "idna"),
    ("packaging==26.4", "packaging"),
    ("attrs==26.1.0", "attr"),
    ("pluggy==1.7.0", "pluggy"),
    ("iniconfig==2.3.1", "iniconfig"),
];
const PATIENCE: Duration = Duration::from_mins(2);

pub(super) async fn run(lab: &Lab, findings: &mut Findings) -> anyhow::Result<()> {
    let mut up = Up::start(lab).await?;
    if lab.wants(&["push_s"]) {
        let mut rounds = Vec::new();
        for _ in 0..lab.times(20) {
            rounds.push(up.push(None).await?);
        }
        findings.add(
            "push_s",
            rounds,
            "from the start of git push; the hook pokes ramen up",
        );
    }
    if lab.wants(&["deps_s"]) {
        warm(lab).await?;
        let mut rounds = Vec::new();
        for index in 0..lab.times(WHEELS.len()) {
            rounds.push(up.push(Some(&WHEELS[..=index])).await?);
        }
        let note = "each push adds a requirement that the cache of uv holds, and imports it";
        findings.add("deps_s", rounds, note);
    }
    up.stop().await
}

struct Up {
    child: Child,
    _server: Child,
    pid: u32,
    work: PathBuf,
    log: PathBuf,
    client: Client,
    version: usize,
}

impl Up {
    async fn start(lab: &Lab) -> anyhow::Result<Self> {
        let folder = lab.folder("up")?;
        let (bare, state) = (folder.join("repos/bench.git"), folder.join("state"));
        std::fs::create_dir_all(&bare).context("cannot make the folder of the repo")?;
        git(
            &bare,
            &["init", "--quiet", "--bare", "--initial-branch=main"],
        )
        .await?;
        let hook = bare.join("hooks/post-receive");
        let ramen = lab.bin.join("ramen");
        write(
            &hook,
            &format!(
                "#!/bin/sh\nexec '{}' poke bench --state-dir '{}'\n",
                ramen.display(),
                state.display()
            ),
        )?;
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755))
            .context("cannot mark the hook")?;
        let work = lab.group("up-work")?;
        git(&work, &["init", "--quiet", "--initial-branch=main"]).await?;
        git(
            &work,
            &["remote", "add", "origin", &bare.display().to_string()],
        )
        .await?;
        commit(&work).await?;
        push(&work).await?;
        let (server, url) = git_server(lab, &folder.join("repos")).await?;
        write(
            &folder.join("mcpgroup.yaml"),
            &group_document(&format!("{url}/bench.git"), &lab.python_version),
        )?;
        let log = folder.join("up.log");
        let out = std::fs::File::create(&log).context("cannot make up.log")?;
        let mut command = Command::new(&ramen);
        let child = clean(&mut command)
            .arg("up")
            .arg("-f")
            .arg(folder.join("mcpgroup.yaml"))
            .arg("--state-dir")
            .arg(&state)
            .args(["--output", "json"])
            .env("RAMEN_UV", &lab.uv)
            .stdin(Stdio::null())
            .stdout(out.try_clone().context("cannot share up.log")?)
            .stderr(out)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start ramen up")?;
        let pid = child.id().context("ramen up ended")?;
        let client = connect(&state.join("groups/default.bench"), &log).await?;
        Ok(Self {
            child,
            _server: server,
            pid,
            work,
            log,
            client,
            version: 1,
        })
    }

    /// Pushes a new version and waits for its first answer; the seconds that took.
    async fn push(&mut self, wheels: Option<&[(&str, &str)]>) -> anyhow::Result<f64> {
        self.version += 1;
        answer(&self.work, self.version)?;
        if let Some(wheels) = wheels {
            let (mut requirements, mut imports) = (String::new(), String::new());
            for (requirement, module) in wheels {
                let _ = writeln!(requirements, "{requirement}");
                let _ = writeln!(imports, "import {module}");
            }
            write(&self.work.join("mcp/requirements.txt"), &requirements)?;
            let code = self.work.join("mcp/tools/answer/answer.py");
            let old = std::fs::read_to_string(&code).context("answer.py")?;
            write(&code, &format!("{imports}\n\n{old}"))?;
        }
        commit(&self.work).await?;
        let wanted = format!("version {}.", self.version);
        let started = Instant::now();
        push(&self.work).await?;
        while self
            .client
            .tool("answer", &json!({}), &wanted)
            .await
            .is_err()
        {
            if started.elapsed() > PATIENCE {
                bail!(
                    "the new code does not answer after {PATIENCE:?}:\n{}",
                    tail(&self.log)
                );
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(started.elapsed().as_secs_f64())
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        signal(self.pid, rustix::process::Signal::TERM)?;
        let status = tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .context("ramen up does not end")??;
        ensure!(
            status.success(),
            "ramen up ended with {status}:\n{}",
            tail(&self.log)
        );
        Ok(())
    }
}

fn group_document(url: &str, python: &str) -> String {
    format!(
        "apiVersion: ramen.dev/v1alpha1\nkind: McpGroup\nmetadata: {{name: bench}}\nspec:\n  \
         source:\n    url: {url}\n    ref: {{branch: main}}\n    interval: 1h\n  \
         worker: {{python: \"{python}\"}}\n  network: {{allowedCIDRs: [127.0.0.0/8]}}\n"
    )
}

/// Waits until the group's worker serves.
async fn connect(group: &Path, log: &Path) -> anyhow::Result<Client> {
    let started = Instant::now();
    loop {
        if let Some(address) = read_address(&group.join("address.json"), "grpc")
            && is_serving(&address).await
        {
            let key = std::fs::read_dir(group.join("keys"))
                .context("no keys")?
                .filter_map(Result::ok)
                .find_map(|entry| std::fs::read_to_string(entry.path()).ok())
                .context("no key file")?;
            let key = key
                .lines()
                .find(|line| line.starts_with("rmk_"))
                .context("no key in the file")?;
            return Client::connect(&address, Some(key.trim())).await;
        }
        if started.elapsed() > PATIENCE {
            bail!("ramen up does not serve after {PATIENCE:?}:\n{}", tail(log));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Serves the bare repos over smart HTTP.
async fn git_server(lab: &Lab, repos: &Path) -> anyhow::Result<(Child, String)> {
    let mut child = Command::new(&lab.python)
        .arg("-B")
        .arg(root().join("demo/git_http.py"))
        .arg(repos)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start the git server")?;
    let stdout = child.stdout.take().context("no stdout")?;
    let url = BufReader::new(stdout)
        .lines()
        .next_line()
        .await?
        .context("the git server ended")?;
    Ok((child, url.trim().to_owned()))
}

async fn commit(work: &Path) -> anyhow::Result<()> {
    git(work, &["add", "--all"]).await?;
    git(work, &["commit", "--quiet", "--message", "change"]).await
}

async fn push(work: &Path) -> anyhow::Result<()> {
    git(work, &["push", "--quiet", "origin", "main"]).await
}

async fn git(folder: &Path, args: &[&str]) -> anyhow::Result<()> {
    let done = Command::new("git")
        .args(args)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .envs([
            ("GIT_AUTHOR_NAME", "bench"),
            ("GIT_AUTHOR_EMAIL", "bench@example.com"),
        ])
        .envs([
            ("GIT_COMMITTER_NAME", "bench"),
            ("GIT_COMMITTER_EMAIL", "bench@example.com"),
        ])
        .stdin(Stdio::null())
        .output()
        .await
        .context("cannot start git")?;
    // The very first push finds no `ramen up`; a hook that fails does not fail the push.
    ensure!(
        done.status.success(),
        "git {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(())
}

/// Puts the wheels into uv's cache.
async fn warm(lab: &Lab) -> anyhow::Result<()> {
    let done = Command::new(&lab.uv)
        .args([
            "pip",
            "install",
            "--quiet",
            "--only-binary",
            ":all:",
            "--target",
        ])
        .arg(lab.folder("warm")?)
        .arg("--python")
        .arg(&lab.python)
        .args(WHEELS.iter().map(|(requirement, _)| *requirement))
        .stdin(Stdio::null())
        .output()
        .await
        .context("cannot start uv")?;
    ensure!(
        done.status.success(),
        "uv: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(())
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}
