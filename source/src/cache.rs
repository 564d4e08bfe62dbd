//! The cache of unpacked layers: `<cache>/sha256-<hex>/`.
//!
//! A layer is unpacked into a temporary folder beside its place, checked against its digest, and
//! renamed. Several processes may do this at once: one wins, the others use what it made.

mod error;
mod folder;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use ramen_group::LayerRef;

use crate::{
    Digest, Kind, Layer, Store,
    layer::{LayerError, Limits, STAMP_FILE, Unpacked, unpack},
    lock::SharedDir,
    store::digest_of,
};

use folder::{Lease, count, count_all, discard, stamped, sweep};

pub use error::CacheError;

const TEMP_PREFIX: &str = ".tmp-";

/// A cache of unpacked layers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Cache {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    _shared: SharedDir,
    layers: Mutex<HashMap<Digest, Slot>>,
}

/// One at a time for each layer; holds the lease once this process has checked it.
type Slot = Arc<tokio::sync::Mutex<Option<Lease>>>;

impl Cache {
    /// Opens (and makes) a cache. Temporary folders of a crash are swept when no other process
    /// uses it.
    pub fn open(dir: &Path) -> Result<Self, CacheError> {
        let failed = |source| CacheError::Folder {
            path: dir.to_owned(),
            source,
        };
        let shared = SharedDir::open(dir, sweep).map_err(failed)?;
        let root = dir.canonicalize().map_err(failed)?;
        let layers = Mutex::default();
        Ok(Self {
            inner: Arc::new(Inner {
                root,
                _shared: shared,
                layers,
            }),
        })
    }

    /// The cache's folder.
    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    /// A folder of this process's own, gone when it is dropped. What a crash leaves of it is swept
    /// by the next [`Cache::open`].
    pub fn scratch(&self) -> io::Result<tempfile::TempDir> {
        tempfile::Builder::new()
            .prefix(TEMP_PREFIX)
            .tempdir_in(&self.inner.root)
    }

    /// Where a layer is, or would be.
    pub fn path_of(&self, digest: Digest) -> PathBuf {
        self.inner.root.join(digest.dir_name())
    }

    /// The folder with a layer's files, unpacked and checked. For a code layer the packages are
    /// in [`crate::layer::code_dir`] of it.
    pub async fn ready(
        &self,
        store: &Store,
        kind: Kind,
        layer: &LayerRef,
    ) -> Result<PathBuf, CacheError> {
        let digest = digest_of(layer)?;
        let slot = self.slot(digest);
        let mut lease = slot.lock().await;
        let target = self.path_of(digest);
        // Again only when another process removes the folder between unpacking and the lease.
        for _ in 0..3 {
            if lease.as_ref().is_some_and(|lease| lease.holds(&target)) {
                return Ok(target);
            }
            let cache = self.clone();
            *lease = blocking(layer.key.clone(), move || cache.usable(digest)).await?;
            if lease.is_some() {
                return Ok(target);
            }
            let archive = store.open_layer(layer).await?;
            let limits = match kind {
                Kind::Code => Limits::CODE,
                Kind::Deps => Limits::DEPS,
            };
            let cache = self.clone();
            let unpacked = blocking(layer.key.clone(), move || {
                cache.unpack(archive, digest, limits)?;
                cache.lease(digest)
            });
            match unpacked.await {
                Ok(taken) => *lease = taken,
                Err(error) => return Err(Self::failed(store, digest, error).await),
            }
        }
        let source = io::Error::other("the layer is removed as often as it is unpacked");
        Err(CacheError::Folder {
            path: target,
            source,
        })
    }

    fn slot(&self, digest: Digest) -> Slot {
        let mut layers = self
            .inner
            .layers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Arc::clone(layers.entry(digest).or_default())
    }

    fn lease(&self, digest: Digest) -> Result<Option<Lease>, LayerError> {
        let target = self.path_of(digest);
        Lease::take(&target).map_err(|source| LayerError::Read {
            path: target,
            source,
        })
    }

    /// Takes a folder that was just packed as the unpacked layer, so that nothing need be unpacked:
    /// it is moved into the cache. `false`, and the folder stays, when it cannot be used as it is
    /// (it lies on another disk, holds links, or changed since it was packed).
    pub async fn adopt(&self, dir: &Path, layer: &Layer) -> Result<bool, CacheError> {
        let packed = Unpacked {
            files: layer.files,
            bytes: layer.bytes,
        };
        let digest = layer.digest;
        let slot = self.slot(digest);
        let mut lease = slot.lock().await;
        let (cache, dir) = (self.clone(), dir.to_owned());
        *lease = blocking(digest.to_string(), move || {
            match cache.take(&dir, packed, digest) {
                Ok(true) => cache.lease(digest),
                Ok(false) | Err(_) => Ok(None),
            }
        })
        .await?;
        Ok(lease.is_some())
    }

