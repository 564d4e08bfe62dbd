//! The file of the settings, read again when it changes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ramen_group::{KeyFiles, KeyPrint};

use super::Oidc;
use super::settings::{Settings, SettingsError};
use crate::metrics::Metrics;

/// How often the file is looked at. A `ConfigMap` that is mounted takes a minute to arrive anyway.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A file of settings that was read.
#[derive(Debug)]
pub struct SettingsFile {
    path: PathBuf,
    public_url: Option<String>,
    settings: Settings,
    /// How the file looked before it was read.
    seen: KeyPrint,
    /// Where a file that cannot be used is told besides the log.
    metrics: Option<Arc<Metrics>>,
}

impl SettingsFile {
    /// Reads it. Where it names no `publicUrl`, this one counts.
    pub fn read(path: PathBuf, public_url: Option<String>) -> Result<Self, SettingsError> {
        let seen = print(&path);
        Ok(Self {
            settings: Settings::read(&path, public_url.as_deref())?,
            path,
            public_url,
            seen,
            metrics: None,
        })
    }

    /// The same, and whether the file can be used is told there too.
    #[must_use]
    pub fn counted(mut self, metrics: &Arc<Metrics>) -> Self {
        metrics.unusable("oidc", false);
        self.metrics = Some(Arc::clone(metrics));
        self
    }

    /// Trusts those whom the file names, now and after each change of it. A file that cannot be used changes nothing.
    pub fn follow(self) -> Arc<Oidc> {
        let oidc = Arc::new(Oidc::new(self.settings.clone()));
        warm(&oidc);
        tokio::spawn(self.watch(Arc::downgrade(&oidc)));
        oidc
    }

    /// For as long as somebody judges tokens by it.
    async fn watch(mut self, oidc: Weak<Oidc>) {
        while let Some(oidc) = oidc.upgrade() {
            if self.look(&oidc) {
                warm(&oidc);
            }
            drop(oidc);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Whether others are trusted now.
    fn look(&mut self, oidc: &Oidc) -> bool {
        let now = print(&self.path);
        if now == self.seen {
            return false;
        }
        self.seen = now;
        let read = Settings::read(&self.path, self.public_url.as_deref());
        if let Some(metrics) = &self.metrics {
            metrics.unusable("oidc", read.is_err());
        }
        match read {
            Ok(settings) if settings == self.settings => false,
            Ok(settings) => {
                tracing::info!(issuers = settings.issuers.len(), "issuers read");
                self.settings = settings.clone();
                oidc.set(settings);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "the issuers stay as they are");
                false
            }
        }
    }
}

/// Fetches keys beside: an issuer that does not answer holds up nothing.
fn warm(oidc: &Arc<Oidc>) {
    let oidc = Arc::clone(oidc);
    tokio::spawn(async move { oidc.warm().await });
}

fn print(path: &Path) -> KeyPrint {
    let files = KeyFiles {
        dir: None,
        file: Some(path.to_owned()),
    };
    files.print()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::Groups;
    use crate::logs::Log;

    /// Replaced as editors and kubelets do it.
    fn put(path: &Path, text: &str) {
        let new = path.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    fn text(issuer: &str) -> String {
        format!("issuers: [{{issuer: 'https://{issuer}.example'}}]\n")
    }

    #[test]
    fn a_good_file_counts_at_the_next_look_and_a_bad_one_changes_nothing_and_is_told_once() {
        let (log, _guard) = Log::begin();
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("oidc.yaml");
        put(&path, &text("one"));
        let url = "https://mcp.example.com".to_owned();
        let metrics = Arc::<Metrics>::default();
        let file = SettingsFile::read(path.clone(), Some(url)).unwrap();
        let mut file = file.counted(&metrics);
        let told = |unusable: u8| {
            let line = format!(r#"ramen_gateway_unusable_files{{file="oidc"}} {unusable}"#);
            metrics.text(&Groups::default()).contains(&line)
        };
        let oidc = Oidc::new(file.settings.clone());
        let trusted = || {
            let trust = oidc.trust();
            let issuers = trust.settings.issuers.iter();
            issuers.map(|one| one.issuer.clone()).collect::<Vec<_>>()
        };
        assert!(!file.look(&oidc), "nothing changed");
        assert!(told(0), "before it happens");
        put(&path, &text("two"));
        assert!(file.look(&oidc));
        assert_eq!(trusted(), ["https://two.example"]);
        let nobody = "issuers: []\n";
        for bad in [
            "issuers: [",
            nobody,
            "issuers: [{issuer: http://far.example}]",
        ] {
            put(&path, bad);
            assert!(!file.look(&oidc) && !file.look(&oidc), "{bad}");
            assert_eq!(trusted(), ["https://two.example"], "{bad}");
            assert!(told(1), "{bad}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(!file.look(&oidc) && !file.look(&oidc));
        assert_eq!(trusted(), ["https://two.example"]);
        assert_eq!(log.count("the issuers stay as they are"), 4);
        let said = log.text();
        assert!(said.contains("issuers: must name one"), "{said}");
        assert!(told(1));
        // The same as before is no change.
        put(&path, &text("two"));
        assert!(!file.look(&oidc));
        assert!(told(0));
        put(&path, &text("three"));
        assert!(file.look(&oidc));
        assert_eq!(trusted(), ["https://three.example"]);
    }
}
