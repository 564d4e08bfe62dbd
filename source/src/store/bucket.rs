//! A bucket as a place for a store: S3 and what speaks like it, Google Cloud Storage, Azure Blob Storage.
//! Which one, and where in it, is told by an address; how to log in, by the variables that each provider's
//! own tools use (`AWS_…`, `GOOGLE_…`, `AZURE_…`).

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use object_store::{
    ClientOptions, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
    path::Path as Key,
    prefix::PrefixStore,
};
use url::Url;

/// For a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Between two pieces of an answer; how long a whole layer takes is not bounded.
const SILENCE: Duration = Duration::from_secs(30);
/// How often and how long a request is tried that a provider may answer later.
const RETRIES: usize = 5;
const RETRY_TIME: Duration = Duration::from_secs(30);

/// A place in a bucket, and how to get there. Printing it shows the address alone.
#[derive(Clone)]
pub struct Bucket {
    address: String,
    objects: Arc<dyn ObjectStore>,
}

/// The same place; how to get there does not count.
impl PartialEq for Bucket {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl Eq for Bucket {}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bucket").field(&self.address).finish()
    }
}

/// Why an address and its variables name no bucket. Says no value of a variable.
#[derive(Debug, thiserror::Error)]
pub enum BucketInvalid {
    /// The address itself.
    #[error(
        "{address:?} is no bucket: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
    )]
    Address {
        /// What was given.
        address: String,
    },
    /// A variable, or one that is missing.
    #[error("the variables for {address} do not fit: {message}")]
    Variables {
        /// The bucket.
        address: String,
        /// What the library says.
        message: String,
    },
}

#[derive(Debug, Clone, Copy)]
enum Provider {
    S3,
    Google,
    Azure,
}

impl Bucket {
    /// Whether a text is the address of a bucket, and not a folder's.
    pub fn is_address(text: &str) -> bool {
        provider(text).is_some()
    }

    /// From an address, and the variables of the process. Nothing is asked of the provider yet.
    pub fn new(
        address: &str,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, BucketInvalid> {
        let no_bucket = || BucketInvalid::Address {
            address: address.chars().take(200).collect(),
        };
        let provider = provider(address).ok_or_else(no_bucket)?;
        let url = Url::parse(address).map_err(|_| no_bucket())?;
        let plain = url.username().is_empty() && url.password().is_none() && url.port().is_none();
        let bare = url.query().is_none() && url.fragment().is_none();
        if url.host_str().is_none_or(str::is_empty) || !plain || !bare {
            return Err(no_bucket());
        }
        let prefix = Key::from_url_path(url.path()).map_err(|_| no_bucket())?;
        // Only TLS of ours is in the tree; a process that chose another before keeps it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let variables = variables.into_iter();
        let objects =
            provider
                .connect(&url, variables)
                .map_err(|error| BucketInvalid::Variables {
                    address: address.to_owned(),
                    message: error.to_string(),
                })?;
        let objects: Arc<dyn ObjectStore> = if prefix.as_ref().is_empty() {
            objects
        } else {
            Arc::new(PrefixStore::new(objects, prefix))
        };
        Ok(Self {
            address: address.to_owned(),
            objects,
        })
    }

    pub(super) fn objects(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.objects)
    }
}

fn provider(address: &str) -> Option<Provider> {
    match address.split_once("://")?.0 {
        "s3" => Some(Provider::S3),
        "gs" => Some(Provider::Google),
        "az" => Some(Provider::Azure),
        _ => None,
    }
}

impl Provider {
    fn connect(
        self,
        url: &Url,
        variables: impl Iterator<Item = (String, String)>,
    ) -> object_store::Result<Arc<dyn ObjectStore>> {
        let bucket = format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default());
        let client = |http: bool| {
            ClientOptions::new()
                .with_connect_timeout(CONNECT)
                .with_read_timeout(SILENCE)
                .with_timeout_disabled()
                .with_allow_http(http)
        };
        let retry = RetryConfig {
            max_retries: RETRIES,
            retry_timeout: RETRY_TIME,
            ..RetryConfig::default()
        };
        let known = |name: &str| match self {
            Self::S3 => name.starts_with("AWS_"),
            Self::Google => name.starts_with("GOOGLE_"),
            Self::Azure => name.starts_with("AZURE_"),
        };
        let variables: Vec<(String, String)> = variables
            .filter(|(name, _)| known(name))
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
            .collect();
        // Before the variables, which may say otherwise.
        let http = variables.iter().any(|(name, value)| {
            name.ends_with("_allow_http") && matches!(value.as_str(), "1" | "true")
        });
        Ok(match self {
            Self::S3 => {
                let mut builder = AmazonS3Builder::new()
                    .with_url(bucket)
                    .with_retry(retry)
                    .with_client_options(client(http));
                for (key, value) in settings::<AmazonS3ConfigKey>(variables) {
                    if !matches!(key, AmazonS3ConfigKey::Client(_)) {
                        builder = builder.with_config(key, value);
                    }
                }
                Arc::new(builder.build()?)
            }
            Self::Google => {
                let mut builder = GoogleCloudStorageBuilder::new()
                    .with_url(bucket)
                    .with_retry(retry)
                    .with_client_options(client(http));
                for (key, value) in settings::<GoogleConfigKey>(variables) {
                    if !matches!(key, GoogleConfigKey::Client(_)) {
                        builder = builder.with_config(key, value);
                    }
                }
                Arc::new(builder.build()?)
            }
            Self::Azure => {
                let mut builder = MicrosoftAzureBuilder::new()
                    .with_url(bucket)
                    .with_retry(retry)
                    .with_client_options(client(http));
                for (key, value) in settings::<AzureConfigKey>(variables) {
                    if !matches!(key, AzureConfigKey::Client(_)) {
                        builder = builder.with_config(key, value);
                    }
                }
                Arc::new(builder.build()?)
            }
        })
    }
}

/// What the library knows of these; a variable may be for another tool.
fn settings<K: FromStr>(variables: Vec<(String, String)>) -> impl Iterator<Item = (K, String)> {
    variables
        .into_iter()
        .filter_map(|(name, value)| Some((name.parse().ok()?, value)))
}

#[cfg(test)]
mod tests;