    fn take(&self, dir: &Path, packed: Unpacked, digest: Digest) -> io::Result<bool> {
        let target = self.path_of(digest);
        let all = count_all(dir)?;
        if all != Some(packed) || target.exists() {
            return Ok(false);
        }
        let stamp = dir.join(STAMP_FILE);
        fs::write(&stamp, serde_json::to_vec(&count(dir)?)?)?;
        let moved = fs::rename(dir, &target);
        if moved.is_err() {
            fs::remove_file(&stamp)?;
        }
        Ok(moved.is_ok())
    }

    async fn failed(store: &Store, digest: Digest, error: CacheError) -> CacheError {
        match error {
            CacheError::Unpack { key, source } if source.is_corrupt() => {
                if let Err(error) = store.remove_blob(digest).await {
                    tracing::warn!(%digest, %error, "could not remove a corrupt layer");
                }
                CacheError::Corrupt {
                    key,
                    digest,
                    source,
                }
            }
            other => other,
        }
    }

    /// A lease on the folder of a layer, if it is there and whole.
    fn usable(&self, digest: Digest) -> Result<Option<Lease>, LayerError> {
        let target = self.path_of(digest);
        let lease = self.lease(digest)?;
        if lease.is_some() && stamped(&target) == count(&target).ok() {
            return Ok(lease);
        }
        if target.is_dir() {
            tracing::warn!(%digest, "an unpacked layer is not whole; it is unpacked again");
            drop(lease);
            discard(&self.inner.root, &target).map_err(|source| LayerError::Write {
                path: target,
                source,
            })?;
        }
        Ok(None)
    }

    fn unpack(&self, archive: fs::File, digest: Digest, limits: Limits) -> Result<(), LayerError> {
        let root = &self.inner.root;
        let temp = tempfile::Builder::new()
            .prefix(TEMP_PREFIX)
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in(root)
            .map_err(|source| LayerError::write(root, source))?;
        unpack(archive, Some(digest), temp.path(), limits)?;
        let stamp = temp.path().join(STAMP_FILE);
        let json = count(temp.path())
            .and_then(|whole| serde_json::to_vec(&whole).map_err(io::Error::other))
            .map_err(|source| LayerError::write(&stamp, source))?;
        fs::write(&stamp, json).map_err(|source| LayerError::write(&stamp, source))?;
        let target = self.path_of(digest);
        match fs::rename(temp.path(), &target) {
            Ok(()) => {
                // Moved away: nothing is left to remove.
                let _ = temp.keep();
                Ok(())
            }
            // Another process was faster; what it made is as good.
            Err(_) if stamped(&target).is_some() => Ok(()),
            Err(source) => Err(LayerError::write(&target, source)),
        }
    }

    /// Removes every unpacked layer that is not in `keep` and that no other process uses.
    pub fn prune(&self, keep: &[Digest]) -> Result<u64, CacheError> {
        let failed = |source| CacheError::Folder {
            path: self.inner.root.clone(),
            source,
        };
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.inner.root).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let hex = name.to_str().and_then(|name| name.strip_prefix("sha256-"));
            found.extend(hex.and_then(|hex| format!("sha256:{hex}").parse::<Digest>().ok()));
        }
        self.remove(found, keep)
    }

    /// Removes those layers that this process used, are not in `keep`, and that no other process
    /// uses: what a worker does when a revision is gone.
    pub fn release(&self, keep: &[Digest]) -> Result<u64, CacheError> {
        let layers = self
            .inner
            .layers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let used = layers.keys().copied().collect();
        drop(layers);
        self.remove(used, keep)
    }

    fn remove(&self, found: Vec<Digest>, keep: &[Digest]) -> Result<u64, CacheError> {
        let keep: HashSet<Digest> = keep.iter().copied().collect();
        let mut removed = 0;
        for digest in found.into_iter().filter(|digest| !keep.contains(digest)) {
            let slot = self.slot(digest);
            // One that is being made ready right now is in use.
            let Ok(mut lease) = slot.try_lock() else {
                continue;
            };
            *lease = None;
            let target = self.path_of(digest);
            if !target.is_dir() {
                continue;
            }
            let stamp = fs::File::open(target.join(STAMP_FILE));
            if let Ok(stamp) = &stamp
                && matches!(stamp.try_lock(), Err(fs::TryLockError::WouldBlock))
            {
                continue;
            }
            discard(&self.inner.root, &target).map_err(|source| CacheError::Folder {
                path: target,
                source,
            })?;
            removed += 1;
        }
        Ok(removed)
    }
}

async fn blocking<T: Send + 'static>(
    key: String,
    work: impl FnOnce() -> Result<T, LayerError> + Send + 'static,
) -> Result<T, CacheError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|source| CacheError::Unpack {
            key,
            source: source.into(),
        }),
        Err(stopped) => {
            let path = PathBuf::from(&key);
            let source = LayerError::Write {
                path,
                source: io::Error::other(stopped),
            };
            Err(CacheError::Unpack {
                key,
                source: source.into(),
            })
        }
    }
}
