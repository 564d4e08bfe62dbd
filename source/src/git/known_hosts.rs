//! `known_hosts`, as sshd(8) describes it: plain, `[host]:port`, patterns, hashed names,
//! `@revoked`. `@cert-authority` lines are passed over: host certificates are not supported.

use base64::{Engine, engine::general_purpose::STANDARD, engine::general_purpose::STANDARD_NO_PAD};
use hmac::{Hmac, Mac};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use super::GitError;

/// Trusted host keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownHosts {
    lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    revoked: bool,
    hosts: String,
    kind: String,
    key: Vec<u8>,
}

/// What `known_hosts` says about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKeyVerdict {
    /// It is the host's.
    Known,
    /// The host has other keys.
    Mismatch,
    /// The host is not listed.
    Unknown,
    /// The key is marked `@revoked`.
    Revoked,
}

impl KnownHosts {
    /// Reads the file. A line that cannot be understood is an error: a typing mistake must not
    /// turn into "unknown host" later.
    pub fn parse(text: &str) -> Result<Self, GitError> {
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let invalid = |what: &str| GitError::Credentials {
                message: format!("known_hosts, line {}: {what}", number + 1),
            };
            let mut words = line.split_whitespace().peekable();
            let revoked = match words.peek() {
                Some(word) if word.starts_with('#') => continue,
                None | Some(&"@cert-authority") => continue,
                Some(&"@revoked") => words.next().is_some(),
                Some(word) if word.starts_with('@') => return Err(invalid("unknown marker")),
                Some(_) => false,
            };
            let (Some(hosts), Some(kind), Some(key)) = (words.next(), words.next(), words.next())
            else {
                return Err(invalid("expected `hosts key-type base64-key`"));
            };
            let key = STANDARD
                .decode(key)
                .map_err(|_| invalid("the key is not base64"))?;
            if !key_names_kind(&key, kind) {
                return Err(invalid("the key is not of the type that the line names"));
            }
            lines.push(Line {
                revoked,
                hosts: hosts.to_owned(),
                kind: kind.to_owned(),
                key,
            });
        }
        Ok(Self { lines })
    }

    fn of(&self, host: &str, port: u16) -> impl Iterator<Item = &Line> + use<'_> {
        let name = entry_name(host, port);
        self.lines
            .iter()
            .filter(move |line| names_host(&line.hosts, &name))
    }

    /// Judges a key (in the wire format) that a host showed.
    pub fn check(&self, host: &str, port: u16, key: &[u8]) -> HostKeyVerdict {
        // A revoked key is bad wherever it turns up for the names of its line.
        if self
            .of(host, port)
            .any(|line| line.revoked && line.key == key)
        {
            return HostKeyVerdict::Revoked;
        }
        let mut verdict = HostKeyVerdict::Unknown;
        for line in self.of(host, port).filter(|line| !line.revoked) {
            if line.key == key {
                return HostKeyVerdict::Known;
            }
            verdict = HostKeyVerdict::Mismatch;
        }
        verdict
    }

    /// The key types listed for a host, so that it is asked for one of these: a server has
    /// several keys, and the file need not list all.
    pub(super) fn kinds(&self, host: &str, port: u16) -> Vec<&str> {
        let mut kinds: Vec<&str> = self
            .of(host, port)
            .filter(|line| !line.revoked)
            .map(|line| line.kind.as_str())
            .collect();
        kinds.dedup();
        kinds
    }
}

/// How the file names a host: `host`, or `[host]:port` off the default port.
pub(super) fn entry_name(host: &str, port: u16) -> String {
    let host = host.to_ascii_lowercase();
    if port == 22 {
        host
    } else {
        format!("[{host}]:{port}")
    }
}

/// `SHA256:…` as `ssh-keygen -l` prints it.
pub(super) fn fingerprint(key: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(key)))
}

/// The type that a key in the wire format names itself.
pub(super) fn kind_of(key: &[u8]) -> Option<&str> {
    let length = u32::from_be_bytes(key.get(..4)?.try_into().ok()?);
    let name = key.get(4..)?.get(..usize::try_from(length).ok()?)?;
    std::str::from_utf8(name).ok()
}

fn key_names_kind(key: &[u8], kind: &str) -> bool {
    kind_of(key) == Some(kind)
}

