//! What is removed from a store: layers that nobody needs, and texts that nobody asks for any more.

use std::{collections::HashSet, time::Duration};

use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt, path::Path as Key};
use ramen_group::LayerRef;

use super::{
    Store, StoreError, blob_key, digest_of,
    error::{read_failed, write_failed},
};

/// What a [`Store::prune`] removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Entries.
    pub entries: u64,
    /// Blobs.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Store {
    /// Forgets the texts whose key begins with `prefix` and that are older than `older_than`; says how
    /// many those were.
    pub async fn prune_memos(&self, prefix: &str, older_than: Duration) -> Result<u64, StoreError> {
        let memos = Key::from("memos");
        let listed = self.objects.list(Some(&memos)).try_collect::<Vec<_>>();
        let listed = listed
            .await
            .map_err(|e| read_failed("memos".to_owned(), e.into()))?;
        let mut removed = 0;
        for object in listed {
            let age = std::time::SystemTime::from(object.last_modified).elapsed();
            let ours = object.location.filename();
            if !ours.is_some_and(|name| name.starts_with(prefix))
                || !age.is_ok_and(|age| age >= older_than)
            {
                continue;
            }
            match self.objects.delete(&object.location).await {
                Ok(()) => removed += 1,
                Err(object_store::Error::NotFound { .. }) => {}
                Err(e) => return Err(write_failed(object.location.to_string(), e.into())),
            }
        }
        Ok(removed)
    }

    /// Removes every layer (memos stay) that is not in `keep` and older than `older_than` (layers that are
    /// being put right now must survive).
    pub async fn prune(
        &self,
        keep: &[LayerRef],
        older_than: Duration,
    ) -> Result<Pruned, StoreError> {
        let names: HashSet<String> = keep
            .iter()
            .map(|layer| format!("{}.json", layer.key))
            .collect();
        let blobs: HashSet<Key> = keep
            .iter()
            .filter_map(|layer| digest_of(layer).ok())
            .map(blob_key)
            .collect();
        let mut pruned = Pruned::default();
        let old = |time: std::time::SystemTime| time.elapsed().is_ok_and(|age| age >= older_than);
        for (prefix, is_blob) in [("code", false), ("deps", false), ("blobs", true)] {
            let listed = self
                .objects
                .list(Some(&Key::from(prefix)))
                .try_collect::<Vec<_>>()
                .await;
            let listed = listed.map_err(|e| read_failed(prefix.to_owned(), e.into()))?;
            for object in listed {
                let kept = if is_blob {
                    blobs.contains(&object.location)
                } else {
                    object
                        .location
                        .filename()
                        .is_some_and(|name| names.contains(name))
                };
                if kept || !old(object.last_modified.into()) {
                    continue;
                }
                match self.objects.delete(&object.location).await {
                    Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                    Err(e) => return Err(write_failed(object.location.to_string(), e.into())),
                }
                if is_blob {
                    pruned.blobs += 1;
                    pruned.bytes += object.size;
                } else {
                    pruned.entries += 1;
                }
            }
        }
        Ok(pruned)
    }
}
