//! The artifact store: layers by kind and key, in a folder or (feature `cloud`) in a bucket.
//!
//! ```text
//! code/<key>.json   {"key","digest","size"}     deps/<key>.json
//! blobs/<hex of the digest>.tar.zst                   memos/<key>.json  small texts
//! ```
//! A blob is written before the entry that names it, each by rename, so nobody sees half of one;
//! an entry whose blob is gone or has another size counts as absent. Bytes are checked against the
//! digest where they are used ([`crate::Cache`]); a blob that fails is removed, so that the next
//! deploy step builds it again. Nothing is fsynced: what a power cut damages is found the same way.

#[cfg(feature = "cloud")]
mod bucket;
mod error;
mod prune;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::TryStreamExt;
use object_store::{
    GetResultPayload, ObjectStore, ObjectStoreExt, PutMode, PutPayload, WriteMultipart,
    local::LocalFileSystem, path::Path as Key,
};
use ramen_group::LayerRef;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use error::{read_failed, write_failed};

use crate::{
    Digest, Layer,
    lock::{LOCK_FILE, SharedDir},
};

#[cfg(feature = "cloud")]
pub use bucket::{Bucket, BucketInvalid};
pub use error::StoreError;
pub use prune::Pruned;

/// Layers up to this size are put in one request; larger ones in pieces of it.
const PIECE: usize = 8 << 20;

/// What a layer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `mcp/` as in git; the key is the tree id.
    Code,
    /// Installed requirements; the key is the hash of lock, Python version and platform.
    Deps,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Code, Self::Deps];

    /// The folder of its entries.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Deps => "deps",
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An artifact store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    root: PathBuf,
    in_folder: bool,
    _shared: Arc<SharedDir>,
}

