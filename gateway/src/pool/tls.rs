//! TLS to workers, where they serve it.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// Whom a worker's certificate has to come from, and whom it has to name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerTls {
    /// Certificates (PEM) of those who sign for workers. Read for each connection: a renewed one counts from the next on.
    pub ca: PathBuf,
    /// The name in the certificates; else the host of each address.
    pub name: Option<String>,
}

impl WorkerTls {
    /// Shakes hands on a new connection to `host:port`.
    pub(super) async fn handshake(
        &self,
        address: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, String> {
        let name = self.server_name(address)?;
        let connector = TlsConnector::from(Arc::new(self.config()?));
        let shaken = connector.connect(name, stream).await;
        shaken.map_err(|error| format!("no TLS: {error}"))
    }

    fn server_name(&self, address: &str) -> Result<ServerName<'static>, String> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = self.name.as_deref().unwrap_or(host).to_owned();
        ServerName::try_from(name).map_err(|error| error.to_string())
    }

    fn config(&self) -> Result<ClientConfig, String> {
        let failed = |error: &dyn std::fmt::Display| {
            format!("{} cannot be used: {error}", self.ca.display())
        };
        let mut roots = RootCertStore::empty();
        let certificates =
            CertificateDer::pem_file_iter(&self.ca).map_err(|error| failed(&error))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| failed(&error))?;
            roots.add(certificate).map_err(|error| failed(&error))?;
        }
        if roots.is_empty() {
            return Err(failed(&"it holds no certificate"));
        }
        let provider = Arc::new(crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}
