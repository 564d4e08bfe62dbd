//! `source.url` and `source.ref`.

use std::fmt;

use semver::VersionReq;

use crate::GitRef;

/// Which repositories are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlPolicy {
    /// Those behind a network.
    Remote,
    /// Those on this machine too: `file://…` and absolute paths.
    Local,
}

/// How a repository is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `https://`
    Https,
    /// `http://`
    Http,
    /// `ssh://` or `user@host:path`
    Ssh,
    /// `file://` or an absolute path
    File,
}

/// A repository's address, without credentials.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GitUrl {
    text: String,
    scheme: Scheme,
    host: String,
}

impl GitUrl {
    /// Parses an address. `git@host:path` becomes `ssh://git@host/path`. Messages never quote the
    /// address: people paste tokens into it.
    pub fn parse(text: &str, policy: UrlPolicy) -> Result<Self, String> {
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err("the address has a blank or control character in it".to_owned());
        }
        if text.starts_with('/') {
            return Self::file(text, policy);
        }
        if !text.contains("://") {
            return Self::scp(text);
        }
        let url = url::Url::parse(text).map_err(|error| format!("not an address: {error}"))?;
        let scheme = match url.scheme() {
            "https" => Scheme::Https,
            "http" => Scheme::Http,
            "ssh" => Scheme::Ssh,
            "file" => return Self::file(url.path(), policy),
            _ => return Err("must be https://, http://, ssh:// or user@host:path".to_owned()),
        };
        if url.password().is_some() || (scheme != Scheme::Ssh && !url.username().is_empty()) {
            return Err(
                "credentials do not belong in the address; put them in a Secret and name it \
                        with secretRef"
                    .to_owned(),
            );
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("the address has a `?` or `#` part".to_owned());
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        check_host(&host)?;
        check_user(url.username())?;
        if url.path().trim_matches('/').is_empty() {
            return Err("the address has no path to a repository".to_owned());
        }
        Ok(Self {
            text: url.to_string(),
            scheme,
            host,
        })
    }

    fn file(path: &str, policy: UrlPolicy) -> Result<Self, String> {
        if policy == UrlPolicy::Remote {
            return Err("a repository on this machine cannot be served here".to_owned());
        }
        Ok(Self {
            text: format!("file://{path}"),
            scheme: Scheme::File,
            host: String::new(),
        })
    }

    /// `git@host:path`, as people copy it from their forge.
    fn scp(text: &str) -> Result<Self, String> {
        let bad = || "must be https://, http://, ssh:// or user@host:path".to_owned();
        let (authority, path) = text.split_once(':').ok_or_else(bad)?;
        let (user, host) = authority.split_once('@').unwrap_or(("git", authority));
        check_user(user)?;
        check_host(host)?;
        let path = path.trim_start_matches('/');
        if host.contains('/') || path.is_empty() {
            return Err(bad());
        }
        if path.bytes().take_while(u8::is_ascii_digit).count() > 0 && path.contains('/') {
            // `host:2222/x` is a port in disguise more often than a folder of that name.
            return Err("write a port as ssh://user@host:port/path".to_owned());
        }
        let url = format!("ssh://{user}@{host}/{path}");
        let url = url::Url::parse(&url).map_err(|error| format!("not an address: {error}"))?;
        let host = url.host_str().unwrap_or_default().to_owned();
        Ok(Self {
            text: url.to_string(),
            scheme: Scheme::Ssh,
            host,
        })
    }

    /// The address in its plain form.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How it is reached.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host; empty for a local one.
    pub fn host(&self) -> &str {
        &self.host
    }
}

fn check_host(host: &str) -> Result<(), String> {
    if host.is_empty() || host.starts_with('-') {
        return Err("the address has no host".to_owned());
    }
    Ok(())
}

fn check_user(user: &str) -> Result<(), String> {
    if user.starts_with('-') {
        return Err("the user's name starts with `-`".to_owned());
    }
    Ok(())
}

impl fmt::Display for GitUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefSpec {
    /// The repository's default branch.
    Default,
    /// A branch.
    Branch(String),
    /// A tag.
    Tag(String),
    /// The highest tag in a range of versions.
    Semver(VersionReq),
    /// One commit, in small letters.
    Commit(String),
    /// A tag, a branch, or a ref by its full name.
    Name(String),
}

impl RefSpec {
    /// Reads `ref`.
    pub fn parse(reference: Option<&GitRef>) -> Result<Self, String> {
        let Some(reference) = reference else {
            return Ok(Self::Default);
        };
        let GitRef {
            branch,
            tag,
            semver,
            commit,
            name,
        } = reference;
        match (branch, tag, semver, commit, name) {
            (None, None, None, None, None) => Ok(Self::Default),
            (Some(branch), None, None, None, None) => ref_name(branch).map(Self::Branch),
            (None, Some(tag), None, None, None) => ref_name(tag).map(Self::Tag),
            (None, None, None, None, Some(name)) => ref_name(name).map(Self::Name),
            (None, None, Some(range), None, None) => VersionReq::parse(range)
                .map(Self::Semver)
                .map_err(|error| format!("not a range of versions: {error}")),
            (None, None, None, Some(commit), None) => {
                let hex = commit.bytes().all(|b| b.is_ascii_hexdigit());
                if hex && matches!(commit.len(), 40 | 64) {
                    Ok(Self::Commit(commit.to_ascii_lowercase()))
                } else {
                    Err(
                        "a commit is given by its full id of 40 or 64 hexadecimal digits"
                            .to_owned(),
                    )
                }
            }
            _ => Err("only one of branch, tag, semver, commit and name can be followed".to_owned()),
        }
    }
}

impl fmt::Display for RefSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("HEAD"),
            Self::Branch(name) | Self::Tag(name) | Self::Commit(name) | Self::Name(name) => {
                f.write_str(name)
            }
            Self::Semver(range) => range.fmt(f),
        }
    }
}

/// The rules of `git check-ref-format`, as far as they matter.
fn ref_name(name: &str) -> Result<String, String> {
    let bad = name.is_empty()
        || name == "@"
        || name.starts_with(['-', '/', '.'])
        || name.ends_with(['/', '.'])
        || name.contains("..")
        || name.contains("//")
        || name.contains("/.")
        || name.contains("@{")
        || name
            .split('/')
            .any(|part| part.to_ascii_lowercase().ends_with(".lock"))
        || name
            .chars()
            .any(|c| c.is_control() || " ~^:?*[\\".contains(c));
    if bad {
        return Err("not a name that a branch or tag can have".to_owned());
    }
    Ok(name.to_owned())
}
