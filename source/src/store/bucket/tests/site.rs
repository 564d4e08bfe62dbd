//! Where buckets are: servers of S3's protocol and of Google Cloud Storage's dialect of it in this process, and the emulator of Azure
//! Blob Storage, which `scripts/npm.sh` installs.

use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use super::*;
use crate::testing::Gcs;

type Variables = Vec<(String, String)>;

/// A place with the bucket `ramen`.
pub(super) struct Site {
    scheme: &'static str,
    variables: Variables,
    /// Those of somebody whom the provider does not know, and what of them is secret.
    strangers: Vec<(Variables, String)>,
    _runs: Runs,
}

/// What ends with it.
enum Runs {
    S3 { _server: S3 },
    Google { _server: Gcs },
    Process { child: Child, _dir: TempDir },
}

/// The variables with one of them changed.
fn but(variables: &[(String, String)], name: &str, value: &str) -> Variables {
    let mut changed = variables.to_vec();
    changed.retain(|(known, _)| known != name);
    changed.push((name.to_owned(), value.to_owned()));
    changed
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
        let variables = server.variables();
        let wrong = "wr0ng-s3cr3t";
        let strangers = vec![
            (
                but(&variables, "AWS_SECRET_ACCESS_KEY", wrong),
                wrong.to_owned(),
            ),
            (
                but(&variables, "AWS_ACCESS_KEY_ID", "nobody"),
                S3::SECRET.to_owned(),
            ),
        ];
        Self {
            scheme: "s3",
            variables,
            strangers,
            _runs: Runs::S3 { _server: server },
        }
    }

    pub(super) async fn google() -> Self {
        let server = Gcs::start(([127, 0, 0, 1], 0).into()).await.unwrap();
        let stranger = server.variables_of_a_stranger().unwrap();
        let account: serde_json::Value = serde_json::from_str(&stranger[0].1).unwrap();
        let pem = account["private_key"].as_str().unwrap();
        let secret = pem.lines().nth(3).unwrap().to_owned();
        Self {
            scheme: "gs",
            variables: server.variables(),
            strangers: vec![(stranger, secret)],
            _runs: Runs::Google { _server: server },
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
        let variables = variables(&[
            ("AZURE_STORAGE_ACCOUNT_NAME", "ramen"),
            ("AZURE_STORAGE_ACCOUNT_KEY", KEY),
            ("AZURE_STORAGE_ENDPOINT", &said),
            ("AZURE_ALLOW_HTTP", "true"),
        ]);
        let wrong = "d3Jvbmc=";
        Some(Self {
            scheme: "az",
            strangers: vec![(
                but(&variables, "AZURE_STORAGE_ACCOUNT_KEY", wrong),
                wrong.to_owned(),
            )],
            variables,
            _runs: Runs::Process { child, _dir: dir },
        })
    }

    pub(super) fn open(&self, place: &str, dir: &Path) -> Store {
        self.open_with(self.variables.clone(), place, dir)
    }

    /// As each stranger opens it, and what must not be told.
    pub(super) fn open_as_strangers(&self, dir: &Path) -> Vec<(Store, String)> {
        let strangers = self.strangers.iter();
        strangers
            .map(|(variables, secret)| {
                let store = self.open_with(variables.clone(), "ramen/layers", dir);
                (store, secret.clone())
            })
            .collect()
    }

    fn open_with(&self, variables: Variables, place: &str, dir: &Path) -> Store {
        let address = format!("{}://{place}", self.scheme);
        let bucket = Bucket::new(&address, variables).unwrap();
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
        ramen_skip::say(&format!("no bucket of another provider: {why}"));
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
