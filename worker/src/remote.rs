//! Where layers come from: a folder of this machine, or the operator's artifact endpoint, before which a
//! bucket may be asked.
//!
//! From the endpoint a layer is fetched by its digest into a spool, checked, unpacked into the cache
//! and dropped from the spool. A pod that has a revision unpacked needs no endpoint at all.

mod client;
mod http;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use ramen_group::LayerRef;
use ramen_source::cache::CacheError;
use ramen_source::store::{Bucket, StoreError};
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
        /// Asked before it.
        bucket: Option<Bucket>,
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
            bucket: None,
        })
    }

    /// The same with a bucket before the endpoint; with a fault, as it was.
    pub(crate) fn with_bucket(self, address: Option<&str>) -> Result<Self, Box<(Self, String)>> {
        let Some(address) = address.filter(|address| !address.is_empty()) else {
            return Ok(self);
        };
        let name = names::STORE_BUCKET;
        match (self, Bucket::new(address, std::env::vars())) {
            (
                Self::Endpoint {
                    url, token_file, ..
                },
                Ok(bucket),
            ) => Ok(Self::Endpoint {
                url,
                token_file,
                bucket: Some(bucket),
            }),
            (folder @ Self::Folder(_), Ok(_)) => {
                let fault = format!("{name}: {} is a folder already", names::STORE);
                Err(Box::new((folder, fault)))
            }
            (store, Err(fault)) => Err(Box::new((store, format!("{name}: {fault}")))),
        }
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
    bucket: Option<Store>,
    endpoint: Option<Endpoint>,
}

impl Depot {
    /// Opens the folder, or a spool in `spool` for the endpoint.
    pub(crate) fn open(at: &StoreAt, spool: &Path) -> Result<Self, StoreError> {
        match at {
            StoreAt::Folder(dir) => Ok(Self {
                store: Store::open(dir)?,
                bucket: None,
                endpoint: None,
            }),
            StoreAt::Endpoint {
                url,
                token_file,
                bucket,
            } => Ok(Self {
                store: Store::open(&spool.join("spool"))?,
                bucket: match bucket {
                    Some(bucket) => Some(Store::in_bucket(bucket, &spool.join("from-bucket"))?),
                    None => None,
                },
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
        if let Some(bucket) = &self.bucket {
            match cache.ready(bucket, kind, layer).await {
                Ok(folder) => {
                    tracing::info!(kind = %kind, digest = layer.digest, "read a layer from the bucket");
                    return Ok(folder);
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(kind = %kind, error, "the bucket has no such layer; the endpoint is asked");
                }
            }
        }
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
