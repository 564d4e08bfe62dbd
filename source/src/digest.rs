//! The SHA-256 digest that names a layer.

use std::{fmt, io, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// SHA-256 of an archive, written `sha256:<64 hex>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest([u8; 32]);

/// The text is not `sha256:` and 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a digest of the form sha256:<64 hex digits>: {0:?}")]
pub struct DigestInvalid(String);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub(crate) fn from_hash(hash: Sha256) -> Self {
        Self(hash.finalize().into())
    }

    /// The 32 bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// 64 hex digits.
    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }

    /// The name of the folder that a layer is unpacked to: `sha256-<hex>`.
    pub fn dir_name(&self) -> String {
        format!("sha256-{}", self.hex())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = DigestInvalid;

    fn from_str(text: &str) -> Result<Self, DigestInvalid> {
        let invalid = || DigestInvalid(text.chars().take(100).collect());
        let digits = text.strip_prefix("sha256:").ok_or_else(invalid)?;
        let mut bytes = [0; 32];
        if digits.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(invalid());
        }
        hex::decode_to_slice(digits, &mut bytes).map_err(|_| invalid())?;
        Ok(Self(bytes))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestInvalid;

    fn try_from(text: String) -> Result<Self, DigestInvalid> {
        text.parse()
    }
}

/// Passes bytes on and hashes and counts them.
pub(crate) struct Hashing<T> {
    inner: T,
    hash: Sha256,
    bytes: u64,
}

impl<T> Hashing<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
            bytes: 0,
        }
    }

    pub(crate) fn finish(self) -> (T, Digest, u64) {
        (self.inner, Digest(self.hash.finalize().into()), self.bytes)
    }
}

impl<W: io::Write> io::Write for Hashing<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buf)?;
        self.hash.update(&buf[..n]);
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: io::Read> io::Read for Hashing<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.hash.update(&buf[..n]);
        self.bytes += n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_reads_back_what_it_prints_and_refuses_anything_else() {
        let digest = Digest::of(b"abc");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!(
            digest.hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        for wrong in [
            "",
            "sha256:",
            "sha1:00",
            &digest.hex(),
            &digest.to_string().to_uppercase(),
        ] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
        assert!(
            format!("sha256:{}", digest.hex().to_uppercase())
                .parse::<Digest>()
                .is_err()
        );
    }
}
