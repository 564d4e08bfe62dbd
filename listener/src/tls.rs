//! Certificate and key of the listener, read again when their files change.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// What may be spoken over TLS, best first.
pub type Protocols = &'static [&'static [u8]];
/// HTTP/2 alone.
pub const H2: Protocols = &[b"h2"];
/// HTTP/2, or HTTP/1.1 for those who know no better.
pub const H2_AND_HTTP1: Protocols = &[b"h2", b"http/1.1"];

/// How often the files are looked at. A renewed Secret takes a minute to arrive anyway.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or is no PEM.
    #[error("cannot read {path}")]
    File {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key do not fit together.
    #[error("certificate and key cannot be used")]
    Pair(#[source] rustls::Error),
}

/// Certificate and key.
pub struct Tls {
    cert: PathBuf,
    key: PathBuf,
    protocols: Protocols,
    /// How the files looked before they were read first.
    first: Print,
    acceptor: RwLock<TlsAcceptor>,
    stale: AtomicBool,
}

/// What changes when a file does.
type Print = [Option<(u64, u64, i64, i64)>; 2];

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("cert", &self.cert)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads both files.
    pub fn read(cert: PathBuf, key: PathBuf, protocols: Protocols) -> Result<Self, TlsError> {
        let first = print(&cert, &key);
        let acceptor = RwLock::new(acceptor(&cert, &key, protocols)?);
        Ok(Self {
            cert,
            key,
            protocols,
            first,
            acceptor,
            stale: AtomicBool::new(false),
        })
    }

    /// For the next connection.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.acceptor
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Takes renewed files; on an error the old ones stay.
    pub fn renew(&self) -> Result<(), TlsError> {
        let new = acceptor(&self.cert, &self.key, self.protocols);
        self.stale.store(new.is_err(), Ordering::Relaxed);
        *self
            .acceptor
            .write()
            .unwrap_or_else(PoisonError::into_inner) = new?;
        Ok(())
    }

    /// Whether the files could not be used when they were looked at last, and what they held before goes on.
    pub fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }

    /// Renews whenever the files change, for ever.
    pub async fn watch(&self) {
        let (mut seen, mut refused) = (self.first, None);
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = print(&self.cert, &self.key);
            if now == seen {
                continue;
            }
            match self.renew() {
                Ok(()) => {
                    seen = now;
                    tracing::info!("certificate read again");
                }
                // The two files change one after the other: the next look may find them fit.
                Err(error) if refused != Some(now) => {
                    refused = Some(now);
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the renewed certificate cannot be used; the old one stays"
                    );
                }
                Err(_) => {}
            }
        }
    }
}

fn print(cert: &Path, key: &Path) -> Print {
    [cert, key].map(|path| {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
    })
}

fn acceptor(cert: &Path, key: &Path, protocols: Protocols) -> Result<TlsAcceptor, TlsError> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |source| TlsError::File { path, source }
    };
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(failed(cert))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(failed(key))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Pair)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(TlsError::Pair)?;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(TlsAcceptor::from(Arc::new(config)))
}
