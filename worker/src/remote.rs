//! Where layers come from: a folder of this machine, or the operator's artifact endpoint.
//!
//! From the endpoint a layer is fetched by its digest into a spool, checked, unpacked into the cache
//! and dropped from the spool. A pod that has a revision unpacked needs no endpoint at all.

mod client;
mod http;
mod report;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use ramen_group::LayerRef;
use ramen_source::cache::CacheError;
use ramen_source::store::StoreError;
use ramen_source::{Cache, Kind, Store};
use url::Url;

use crate::names;

pub(crate) use client::{DeployRun, Endpoint};
pub(crate) use http::RemoteError;

/// What `RAMEN_STORE` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreAt {
    /// A folder.
    Folder(PathBuf),
    /// The artifact endpoint.
    Endpoint {
        /// Its address.
        url: Url,
        /// The file with the token; read for each request, since it may change.
        token_file: PathBuf,
    },
}

impl StoreAt {
    /// Tells an address from a folder.
    pub(crate) fn read(store: &Path, token_file: Option<&Path>) -> Result<Self, String> {
        let text = store.to_str().unwrap_or_default();
        if !text.contains("://") {
            return Ok(Self::Folder(store.to_owned()));
        }
        let url = address(text).map_err(|fault| format!("{}: {fault}", names::STORE))?;
        let token_file = token_file.ok_or_else(|| {
            format!(
                "{}: the file with the token for {url} must be named",
                names::STORE_TOKEN_FILE
            )
        })?;
        Ok(Self::Endpoint {
            url,
            token_file: token_file.to_owned(),
        })
    }

    /// Where unpacked layers are when nothing else is said.
    pub(crate) fn default_cache(&self, otherwise: &Path) -> PathBuf {
        match self {
            Self::Folder(store) => store.join("unpacked"),
            Self::Endpoint { .. } => otherwise.join("unpacked"),
        }
    }
}

/// An address of the endpoint.
pub(crate) fn address(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("not an address: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err("the address must begin with http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("credentials do not belong in the address".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("the address has a query or a fragment".to_owned());
    }
    Ok(url)
}

/// Layers, from wherever they come. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Depot {
    /// The store itself, or the spool.
    store: Store,
    endpoint: Option<Endpoint>,
}

impl Depot {
    /// Opens the folder, or a spool in `spool` for the endpoint.
    pub(crate) fn open(at: &StoreAt, spool: &Path) -> Result<Self, StoreError> {
        match at {
            StoreAt::Folder(dir) => Ok(Self {
                store: Store::open(dir)?,
                endpoint: None,
            }),
            StoreAt::Endpoint { url, token_file } => Ok(Self {
                store: Store::open(&spool.join("spool"))?,
                endpoint: Some(Endpoint::new(url.clone(), token_file.clone())),
            }),
        }
    }

    /// The same, with more patience: a deploy job has nothing else to do.
    pub(crate) fn patient(mut self) -> Self {
        self.endpoint = self.endpoint.map(Endpoint::patient);
        self
    }

    /// The local store.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The folder with a layer's files, unpacked and checked; fetched when it must be.
    pub(crate) async fn ready(
        &self,
        cache: &Cache,
        kind: Kind,
        layer: &LayerRef,
    ) -> Result<PathBuf, CacheError> {
        let endpoint = match (cache.ready(&self.store, kind, layer).await, &self.endpoint) {
            (Err(CacheError::Store(StoreError::Missing { .. })), Some(endpoint)) => endpoint,
            (other, _) => return other,
        };
        let scratch = self.store.root().join("incoming");
        let begin = std::time::Instant::now();
        let archive = endpoint.layer(kind, layer, &scratch).await?;
        tracing::info!(
            kind = %kind,
            digest = %archive.digest,
            bytes = archive.size,
            elapsed_ms = begin.elapsed().as_millis(),
            "fetched a layer"
        );
        self.store.put(kind, &layer.key, &archive).await?;
        let ready = cache.ready(&self.store, kind, layer).await;
        // Unpacked, it is not needed a second time.
        if let Err(error) = self.store.remove_blob(archive.digest).await {
            tracing::warn!(%error, "cannot remove a spooled layer");
        }
        ready
    }
}
