//! Taking in an archive that comes from elsewhere.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tempfile::{NamedTempFile, TempPath};
use tokio::io::AsyncWriteExt as _;

use super::{Layer, LayerError};
use crate::Digest;

/// An archive that is being received into a temporary file. It becomes a [`Layer`] only when its
/// bytes are those that the digest names.
#[derive(Debug)]
pub struct Incoming {
    file: tokio::fs::File,
    path: TempPath,
    hash: Sha256,
    size: u64,
    limit: u64,
}

impl Incoming {
    /// Begins a file in `dir` that may grow to `limit` bytes.
    pub fn new(dir: &Path, limit: u64) -> Result<Self, LayerError> {
        let begun = std::fs::create_dir_all(dir).and_then(|()| NamedTempFile::new_in(dir));
        let (file, path) = begun
            .map_err(|source| LayerError::write(dir, source))?
            .into_parts();
        Ok(Self {
            file: tokio::fs::File::from_std(file),
            path,
            hash: Sha256::new(),
            size: 0,
            limit,
        })
    }

    /// Bytes received so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Takes the next bytes.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), LayerError> {
        self.size += bytes.len() as u64;
        if self.size > self.limit {
            return Err(LayerError::TooLarge {
                path: "the archive".to_owned(),
                limit: self.limit,
                unit: "bytes",
            });
        }
        self.hash.update(bytes);
        let written = self.file.write_all(bytes).await;
        written.map_err(|source| LayerError::write(self.place(), source))
    }

    /// The layer, if these are the bytes of `expected`.
    pub async fn finish(mut self, expected: Digest) -> Result<Layer, LayerError> {
        let flushed = self.file.flush().await;
        flushed.map_err(|source| LayerError::write(self.place(), source))?;
        let found = Digest::from_hash(self.hash);
        if found != expected {
            return Err(LayerError::DigestMismatch { expected, found });
        }
        Ok(Layer {
            path: self.path,
            digest: found,
            size: self.size,
            files: 0,
            bytes: 0,
        })
    }

    fn place(&self) -> PathBuf {
        self.path.to_path_buf()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_bytes_that_the_digest_names_become_a_layer() {
        let dir = tempfile::tempdir().unwrap();
        let digest = Digest::of(b"hello");
        let mut incoming = Incoming::new(dir.path(), 5).unwrap();
        incoming.write(b"hel").await.unwrap();
        incoming.write(b"lo").await.unwrap();
        let layer = incoming.finish(digest).await.unwrap();
        assert_eq!((layer.digest, layer.size), (digest, 5));
        assert_eq!(std::fs::read(layer.path()).unwrap(), b"hello");

        let mut incoming = Incoming::new(dir.path(), 5).unwrap();
        incoming.write(b"hallo").await.unwrap();
        let error = incoming.finish(digest).await.unwrap_err();
        assert!(matches!(error, LayerError::DigestMismatch { .. }));

        let mut incoming = Incoming::new(dir.path(), 5).unwrap();
        let error = incoming.write(b"hello!").await.unwrap_err();
        assert!(matches!(error, LayerError::TooLarge { limit: 5, .. }));
        drop((incoming, layer));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
