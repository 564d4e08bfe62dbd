//! The commands of `docs/cluster`, word by word, by the shell that a person would type them into.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Secret;
use ramen_crds::McpGroup;
use ramen_e2e::{GitHost, Group, Namespace, Release, Tier, condition, gone, serving, with_temp_ns};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, ChildStdout, Command},
};

use super::greeting;

/// The `sh` blocks below a heading of a page, in order.
pub(super) fn blocks(page: &str, heading: &str) -> anyhow::Result<Vec<String>> {
    fenced(page, heading, "sh")
}

/// The blocks below a heading of a page that begin with these words, in order.
pub(super) fn fenced(page: &str, heading: &str, info: &str) -> anyhow::Result<Vec<String>> {
    let path = ramen_e2e::chart("../docs/cluster").join(page);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let (_, below) = text
        .split_once(&format!("\n## {heading}\n"))
        .with_context(|| format!("{page} has no heading {heading}"))?;
    let section = below.split("\n## ").next().unwrap_or_default();
    let mut found = Vec::new();
    for part in section.split(&format!("\n```{info}\n")).skip(1) {
        found.push(part.split("\n```").next().unwrap_or_default().to_owned());
    }
    ensure!(!found.is_empty(), "{page}, {heading}: no block {info}");
    Ok(found)
}

/// A folder with `kubectl`, `helm` and `ramen` in its `bin`, in which commands are run.
pub(super) struct Shell {
    folder: tempfile::TempDir,
    words: Vec<(String, String)>,
}

/// A `kubectl port-forward` that runs.
pub(super) struct Forwarding {
    pub(super) child: Child,
    /// Where it listens on this machine.
    pub(super) port: u16,
    /// It says more later, and would end if nobody could read it.
    _said: BufReader<ChildStdout>,
}

impl Shell {
    /// With what stands in the pages for what a reader puts in.
    pub(super) fn new(words: &[(&str, &str)]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let bin = folder.path().join("bin");
        fs::create_dir(&bin)?;
        for tool in ["kubectl", "helm"] {
            let path = bin.join(tool);
            fs::write(
                &path,
                format!("#!/bin/sh\nexec \"$RAMEN_CLUSTER_PROGRAM\" {tool} -- \"$@\"\n"),
            )?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        let programs = env::var_os("RAMEN_BIN_DIR").context("RAMEN_BIN_DIR")?;
        std::os::unix::fs::symlink(Path::new(&programs).join("ramen"), bin.join("ramen"))?;
        std::os::unix::fs::symlink(ramen_e2e::chart(""), folder.path().join("charts"))?;
        let words = words
            .iter()
            .map(|(from, to)| ((*from).to_owned(), (*to).to_owned()));
        Ok(Self {
            folder,
            words: words.collect(),
        })
    }

    /// Writes a file into its folder.
    pub(super) fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder.path().join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    /// A text of the pages with what a reader puts in.
    pub(super) fn filled(&self, commands: &str) -> String {
        let mut text = commands.to_owned();
        for (from, to) in &self.words {
            text = text.replace(from, to);
        }
        text
    }

    /// The shell with these commands, to be started.
    pub(super) fn command(&self, commands: &str) -> anyhow::Result<Command> {
        let path = env::var("PATH")?;
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", &self.filled(commands)])
            .current_dir(self.folder.path())
            .env(
                "PATH",
                format!("{}:{path}", self.folder.path().join("bin").display()),
            )
            .stdin(Stdio::null())
            .kill_on_drop(true);
        Ok(command)
    }

    /// Starts a `kubectl port-forward` that stands in a page with `&` after it; gives it once it forwards.
    pub(super) async fn forward(&self, line: &str) -> anyhow::Result<Forwarding> {
        let mut child = self
            .command(&format!("exec {}", line.trim_end_matches(" &")))?
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = BufReader::new(child.stdout.take().context("a pipe")?);
        let mut first = String::new();
        said.read_line(&mut first).await?;
        let port = first
            .strip_prefix("Forwarding from 127.0.0.1:")
            .and_then(|rest| rest.split(' ').next())
            .with_context(|| first.clone())?;
        Ok(Forwarding {
            port: port.parse()?,
            child,
            _said: said,
        })
    }

    /// Runs them; gives what they print.
    pub(super) async fn run(&self, commands: &str) -> anyhow::Result<String> {
        let output = self.command(commands)?.output().await?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let words = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{}\n{said}{words}",
            self.filled(commands)
        );
        Ok(said)
    }
}

