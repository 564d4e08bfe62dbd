//! Layers on their way to readers.

use std::io;

use bytes::Bytes;
use hyper::body::Frame;
use ramen_source::{Digest, Store};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;
use tokio::sync::OwnedSemaphorePermit;

/// Pieces in which a layer is read.
const PIECE: usize = 256 * 1024;

/// A layer on its way to a reader. Its last bytes go out only when all of them are those of the digest;
/// a layer that is not whole is removed, so that it is built again.
pub(super) struct Sending {
    file: tokio::fs::File,
    hash: Sha256,
    left: u64,
    digest: Digest,
    store: Store,
    _place: OwnedSemaphorePermit,
}

impl Sending {
    /// Of this many bytes; the place is held until the last.
    pub(super) fn new(
        file: tokio::fs::File,
        size: u64,
        digest: Digest,
        store: Store,
        place: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            file,
            hash: Sha256::new(),
            left: size,
            digest,
            store,
            _place: place,
        }
    }

    /// The next piece.
    pub(super) async fn next(mut self) -> io::Result<Option<(Frame<Bytes>, Self)>> {
        if self.left == 0 {
            return Ok(None);
        }
        let mut piece = Vec::with_capacity(PIECE);
        let n = (&mut self.file)
            .take(PIECE as u64)
            .read_to_end(&mut piece)
            .await? as u64;
        self.hash.update(&piece);
        self.left = self.left.saturating_sub(n);
        if n == 0 || (self.left == 0 && self.hash.clone().finalize()[..] != self.digest.bytes()[..])
        {
            tracing::error!(digest = %self.digest, "a layer of the store is damaged; it is removed");
            if let Err(error) = self.store.remove_blob(self.digest).await {
                tracing::error!(%error, "a damaged layer was not removed");
            }
            return Err(io::Error::other("the layer is damaged"));
        }
        Ok(Some((Frame::data(Bytes::from(piece)), self)))
    }
}
