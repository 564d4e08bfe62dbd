//! Where buckets are: a server of S3's protocol in this process, and the emulator of Azure Blob Storage, which `scripts/npm.sh`
//! installs. Those of Google Cloud Storage that registries have do not speak its XML interface.

use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use super::*;

/// A place with the bucket `ramen`.
pub(super) struct Site {
    scheme: &'static str,
    variables: Vec<(String, String)>,
    _runs: Runs,
}

/// What ends with it.
enum Runs {
    Here { _server: S3 },
    Process { child: Child, _dir: TempDir },
}

impl Drop for Runs {
    fn drop(&mut self) {
        if let Self::Process { child, .. } = self {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Site {
    pub(super) async fn s3() -> Self {
        let server = s3().await;
        Self {
            scheme: "s3",
            variables: server.variables(),
            _runs: Runs::Here { _server: server },
        }
    }

    /// Azurite, which Microsoft publishes; `None`, with a word, where npm cannot be reached.
    pub(super) fn azure() -> Option<Self> {
        const KEY: &str = "dGhlIGtleSBvZiBhIHRlc3Q=";
        let npm = installed("npm.sh")?;
        let dir = tempfile::tempdir().unwrap();
        let script = project().join("e2e/foreign/node/azure.mjs");
        let mut child = Command::new(npm.join("bin/node"))
            .arg(script)
            .arg(dir.path())
            .args(["ramen", KEY, "ramen"])
            .env("NODE_PATH", npm.join("node_modules"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = first_line(child.stdout.take().unwrap());
        Some(Self {
            scheme: "az",
            variables: variables(&[
                ("AZURE_STORAGE_ACCOUNT_NAME", "ramen"),
                ("AZURE_STORAGE_ACCOUNT_KEY", KEY),
                ("AZURE_STORAGE_ENDPOINT", &said),
                ("AZURE_ALLOW_HTTP", "true"),
            ]),
            _runs: Runs::Process { child, _dir: dir },
        })
    }

    pub(super) fn open(&self, place: &str, dir: &Path) -> Store {
        let address = format!("{}://{place}", self.scheme);
        let bucket = Bucket::new(&address, self.variables.clone()).unwrap();
        Store::in_bucket(&bucket, dir).unwrap()
    }
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folder that an installer prints; `None`, with its reason, where it cannot install.
fn installed(script: &str) -> Option<PathBuf> {
    let done = Command::new(project().join("scripts").join(script))
        .output()
        .unwrap();
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr);
        let why = why.trim().lines().last().unwrap_or_default();
        println!("SKIPPED a bucket of another provider: {why}");
        return None;
    }
    Some(String::from_utf8(done.stdout).unwrap().trim().into())
}

/// What a program says first, which it does once it answers. The rest is read and dropped, so that it never waits for a reader.
fn first_line(from: impl std::io::Read + Send + 'static) -> String {
    let mut from = BufReader::new(from);
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    std::thread::spawn(move || std::io::copy(&mut from, &mut std::io::sink()));
    line.trim().to_owned()
}