async fn keys(namespace: &Namespace) -> anyhow::Result<Vec<String>> {
    let secret = namespace.api::<Secret>().get("library-mcp-keys").await?;
    Ok(secret.data.unwrap_or_default().into_keys().collect())
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn day_two_can_be_done_as_it_is_written() {
    with_temp_ns(Tier::T4, async |namespace| {
        Release::install(&namespace, json!({})).await?;
        let git = GitHost::http()?;
        let first = git.push(&greeting("one"))?;
        let group = Group::apply(&namespace, "library", Group::spec(&git.url(), 1)).await?;
        group.serves(&first).await?;
        let shell = Shell::new(&[
            ("-n NS", &format!("-n {}", namespace.name)),
            ("-n ramen-system", &format!("-n {}", namespace.name)),
            ("rmg G", "rmg library"),
            ("status G", "status library"),
            ("status -A", &format!("status -n {}", namespace.name)),
            ("group=G", "group=library"),
            ("G-mcp-keys", "library-mcp-keys"),
            ("<40 hex digits>", &first),
            ("secret NAME", "secret own-keys"),
            ("OLD-ENTRY", "old"),
        ])?;

        let see = blocks("day-2.md", "See")?;
        // All but the one that does not end.
        let status: Vec<&str> = see[0]
            .lines()
            .filter(|line| !line.contains("--watch"))
            .collect();
        assert_eq!(status.len(), 2, "{see:?}");
        let told = shell.run(&status.join("\n")).await?;
        assert!(told.contains("library") && told.contains(&first), "{told}");
        let seen = shell.run(&see[1]).await?;
        assert!(
            seen.contains("READY") && seen.contains("library-default-") && seen.contains("Serving"),
            "{seen}"
        );

        // Something to read: a push that is refused.
        let [descriptor, (path, _)] = greeting("two");
        git.push(&[
            descriptor,
            (path, "def greet(name):\n    return (\n".to_owned()),
        ])?;
        let stuck = blocks("day-2.md", "A stuck group")?;
        shell.run(&stuck[0]).await?;
        let refused = condition::<McpGroup>("Deployed", "False");
        group.until(|group| refused(Some(group))).await?;
        let errors = blocks("day-2.md", "Read errors")?;
        let listed = shell.run(&errors[0]).await?;
        assert!(
            listed.starts_with("ImportFailed\ttools/greet\t"),
            "{listed}"
        );
        assert!(shell.run(&errors[1]).await?.contains("SyntaxError"));

        let back = blocks("day-2.md", "Roll back")?;
        shell.run(&back[0]).await?;
        let served = group.serves(&first).await?;
        assert!(serving(&served).ends_with(&first));

        let rotate = blocks("day-2.md", "Rotate keys")?;
        namespace
            .apply::<Secret>("own-keys", json!({ "stringData": { "old": "rmk_old" } }))
            .await?;
        shell.run(&rotate[0]).await?;
        let own = namespace
            .api::<Secret>()
            .get("own-keys")
            .await?
            .data
            .unwrap_or_default();
        assert!(own.len() == 1 && !own.contains_key("old"));
        for step in &rotate[1..] {
            let key = group.key().await?;
            shell.run(step).await?;
            namespace
                .until::<Secret>("library-mcp-keys", |secret: Option<&Secret>| {
                    let data = secret.and_then(|secret| secret.data.as_ref());
                    data.and_then(|data| data.get("key"))
                        .is_some_and(|made| made.0 != key.as_bytes())
                })
                .await?;
        }
        assert!(keys(&namespace).await?.contains(&"next".to_owned()));
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn installing_calling_upgrading_and_uninstalling_go_as_they_are_written() {
    with_temp_ns(Tier::T4, async |namespace| {
        let release = Release::install(&namespace, json!({})).await?;
        let git = GitHost::https("ci", "a password of git")?;
        let commit = git.push(&greeting("one"))?;
        let shell = Shell::new(&[
            ("ramen-system", &namespace.name),
            ("-n team-a", &format!("-n {}", namespace.name)),
            (
                "namespace: team-a",
                &format!("namespace: {}", namespace.name),
            ),
            ("https://git.example.com/team-a/library.git", &git.url()),
            (
                "\"$TOKEN\"",
                "'a password of git' --from-literal=ca.crt=\"$(cat ca.crt)\"",
            ),
            (" -w", ""),
            // The kind is shared by all tests, and so is the release that brings it.
            (
                "install ramen-crds charts/ramen-crds --namespace",
                "list --namespace",
            ),
            (
                "upgrade ramen-crds charts/ramen-crds --namespace",
                "list --namespace",
            ),
            (" --create-namespace", ""),
            ("uninstall ramen-crds --namespace", "list --namespace"),
            (
                "delete crd mcpgroups.ramen.dev",
                "get crd mcpgroups.ramen.dev",
            ),
            (
                "--all --all-namespaces",
                &format!("--all -n {}", namespace.name),
            ),
        ])?;
        // The page installs with these values under the name that it then upgrades.
        shell.write("values.yaml", &release.values().to_string())?;
        shell.write("ca.crt", git.authority().unwrap_or_default())?;
        release.uninstall().await?;
        for block in blocks("install.md", "Install")? {
            let said = shell.run(&block).await?;
            assert!(said.contains("Phase:          Succeeded"), "{said}");
        }

        let page = fs::read_to_string(ramen_e2e::chart("../docs/cluster/install.md"))?;
        let group = page
            .split("```yaml file=group.yaml\n")
            .nth(1)
            .and_then(|rest| rest.split("\n```").next());
        shell.write(
            "group.yaml",
            &shell.filled(group.context("install.md shows no group")?),
        )?;
        let first = blocks("install.md", "The first group")?;
        shell.run(&first[0]).await?;
        let group = Group {
            namespace: namespace.clone(),
            name: "library".to_owned(),
        };
        // The page's host has a certificate that everybody trusts.
        group
            .patch(json!({ "source": { "caSecretRef": { "name": "library-git" } } }))
            .await?;
        group.serves(&commit).await?;

        let call = blocks("install.md", "Call it")?;
        let (forward, ask) = call[0].rsplit_once('\n').context("three lines")?;
        let (key, forward) = forward.split_once('\n').context("three lines")?;
        shell.run(key).await?;
        let mut forwarding = shell.forward(forward).await?;
        let listed = shell.run(ask).await?;
        assert!(listed.contains("greet"), "{listed}");
        forwarding.child.kill().await?;

        for page in ["Upgrade", "Back"] {
            // The first block of upgrade.md stands below the title.
            let commands = if page == "Upgrade" {
                let text = fs::read_to_string(ramen_e2e::chart("../docs/cluster/upgrade.md"))?;
                let first = text
                    .split("```sh\n")
                    .nth(1)
                    .and_then(|rest| rest.split("\n```").next());
                vec![first.context("upgrade.md shows no commands")?.to_owned()]
            } else {
                blocks("upgrade.md", page)?
            };
            for block in commands {
                shell.run(&block).await?;
            }
        }

        for block in blocks("install.md", "Uninstall")? {
            shell.run(&block).await?;
        }
        namespace.until::<McpGroup>("library", gone).await?;
        Ok(())
    })
    .await;
}
