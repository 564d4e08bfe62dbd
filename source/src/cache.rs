//! The cache of unpacked layers: `<cache>/sha256-<hex>/`.
//!
//! A layer is unpacked into a temporary folder beside its place, checked against its digest, and
//! renamed. Several processes may do this at once: one wins, the others use what it made.

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
    lock::{LOCK_FILE, SharedDir},
    store::{StoreError, digest_of},
};

const TEMP_PREFIX: &str = ".tmp-";

/// Why a layer could not be made ready for use.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The store could not give it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The archive is damaged. It was removed from the store, so that it is built again.
    #[error("the layer {key} ({digest}) is corrupt and was removed: {source}")]
    Corrupt {
        /// Its key.
        key: String,
        /// Its digest.
        digest: Digest,
        /// What is wrong with it.
        source: Box<LayerError>,
    },
    /// The archive could not be unpacked here.
    #[error("cannot unpack the layer {key}: {source}")]
    Unpack {
        /// Its key.
        key: String,
        /// Why.
        source: Box<LayerError>,
    },
    /// The cache folder cannot be used.
    #[error("cannot use {path} as a cache of layers")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl CacheError {
    /// Whether making the layer again is the way out.
    pub fn needs_rebuild(&self) -> bool {
        matches!(
            self,
            Self::Corrupt { .. } | Self::Store(StoreError::Missing { .. })
        )
    }

    /// How reports and statuses name this.
    pub fn reason(&self) -> ramen_group::Reason {
        use ramen_group::Reason;
        match self {
            Self::Corrupt { .. } => Reason::LayerCorrupt,
            Self::Store(error) => error.reason(),
            Self::Unpack { source, .. } => source.reason(),
            Self::Folder { .. } => Reason::Internal,
        }
    }
}

/// A cache of unpacked layers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Cache {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    _shared: SharedDir,
    /// One at a time for each layer; `true` once this process has checked it.
    layers: Mutex<HashMap<Digest, Arc<tokio::sync::Mutex<bool>>>>,
}

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
        let turn = {
            let mut layers = self
                .inner
                .layers
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            Arc::clone(layers.entry(digest).or_default())
        };
        let mut checked = turn.lock().await;
        let target = self.path_of(digest);
        let cache = self.clone();
        let was_checked = *checked;
        let key = layer.key.clone();
        let usable = blocking(key, move || cache.usable(digest, was_checked)).await?;
        if !usable {
            let archive = store.open_layer(layer).await?;
            let limits = match kind {
                Kind::Code => Limits::CODE,
                Kind::Deps => Limits::DEPS,
            };
            let cache = self.clone();
            let unpacked = blocking(layer.key.clone(), move || {
                cache.unpack(archive, digest, limits)
            });
            if let Err(error) = unpacked.await {
                return Err(Self::failed(store, digest, error).await);
            }
        }
        *checked = true;
        Ok(target)
    }

    /// Takes a folder that was just packed as the unpacked layer, so that nothing need be unpacked:
    /// it is moved into the cache. `false`, and the folder stays, when it cannot be used as it is
    /// (it lies on another disk, holds links, or changed since it was packed).
    pub async fn adopt(&self, dir: &Path, layer: &Layer) -> Result<bool, CacheError> {
        let (cache, dir) = (self.clone(), dir.to_owned());
        let packed = Unpacked {
            files: layer.files,
            bytes: layer.bytes,
        };
        let digest = layer.digest;
        let key = digest.to_string();
        blocking(key, move || {
            Ok(cache.take(&dir, packed, digest).unwrap_or(false))
        })
        .await
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

    /// Whether the folder of a layer is there and whole.
    fn usable(&self, digest: Digest, was_checked: bool) -> Result<bool, LayerError> {
        let target = self.path_of(digest);
        if !target.is_dir() {
            return Ok(false);
        }
        if was_checked || stamped(&target) == count(&target).ok() {
            return Ok(true);
        }
        tracing::warn!(%digest, "an unpacked layer is not whole; it is unpacked again");
        discard(&self.inner.root, &target).map_err(|source| LayerError::Write {
            path: target,
            source,
        })?;
        Ok(false)
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

    /// Removes every unpacked layer that is not in `keep`. The caller keeps those in use.
    pub fn prune(&self, keep: &[Digest]) -> Result<u64, CacheError> {
        let failed = |source| CacheError::Folder {
            path: self.inner.root.clone(),
            source,
        };
        let keep: HashSet<String> = keep.iter().map(Digest::dir_name).collect();
        let mut removed = 0;
        for entry in fs::read_dir(&self.inner.root).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let Some(hex) = name.strip_prefix("sha256-") else {
                continue;
            };
            if keep.contains(name.as_ref()) {
                continue;
            }
            if let Ok(digest) = format!("sha256:{hex}").parse::<Digest>() {
                let mut layers = self
                    .inner
                    .layers
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                layers.remove(&digest);
            }
            discard(&self.inner.root, &entry.path()).map_err(failed)?;
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

fn stamped(dir: &Path) -> Option<Unpacked> {
    serde_json::from_slice(&fs::read(dir.join(STAMP_FILE)).ok()?).ok()
}

/// Counts what is in a folder, but for `__pycache__`, where Python may add files.
fn count(dir: &Path) -> io::Result<Unpacked> {
    let mut found = Unpacked::default();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if entry.file_name() != "__pycache__" {
                    folders.push(entry.path());
                }
            } else if entry.file_name() != STAMP_FILE {
                found.files += 1;
                found.bytes += entry.metadata()?.len();
            }
        }
    }
    Ok(found)
}

/// Counts everything in a folder; absent when there is anything but files and folders in it.
fn count_all(dir: &Path) -> io::Result<Option<Unpacked>> {
    let mut found = Unpacked::default();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.files += 1;
                found.bytes += entry.metadata()?.len();
            } else {
                return Ok(None);
            }
        }
    }
    Ok(Some(found))
}

/// Moves a folder out of sight, then removes it: nobody sees half of it.
fn discard(root: &Path, dir: &Path) -> io::Result<()> {
    let temp = tempfile::Builder::new()
        .prefix(TEMP_PREFIX)
        .tempdir_in(root)?;
    match fs::rename(dir, temp.path().join("gone")) {
        Ok(()) => temp.close(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

fn sweep(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    debug_assert!(dir.join(LOCK_FILE).exists());
    Ok(())
}