impl Store {
    /// Opens (and makes) a store in a local folder. Half-written files of a crash are swept when
    /// no other process uses the store.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        Self::over(dir, |dir| {
            let objects = LocalFileSystem::new_with_prefix(dir)?;
            Ok((Arc::new(objects), true))
        })
    }

    /// Opens a store in a bucket; `dir` is for what is on its way. Nothing is asked of the bucket yet.
    #[cfg(feature = "cloud")]
    pub fn in_bucket(bucket: &Bucket, dir: &Path) -> Result<Self, StoreError> {
        Self::over(dir, |_| Ok((bucket.objects(), false)))
    }

    fn over(
        dir: &Path,
        objects: impl FnOnce(&Path) -> object_store::Result<(Arc<dyn ObjectStore>, bool)>,
    ) -> Result<Self, StoreError> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| StoreError::Open {
            path: dir.to_owned(),
            source,
        };
        let shared = SharedDir::open(dir, sweep).map_err(|e| failed(e.into()))?;
        let (objects, in_folder) = objects(dir).map_err(|e| failed(e.into()))?;
        let root = dir.canonicalize().map_err(|e| failed(e.into()))?;
        Ok(Self {
            objects,
            root,
            in_folder,
            _shared: Arc::new(shared),
        })
    }

    /// The store's folder; of a store in a bucket, the one for what is on its way.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the store is that folder, and not a bucket.
    pub fn is_folder(&self) -> bool {
        self.in_folder
    }

    /// The bytes under a name, kept there by whoever was first: these, or those that were there before.
    pub async fn first(&self, name: &str, bytes: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        let object = key_in("first", name)?;
        let mine = self
            .objects
            .put_opts(&object, bytes.clone().into(), PutMode::Create.into())
            .await;
        match mine {
            Ok(_) => return Ok(bytes),
            Err(object_store::Error::AlreadyExists { .. }) => {}
            Err(e) => return Err(write_failed(object.to_string(), e.into())),
        }
        let read = |source: object_store::Error| read_failed(object.to_string(), source.into());
        let found = self.objects.get(&object).await.map_err(read)?;
        Ok(found.bytes().await.map_err(read)?.into())
    }

    /// Puts a layer under a key. What was there under that key is replaced.
    pub async fn put(&self, kind: Kind, key: &str, layer: &Layer) -> Result<LayerRef, StoreError> {
        let entry = entry_key(kind, key)?;
        let reference = layer.reference(key);
        let blob = blob_key(layer.digest);
        if self.size(&blob).await? != Some(layer.size) {
            self.upload(&blob, layer).await?;
        }
        let json = serde_json::to_vec(&reference).map_err(|e| StoreError::Write {
            what: entry.to_string(),
            source: e.into(),
        })?;
        let written = self.objects.put(&entry, PutPayload::from(json)).await;
        written.map_err(|e| write_failed(entry.to_string(), e.into()))?;
        Ok(reference)
    }

    /// The layer under a key, if its bytes are there.
    pub async fn find(&self, kind: Kind, key: &str) -> Result<Option<LayerRef>, StoreError> {
        let entry = entry_key(kind, key)?;
        let read = |source| read_failed(entry.to_string(), source);
        let bytes = match self.objects.get(&entry).await {
            Ok(found) => found.bytes().await.map_err(|e| read(e.into()))?,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(read(error.into())),
        };
        let Ok(reference) = serde_json::from_slice::<LayerRef>(&bytes) else {
            tracing::warn!(kind = %kind, key, "ignored an unreadable entry of the store");
            return Ok(None);
        };
        let Ok(digest) = reference.digest.parse::<Digest>() else {
            return Ok(None);
        };
        let whole = self.size(&blob_key(digest)).await? == Some(reference.size);
        Ok((whole && reference.key == key).then_some(reference))
    }

    /// Keeps a small text (such as the lock that some inputs led to) under a key.
    pub async fn put_memo(&self, key: &str, text: &str) -> Result<(), StoreError> {
        let entry = key_in("memos", key)?;
        let written = self
            .objects
            .put(&entry, PutPayload::from(text.to_owned()))
            .await;
        written
            .map(|_| ())
            .map_err(|e| write_failed(entry.to_string(), e.into()))
    }

    /// The text under a key. One that is not UTF-8 (a damaged disk) counts as absent.
    pub async fn memo(&self, key: &str) -> Result<Option<String>, StoreError> {
        let entry = key_in("memos", key)?;
        let read = |source| read_failed(entry.to_string(), source);
        match self.objects.get(&entry).await {
            Ok(found) => {
                let bytes = found.bytes().await.map_err(|e| read(e.into()))?;
                Ok(String::from_utf8(bytes.into()).ok())
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(read(error.into())),
        }
    }

    /// Forgets the text under a key.
    pub async fn remove_memo(&self, key: &str) -> Result<(), StoreError> {
        let entry = key_in("memos", key)?;
        match self.objects.delete(&entry).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(write_failed(entry.to_string(), e.into())),
        }
    }

    /// The archive of a layer, not yet checked against its digest.
    pub async fn open_layer(&self, layer: &LayerRef) -> Result<File, StoreError> {
        let digest = digest_of(layer)?;
        let blob = blob_key(digest);
        let read = |source| read_failed(layer.key.clone(), source);
        let found = match self.objects.get(&blob).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => {
                return Err(StoreError::Missing {
                    key: layer.key.clone(),
                    digest,
                });
            }
            Err(error) => return Err(read(error.into())),
        };
        match found.payload {
            GetResultPayload::File(file, _) => Ok(file),
            GetResultPayload::Stream(mut stream) => {
                let kept = |e: io::Error| write_failed(layer.key.clone(), e.into());
                let file = tempfile::tempfile_in(&self.root).map_err(kept)?;
                let mut file = tokio::fs::File::from_std(file);
                while let Some(bytes) = stream.try_next().await.map_err(|e| read(e.into()))? {
                    file.write_all(&bytes).await.map_err(kept)?;
                }
                file.rewind().await.map_err(kept)?;
                Ok(file.into_std().await)
            }
        }
    }

    /// Removes a layer's bytes, so that [`Self::find`] no longer offers them.
    pub async fn remove_blob(&self, digest: Digest) -> Result<(), StoreError> {
        match self.objects.delete(&blob_key(digest)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(write_failed(digest.to_string(), e.into())),
        }
    }

    async fn size(&self, blob: &Key) -> Result<Option<u64>, StoreError> {
        match self.objects.head(blob).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(read_failed(blob.to_string(), e.into())),
        }
    }

    async fn upload(&self, blob: &Key, layer: &Layer) -> Result<(), StoreError> {
        let failed = |e: object_store::Error| write_failed(blob.to_string(), e.into());
        let read = |source: io::Error| StoreError::Read {
            what: layer.path().display().to_string(),
            source: source.into(),
        };
        if layer.size <= PIECE as u64 {
            let bytes = tokio::fs::read(layer.path()).await.map_err(read)?;
            let put = self.objects.put(blob, PutPayload::from(bytes)).await;
            return put.map(|_| ()).map_err(failed);
        }
        let mut file = tokio::fs::File::open(layer.path()).await.map_err(read)?;
        let upload = self.objects.put_multipart(blob).await.map_err(failed)?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PIECE);
        let mut buffer = vec![0; 1 << 20];
        let written = async {
            loop {
                let n = file.read(&mut buffer).await.map_err(read)?;
                if n == 0 {
                    return Ok(());
                }
                upload.wait_for_capacity(2).await.map_err(failed)?;
                upload.write(&buffer[..n]);
            }
        };
        match written.await {
            Ok(()) => upload.finish().await.map(|_| ()).map_err(failed),
            Err(error) => {
                if let Err(left) = upload.abort().await {
                    tracing::warn!(error = %left, "could not remove a half-written layer");
                }
                Err(error)
            }
        }
    }
}

/// The digest that a reference names.
pub fn digest_of(layer: &LayerRef) -> Result<Digest, StoreError> {
    layer
        .digest
        .parse()
        .map_err(|source| StoreError::InvalidDigest {
            key: layer.key.clone(),
            source,
        })
}

fn entry_key(kind: Kind, key: &str) -> Result<Key, StoreError> {
    key_in(kind.as_str(), key)
}

fn key_in(folder: &str, key: &str) -> Result<Key, StoreError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if key.is_empty() || key.len() > 128 || key.starts_with('.') || !key.bytes().all(plain) {
        return Err(StoreError::InvalidKey {
            key: key.chars().take(200).collect(),
        });
    }
    Ok(Key::from(format!("{folder}/{key}.json")))
}

fn blob_key(digest: Digest) -> Key {
    Key::from(format!("blobs/{}.tar.zst", digest.hex()))
}

/// Removes the staging files that `object_store` leaves when it is killed (`name#1`).
fn sweep(dir: &Path) -> io::Result<()> {
    for folder in [
        dir.to_owned(),
        dir.join("code"),
        dir.join("deps"),
        dir.join("blobs"),
    ] {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let staged = name.rsplit_once('#').is_some_and(|(_, digits)| {
                !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
            });
            if staged && name != LOCK_FILE {
                fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(())
}
