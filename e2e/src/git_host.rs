//! A git host with one repository, at the node's address: pods reach it, and nothing outside the cluster does.

use std::{collections::BTreeMap, fs, net::IpAddr, path::Path};

use anyhow::Context as _;
use ramen_source::testing::{Authority, Login, Repo, SmartHttp, SmartHttpOptions, Sshd};
use tempfile::TempDir;

use crate::services::{NODE, git_server};

enum Server {
    Http(SmartHttp),
    Ssh(Sshd),
}

/// A host with one repository. It ends when dropped, with everything in it.
pub struct GitHost {
    /// The repository.
    pub repo: Repo,
    server: Server,
    secret: BTreeMap<&'static str, String>,
    authority: Option<String>,
    folder: TempDir,
}

const REPOSITORY: &str = "group.git";

impl GitHost {
    /// Over plain http, for anybody.
    ///
    /// # Errors
    /// When the test does not run inside the cluster.
    pub fn http() -> anyhow::Result<Self> {
        Self::start(|folder| {
            let server = git_server(folder, SmartHttpOptions::default())?;
            Ok((Server::Http(server), BTreeMap::new(), None))
        })
    }

    /// Over plain http, with faults or a login as the options say.
    ///
    /// # Errors
    /// When the test does not run inside the cluster.
    pub fn with(options: SmartHttpOptions) -> anyhow::Result<Self> {
        Self::start(|folder| {
            let server = git_server(folder, options)?;
            Ok((Server::Http(server), BTreeMap::new(), None))
        })
    }

    /// Over TLS with a certificate of an authority of its own, and basic login.
    ///
    /// # Errors
    /// When the test does not run inside the cluster.
    pub fn https(user: &str, password: &str) -> anyhow::Result<Self> {
        Self::start(|folder| {
            let keys = folder.with_extension("tls");
            let authority = Authority::create_for(&keys, &[IpAddr::from(NODE)])?;
            let certificate = fs::read_to_string(&authority.ca)?;
            let login = Login::Basic {
                user: user.to_owned(),
                password: password.to_owned(),
            };
            let options = SmartHttpOptions {
                login: Some(login),
                tls: Some(authority),
                ..SmartHttpOptions::default()
            };
            let secret = [("username", user), ("password", password)];
            let secret = secret.map(|(key, value)| (key, value.to_owned()));
            let server = Server::Http(git_server(folder, options)?);
            Ok((server, secret.into(), Some(certificate)))
        })
    }

    /// Over ssh, with one key.
    ///
    /// # Errors
    /// When there is no `sshd`, or the test does not run inside the cluster.
    pub fn ssh() -> anyhow::Result<Self> {
        Self::start(|folder| {
            let sshd = Sshd::start_at(&folder.with_extension("ssh"), IpAddr::from(NODE))
                .context("an ssh host at the node's address")?;
            let secret = BTreeMap::from([
                ("identity", sshd.key("client")?),
                (
                    "known_hosts",
                    sshd.known_hosts("host_ed25519")? + &sshd.known_hosts("host_rsa")?,
                ),
            ]);
            Ok((Server::Ssh(sshd), secret, None))
        })
    }

    fn start(
        serve: impl FnOnce(
            &Path,
        )
            -> anyhow::Result<(Server, BTreeMap<&'static str, String>, Option<String>)>,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let root = folder.path().join("served");
        fs::create_dir(&root)?;
        let repo = Repo::init(&root.join(REPOSITORY))?;
        let (server, secret, authority) = serve(&root)?;
        Ok(Self {
            repo,
            server,
            secret,
            authority,
            folder,
        })
    }

    /// For `source.url`.
    pub fn url(&self) -> String {
        match &self.server {
            Server::Http(server) => server.url(REPOSITORY),
            Server::Ssh(server) => server.url(&self.folder.path().join("served").join(REPOSITORY)),
        }
    }

    /// For the Secret of `source.secretRef`.
    pub fn credentials(&self) -> &BTreeMap<&'static str, String> {
        &self.secret
    }

    /// For the Secret of `source.caSecretRef`, when it has a certificate.
    pub fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// How often somebody began to look at the repository over http.
    pub fn looks(&self) -> usize {
        match &self.server {
            Server::Http(server) => {
                let seen = server.seen();
                seen.iter().filter(|seen| seen.method == "GET").count()
            }
            Server::Ssh(_) => 0,
        }
    }

    /// Commits files below `mcp/` to `main`, as the whole of it; gives the commit id.
    ///
    /// # Errors
    /// When the repository cannot be written.
    pub fn push<P: AsRef<str>, T: AsRef<str>>(&self, files: &[(P, T)]) -> anyhow::Result<String> {
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(path, text)| (path.as_ref(), text.as_ref()))
            .collect();
        Ok(self.repo.push(&files)?)
    }
}
