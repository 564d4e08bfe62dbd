//! Addresses of repositories.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use percent_encoding::percent_decode_str;
use ramen_redact::Secret;
use url::{Host, Url};

use super::GitError;

/// Where a repository is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// `http` or `https`, without credentials, query and fragment.
    Http(Url),
    /// An ssh server and the path as it is told.
    Ssh {
        user: String,
        host: String,
        port: u16,
        path: String,
        scp: bool,
    },
    /// A folder of this machine.
    Local(PathBuf),
}

/// The address of a repository: `https://…`, `http://…`, `ssh://…`, `user@host:path`,
/// `file:///…` or a path. Printing it never shows credentials.
#[derive(Debug, Clone)]
pub struct GitUrl {
    address: Address,
    userinfo: Option<(String, Secret)>,
}

impl GitUrl {
    /// Reads an address.
    pub fn parse(text: &str) -> Result<Self, GitError> {
        let text = text.trim();
        let invalid = |message: &str| GitError::Url {
            message: message.to_owned(),
        };
        if text.is_empty() {
            return Err(invalid("it is empty"));
        }
        if text.len() > 2048 || text.chars().any(char::is_control) {
            return Err(invalid("it is too long or holds control characters"));
        }
        if text.contains("://") {
            return Self::parse_url(text);
        }
        if text.starts_with(['/', '.']) {
            return Ok(Self {
                address: Address::Local(text.into()),
                userinfo: None,
            });
        }
        let Some((server, path)) = text.split_once(':').filter(|(s, _)| !s.contains('/')) else {
            return Err(invalid(
                "neither a URL, nor user@host:path, nor a path that starts with / or ./",
            ));
        };
        if path.starts_with(':') {
            return Err(invalid(
                "remote helpers (`name::address`) are not supported",
            ));
        }
        let (user, host) = server.rsplit_once('@').unwrap_or(("git", server));
        let (user, host) = (user.to_owned(), host.to_owned());
        Self::ssh(Address::Ssh {
            user,
            host,
            port: 22,
            path: path.to_owned(),
            scp: true,
        })
    }

    fn parse_url(text: &str) -> Result<Self, GitError> {
        let invalid = |message: &str| GitError::Url {
            message: message.to_owned(),
        };
        // The parser's own error does not repeat the text, which may hold a password.
        let mut url = Url::parse(text).map_err(|e| GitError::Url {
            message: e.to_string(),
        })?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("it has a query or a fragment"));
        }
        let decode = |part: &str| {
            percent_decode_str(part)
                .decode_utf8()
                .map(std::borrow::Cow::into_owned)
                .map_err(|_| invalid("a percent-encoded part is not UTF-8"))
        };
        match url.scheme() {
            "https" | "http" => {
                let user = decode(url.username())?;
                let password = url.password().map(decode).transpose()?;
                let userinfo = match (user, password) {
                    (user, Some(password)) => Some((user, Secret::new(password))),
                    // `https://<token>@host/…`
                    (token, None) if !token.is_empty() => Some((String::new(), Secret::new(token))),
                    _ => None,
                };
                let cleared = url.set_username("").and_then(|()| url.set_password(None));
                cleared.map_err(|()| invalid("it has no host"))?;
                Ok(Self {
                    address: Address::Http(url),
                    userinfo,
                })
            }
            "ssh" | "git+ssh" | "ssh+git" => {
                if url.password().is_some() {
                    return Err(invalid("a password in an ssh address is not supported"));
                }
                let host = match url.host() {
                    Some(Host::Domain(name)) => name.to_owned(),
                    Some(Host::Ipv4(ip)) => ip.to_string(),
                    Some(Host::Ipv6(ip)) => ip.to_string(),
                    None => return Err(invalid("it has no host")),
                };
                let user = match decode(url.username())? {
                    user if user.is_empty() => "git".to_owned(),
                    user => user,
                };
                let path = decode(url.path())?;
                let path = match path.strip_prefix('/') {
                    Some(home) if home.starts_with('~') => home.to_owned(),
                    _ => path,
                };
                let port = url.port().unwrap_or(22);
                Self::ssh(Address::Ssh {
                    user,
                    host,
                    port,
                    path,
                    scp: false,
                })
            }
            "file" => {
                let path = url
                    .to_file_path()
                    .map_err(|()| invalid("it is no path of this machine"))?;
                Ok(Self {
                    address: Address::Local(path),
                    userinfo: None,
                })
            }
            scheme => Err(GitError::Url {
                message: format!("the scheme `{scheme}` is not supported (https, http, ssh, file)"),
            }),
        }
    }

    fn ssh(address: Address) -> Result<Self, GitError> {
        let invalid = |message: &str| {
            Err(GitError::Url {
                message: message.to_owned(),
            })
        };
        if let Address::Ssh {
            user, host, path, ..
        } = &address
        {
            let plain = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
            if host.is_empty() || host.starts_with('-') || !host.chars().all(plain) {
                return invalid("the ssh host is not a host name");
            }
            if user.is_empty() || user.starts_with('-') || user.contains(['@', ':', '/', ' ']) {
                return invalid("the ssh user is not a user name");
            }
            if path.is_empty() || path == "/" || path.starts_with('-') || path.contains('\0') {
                return invalid("the ssh path is empty or starts with a dash");
            }
        }
        Ok(Self {
            address,
            userinfo: None,
        })
    }

    /// A repository in a folder of this machine.
    pub fn local(path: &Path) -> Self {
        Self {
            address: Address::Local(path.to_owned()),
            userinfo: None,
        }
    }

    /// Whether it is a folder of this machine.
    pub fn is_local(&self) -> bool {
        matches!(self.address, Address::Local(_))
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn userinfo(&self) -> Option<&(String, Secret)> {
        self.userinfo.as_ref()
    }
}

