use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{ServerConfig, Transport};

/// A digest of everything that decides which server is reached, and as whom: program, arguments, environment, folder;
/// address and headers; and of which tools are let through. Not of what only tunes the connection. It is made after `${..}` is filled in, since another
/// token can mean another identity with other tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(String);

impl Fingerprint {
    pub(super) fn of(config: &ServerConfig) -> Self {
        let mut digest = Sha256::new();
        // Each piece with its length, so that no two lists of pieces run together.
        let mut piece = |text: &[u8]| {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text);
        };
        match &config.transport {
            Transport::Stdio {
                command,
                args,
                env,
                cwd,
            } => {
                piece(b"stdio");
                piece(command.as_bytes());
                piece(&args.len().to_be_bytes());
                for arg in args {
                    piece(arg.as_bytes());
                }
                for (name, value) in env {
                    piece(name.as_bytes());
                    piece(value.expose().as_bytes());
                }
                if let Some(cwd) = cwd {
                    piece(b"cwd");
                    piece(cwd.as_os_str().as_encoded_bytes());
                }
            }
            Transport::Http { url, headers } => {
                piece(b"http");
                piece(url.expose().as_str().as_bytes());
                for (name, value) in headers {
                    piece(name.to_ascii_lowercase().as_bytes());
                    piece(value.expose().as_bytes());
                }
            }
        }
        for pattern in &config.allowed_tools {
            piece(b"tools");
            piece(pattern.as_bytes());
        }
        Self(format!("sha256:{}", hex::encode(digest.finalize())))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ramen_redact::SafeUrl;

    #[test]
    fn any_edit_of_the_connection_gives_another_fingerprint() {
        let url = |text: &str| SafeUrl::parse(text).unwrap();
        let all = [
            ServerConfig::stdio("a", ["b", "c"]),
            ServerConfig::stdio("a", ["bc"]),
            ServerConfig::stdio("a", ["b"]),
            ServerConfig::stdio("a", ["b"]).with("c", ""),
            ServerConfig::stdio("a", ["b", "c", ""]),
            ServerConfig::stdio("a", ["b", "c"]).with("TOKEN", "x"),
            ServerConfig::stdio("a", ["b", "c"]).with("TOKEN", "y"),
            ServerConfig::http(url("http://h/mcp")),
            ServerConfig::http(url("http://h/mcp2")),
            ServerConfig::http(url("http://h/mcp")).with("Authorization", "Bearer x"),
            ServerConfig::http(url("http://h/mcp")).with("Authorization", "Bearer y"),
        ];
        for (i, one) in all.iter().enumerate() {
            for (j, other) in all.iter().enumerate() {
                assert_eq!(one.fingerprint() == other.fingerprint(), i == j, "{i} {j}");
            }
        }
    }

    #[test]
    fn what_only_tunes_the_connection_is_not_in_the_fingerprint() {
        let config = ServerConfig::stdio("a", ["b"]);
        let mut tuned = config.clone();
        tuned.timeout = Some(std::time::Duration::from_secs(1));
        tuned.enabled = false;
        assert_eq!(config.fingerprint(), tuned.fingerprint());
    }
}
