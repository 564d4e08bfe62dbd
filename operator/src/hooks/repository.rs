//! The name of a repository, the same for every way to write its address. Pure.

use url::Url;

/// Host, port and path of a repository. Scheme, credentials, a `.git` at the end and the case do not count:
/// the same repository is cloned by `https` and `ssh`, and forges tell either in their hooks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Repository {
    host: String,
    path: String,
}

impl Repository {
    /// From an address. It is only ever compared; nothing is fetched from it.
    pub(crate) fn parse(address: &str) -> Option<Self> {
        let address = address.trim();
        if address.is_empty() || address.len() > 2048 || address.contains(char::is_control) {
            return None;
        }
        if address.contains("://") {
            let url = Url::parse(address).ok()?;
            if !matches!(
                url.scheme(),
                "http" | "https" | "ssh" | "git+ssh" | "ssh+git"
            ) {
                return None;
            }
            let host = match url.port() {
                // Where ssh listens says nothing about the repository.
                Some(port) if url.scheme().starts_with("http") => {
                    format!("{}:{port}", url.host_str()?)
                }
                _ => url.host_str()?.to_owned(),
            };
            return Self::new(&host, url.path());
        }
        let (server, path) = address.split_once(':')?;
        let host = server.rsplit_once('@').map_or(server, |(_, host)| host);
        if host.contains(['/', '\\']) || path.starts_with(':') {
            return None;
        }
        Self::new(host, path)
    }

    fn new(host: &str, path: &str) -> Option<Self> {
        let path = path.trim_matches('/').to_lowercase();
        let path = path.strip_suffix(".git").unwrap_or(&path);
        // Bitbucket's own server clones from `/scm/<project>/<repository>`.
        let path = path.strip_prefix("scm/").unwrap_or(path);
        // Azure DevOps has another host and another path for ssh.
        if host == "ssh.dev.azure.com"
            && let Some((project, repository)) = path
                .strip_prefix("v3/")
                .and_then(|path| path.rsplit_once('/'))
        {
            return Some(Self {
                host: "dev.azure.com".to_owned(),
                path: format!("{project}/_git/{repository}"),
            });
        }
        if host.is_empty() || path.is_empty() {
            return None;
        }
        Some(Self {
            host: host.trim_end_matches('.').to_lowercase(),
            path: path.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_an_address_is_the_same_repository() {
        let same = [
            "https://forge.example/Team/calc.git",
            "https://forge.example/team/calc",
            "https://forge.example:443/team/calc/",
            "https://user:pass@FORGE.example/team/calc.git",
            "http://forge.example/team/calc",
            "git@forge.example:team/calc.git",
            "forge.example:team/calc",
            "ssh://git@forge.example/team/calc.git",
            "ssh://git@forge.example:2222/team/calc.git",
            "  https://forge.example./team/calc.git ",
        ];
        let first = Repository::parse(same[0]).unwrap();
        for text in same {
            assert_eq!(Repository::parse(text).as_ref(), Some(&first), "{text}");
        }
        let azure = Repository::parse("https://acme@dev.azure.com/acme/tools/_git/calc");
        let ssh = Repository::parse("git@ssh.dev.azure.com:v3/acme/tools/calc");
        assert!(azure.is_some() && azure == ssh);
        for other in [
            "https://forge.example/team/calc2",
            "https://forge.example/other/calc",
            "https://forge.example:8443/team/calc",
            "https://forge.example.evil/team/calc",
            "https://evil@127.0.0.1/team/calc",
        ] {
            assert_ne!(Repository::parse(other).unwrap(), first, "{other}");
        }
        for none in [
            "",
            "x",
            "https://",
            "file:///a/b",
            "ext::sh -c x",
            "a\nb:c",
            "https://h/",
            "/a:b",
        ] {
            assert_eq!(Repository::parse(none), None, "{none}");
        }
    }
}