impl FromStr for GitUrl {
    type Err = GitError;

    fn from_str(text: &str) -> Result<Self, GitError> {
        Self::parse(text)
    }
}

impl fmt::Display for GitUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Http(url) => f.write_str(url.as_str()),
            Address::Ssh {
                user,
                host,
                path,
                scp: true,
                ..
            } => write!(f, "{user}@{host}:{path}"),
            Address::Ssh {
                user,
                host,
                port,
                path,
                ..
            } => {
                let bare = host.contains(':');
                let (open, close) = if bare { ("[", "]") } else { ("", "") };
                write!(f, "ssh://{user}@{open}{host}{close}")?;
                if *port != 22 {
                    write!(f, ":{port}")?;
                }
                if !path.starts_with('/') {
                    f.write_str("/")?;
                }
                f.write_str(path)
            }
            Address::Local(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh(text: &str) -> (String, String, u16, String) {
        match GitUrl::parse(text).unwrap().address {
            Address::Ssh {
                user,
                host,
                port,
                path,
                ..
            } => (user, host, port, path),
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn all_usual_forms_are_read() {
        let s = |a: &str, b: &str, c: u16, d: &str| (a.to_owned(), b.to_owned(), c, d.to_owned());
        assert_eq!(
            ssh("git@github.com:acme/x.git"),
            s("git", "github.com", 22, "acme/x.git")
        );
        assert_eq!(ssh("host.lan:x"), s("git", "host.lan", 22, "x"));
        assert_eq!(
            ssh("ssh://me@h:2222/a/b.git"),
            s("me", "h", 2222, "/a/b.git")
        );
        assert_eq!(ssh("ssh://h/~me/x"), s("git", "h", 22, "~me/x"));
        assert_eq!(ssh("ssh://git@[::1]:22/x"), s("git", "::1", 22, "/x"));
        for text in [
            "https://h/a.git",
            "http://h:8080/a",
            "git@h:a/b",
            "ssh://git@h:2222/a",
            "/a/b",
        ] {
            assert_eq!(GitUrl::parse(text).unwrap().to_string(), text);
        }
        assert!(GitUrl::parse("file:///srv/a.git").unwrap().is_local());
        assert!(GitUrl::parse("./a").unwrap().is_local());
    }

    #[test]
    fn git08_a_password_in_the_address_is_never_printed() {
        for text in ["https://u:s3cr3t@host/x.git", "https://s3cr3t@host/x.git"] {
            let url = GitUrl::parse(text).unwrap();
            assert_eq!(url.to_string(), "https://host/x.git");
            assert!(!format!("{url:?}").contains("s3cr3t"));
            assert_eq!(url.userinfo().unwrap().1.expose(), "s3cr3t");
        }
        for wrong in [
            "ftp://u:s3cr3t@h/x",
            "https://u:s3cr3t@",
            "ssh://u:s3cr3t@h/x",
            "https://u:s3cr3t@h/x?y",
        ] {
            let error = GitUrl::parse(wrong).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{wrong}");
        }
    }

    #[test]
    fn git13_helpers_options_and_odd_schemes_are_refused() {
        for text in [
            "ext::sh -c touch% /tmp/x",
            "fd::17",
            "git://h/x",
            "-oProxyCommand=x:y",
            "ssh://-x/y",
            "h:-x",
            "",
            " ",
            "x\ny",
            "name",
            "a/b",
            "javascript://x",
            "ssh://h/",
            "https://",
        ] {
            let error = GitUrl::parse(text).expect_err(text);
            assert_eq!(
                error.reason(),
                ramen_group::Reason::SourceInvalid,
                "{text:?}"
            );
        }
    }
}
