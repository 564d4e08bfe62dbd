//! Credentials from the files of a folder, which is how a Kubernetes Secret is mounted.

use std::{collections::BTreeMap, fs, io, path::Path};

use ramen_redact::Secret;

use super::{GitError, KnownHosts};

/// The files that are read; all others are left alone.
const FILES: [&str; 8] = [
    "username",
    "password",
    "bearerToken",
    "identity",
    "identity.passphrase",
    "known_hosts",
    "ca.crt",
    "caFile",
];
const MAX_FILE: u64 = 1 << 20;

/// What to log in with. Printing it shows no secret.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    pub(super) basic: Option<(String, Secret)>,
    pub(super) bearer: Option<Secret>,
    pub(super) identity: Option<Identity>,
    pub(super) known_hosts: Option<KnownHosts>,
    /// PEM. When given, only these authorities are trusted.
    pub(super) authorities: Option<String>,
}

/// An ssh key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) key: Secret,
    pub(super) passphrase: Option<Secret>,
}

impl Credentials {
    /// Reads the files of a folder:
    ///
    /// | file | meaning |
    /// |---|---|
    /// | `username`, `password` | basic login over https (for most forges the password is a token) |
    /// | `bearerToken` | `authorization: Bearer …` over https |
    /// | `identity` | private ssh key; `identity.passphrase` (or `password`) opens it |
    /// | `known_hosts` | the host keys that are trusted, as ssh writes them |
    /// | `ca.crt` | PEM authorities; when there, no other is trusted |
    pub fn from_dir(dir: &Path) -> Result<Self, GitError> {
        let mut files = BTreeMap::new();
        for name in FILES {
            let path = dir.join(name);
            let failed = |e: io::Error| GitError::Credentials {
                message: format!("cannot read the file {name}: {e}"),
            };
            let size = match fs::metadata(&path) {
                Ok(meta) => meta.len(),
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(failed(e)),
            };
            if size > MAX_FILE {
                return Err(failed(io::Error::other("it is larger than 1 MiB")));
            }
            files.insert(name.to_owned(), fs::read(&path).map_err(failed)?);
        }
        Self::from_files(&files)
    }

    /// The same from the entries of a Secret.
    pub fn from_files(files: &BTreeMap<String, Vec<u8>>) -> Result<Self, GitError> {
        let text = |name: &str| -> Result<Option<String>, GitError> {
            let Some(bytes) = files.get(name) else {
                return Ok(None);
            };
            let text = std::str::from_utf8(bytes).map_err(|_| GitError::Credentials {
                message: format!("the file {name} is not UTF-8"),
            })?;
            let text = text.strip_suffix('\n').unwrap_or(text);
            let text = text.strip_suffix('\r').unwrap_or(text);
            Ok((!text.is_empty()).then(|| text.to_owned()))
        };
        let invalid = |message: &str| GitError::Credentials {
            message: message.to_owned(),
        };
        let one_line = |name: &str, value: &Option<String>| match value {
            Some(text) if text.chars().any(char::is_control) => Err(invalid(&format!(
                "the file {name} holds more than one line"
            ))),
            _ => Ok(()),
        };
        let (username, password) = (text("username")?, text("password")?);
        let bearer = text("bearerToken")?;
        for (name, value) in [
            ("username", &username),
            ("password", &password),
            ("bearerToken", &bearer),
        ] {
            one_line(name, value)?;
        }
        let identity = text("identity")?;
        if let Some(key) = &identity
            && !key.contains("PRIVATE KEY")
        {
            return Err(invalid("the file identity holds no private key"));
        }
        if username.is_some() && password.is_none() && identity.is_none() {
            return Err(invalid("there is a username but no password"));
        }
        let passphrase = text("identity.passphrase")?.or_else(|| password.clone());
        let basic = match password {
            Some(password) if username.is_some() || identity.is_none() => {
                Some((username.unwrap_or_default(), Secret::new(password)))
            }
            _ => None,
        };
        if basic.is_some() && bearer.is_some() {
            return Err(invalid(
                "there are both a password and a bearerToken; keep one",
            ));
        }
        let known_hosts = text("known_hosts")?
            .map(|text| KnownHosts::parse(&text))
            .transpose()?;
        let authorities = match text("ca.crt")? {
            Some(pem) => Some(pem),
            None => text("caFile")?,
        };
        if let Some(pem) = &authorities {
            super::http::authorities(pem)?;
        }
        Ok(Self {
            basic,
            bearer: bearer.map(Secret::new),
            identity: identity.map(|key| Identity {
                // A key must end with a line end for OpenSSL.
                key: Secret::new(format!("{key}\n")),
                passphrase: passphrase.map(Secret::new),
            }),
            known_hosts,
            authorities,
        })
    }

    /// Every secret in it, for redaction of texts from elsewhere.
    pub fn secrets(&self) -> Vec<Secret> {
        let basic = self.basic.iter().map(|(_, password)| password.clone());
        let identity = self.identity.iter().filter_map(|i| i.passphrase.clone());
        basic.chain(self.bearer.clone()).chain(identity).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<Credentials, GitError> {
        let files = files
            .iter()
            .map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec()))
            .collect();
        Credentials::from_files(&files)
    }

    #[test]
    fn files_are_read_without_their_last_line_end() {
        let found = read(&[("username", "me\n"), ("password", "s3cr3t\r\n")]).unwrap();
        let (user, password) = found.basic.as_ref().unwrap();
        assert_eq!(
            (user.as_str(), password.expose().as_str()),
            ("me", "s3cr3t")
        );
        assert!(!format!("{found:?}").contains("s3cr3t"));
        assert_eq!(
            read(&[("bearerToken", "t\n")])
                .unwrap()
                .bearer
                .unwrap()
                .expose(),
            "t"
        );
        assert!(read(&[("password", "token")]).unwrap().basic.is_some());
    }

    #[test]
    fn contradictions_and_halves_are_refused() {
        for files in [
            &[("username", "me")][..],
            &[("password", "a\nb"), ("username", "me")],
            &[("password", "p"), ("username", "u"), ("bearerToken", "t")],
            &[("identity", "ssh-ed25519 AAAA")],
            &[("ca.crt", "not pem")],
            &[("known_hosts", "github.com ssh-ed25519 !!!")],
        ] {
            assert!(read(files).is_err(), "{files:?}");
        }
    }

    #[test]
    fn a_folder_is_read_and_odd_files_in_it_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("..data")).unwrap();
        fs::write(dir.path().join("README"), b"\xff").unwrap();
        fs::write(dir.path().join("bearerToken"), "t").unwrap();
        assert!(Credentials::from_dir(dir.path()).unwrap().bearer.is_some());
        assert!(
            Credentials::from_dir(&dir.path().join("none"))
                .unwrap()
                .bearer
                .is_none()
        );
    }
}