fn names_host(hosts: &str, name: &str) -> bool {
    if let Some(hashed) = hosts.strip_prefix("|1|") {
        return is_hash_of(hashed, name).unwrap_or(false);
    }
    let mut found = false;
    for pattern in hosts.split(',') {
        match pattern.strip_prefix('!') {
            Some(not) if fits(not, name) => return false,
            Some(_) => {}
            None => found |= fits(pattern, name),
        }
    }
    found
}

fn is_hash_of(hashed: &str, name: &str) -> Option<bool> {
    let (salt, hash) = hashed.split_once('|')?;
    let (salt, hash) = (STANDARD.decode(salt).ok()?, STANDARD.decode(hash).ok()?);
    let mut mac = Hmac::<Sha1>::new_from_slice(&salt).ok()?;
    mac.update(name.as_bytes());
    Some(mac.verify_slice(&hash).is_ok())
}

/// `*` and `?` as in ssh; case does not count. Linear in both texts times the last star.
fn fits(pattern: &str, name: &str) -> bool {
    let pattern = pattern.to_ascii_lowercase();
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: &str, byte: u8) -> Vec<u8> {
        let mut key = u32::try_from(kind.len()).unwrap().to_be_bytes().to_vec();
        key.extend(kind.as_bytes());
        key.extend([0, 0, 0, 4, byte, byte, byte, byte]);
        key
    }

    fn line(hosts: &str, byte: u8) -> String {
        format!(
            "{hosts} ssh-ed25519 {}",
            STANDARD.encode(key("ssh-ed25519", byte))
        )
    }

    fn hashed(name: &str) -> String {
        let salt = b"0123456789abcdefghij";
        let mut mac = Hmac::<Sha1>::new_from_slice(salt).unwrap();
        mac.update(name.as_bytes());
        format!(
            "|1|{}|{}",
            STANDARD.encode(salt),
            STANDARD.encode(mac.finalize().into_bytes())
        )
    }

    #[test]
    fn names_ports_patterns_and_hashes_are_matched() {
        use HostKeyVerdict::{Known, Mismatch, Revoked, Unknown};
        let one = key("ssh-ed25519", 1);
        for (hosts, host, port, verdict) in [
            ("github.com", "github.com", 22, Known),
            ("GitHub.com,10.0.0.1", "github.COM", 22, Known),
            ("github.com", "github.com", 2222, Unknown),
            ("[github.com]:2222", "github.com", 2222, Known),
            ("[github.com]:2222", "github.com", 22, Unknown),
            ("*.lan,!bad.lan", "a.lan", 22, Known),
            ("*.lan,!bad.lan", "bad.lan", 22, Unknown),
            ("h?st", "host", 22, Known),
            ("evil.com", "notevil.com", 22, Unknown),
            (&hashed("github.com"), "github.com", 22, Known),
            (&hashed("[github.com]:2222"), "github.com", 2222, Known),
            (&hashed("github.com"), "gitlab.com", 22, Unknown),
        ] {
            let file = KnownHosts::parse(&line(hosts, 1)).unwrap();
            assert_eq!(
                file.check(host, port, &one),
                verdict,
                "{hosts} {host} {port}"
            );
        }
        let two = KnownHosts::parse(&line("h", 2)).unwrap();
        assert_eq!(two.check("h", 22, &one), Mismatch);
        let revoked = format!("{}\n@revoked {}", line("h", 1), line("*", 1));
        assert_eq!(
            KnownHosts::parse(&revoked).unwrap().check("h", 22, &one),
            Revoked
        );
        let both = format!("# note\n\n{}\n{}", line("h", 2), line("h", 1));
        assert_eq!(
            KnownHosts::parse(&both).unwrap().check("h", 22, &one),
            Known
        );
    }

    #[test]
    fn lines_that_make_no_sense_are_errors() {
        for text in [
            "h",
            "h ssh-ed25519",
            "h ssh-ed25519 %%%",
            "h ssh-rsa AAAA",
            "@odd h k x",
        ] {
            assert!(KnownHosts::parse(text).is_err(), "{text}");
        }
        assert!(KnownHosts::parse("@cert-authority * ssh-rsa whatever").is_ok());
    }
}
