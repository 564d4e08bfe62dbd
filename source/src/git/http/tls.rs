//! Whom we trust.

use std::{io, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

use crate::git::{GitError, session::Session};

/// The authorities of a PEM text.
pub(in crate::git) fn authorities(pem: &str) -> Result<RootCertStore, GitError> {
    let invalid = |what: String| GitError::Credentials {
        message: format!("ca.crt {what}"),
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|e| invalid(format!("is not PEM: {e}")))?;
        roots
            .add(certificate)
            .map_err(|e| invalid(format!("cannot be used: {e}")))?;
    }
    if roots.is_empty() {
        return Err(invalid("holds no certificate".to_owned()));
    }
    Ok(roots)
}

pub(super) fn config(session: &Session) -> Result<ClientConfig, GitError> {
    let roots = if let Some(pem) = &session.remote.credentials.authorities {
        authorities(pem)?
    } else {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| GitError::Tls {
            url: session.url(),
            message: e.to_string(),
        })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// Why a handshake failed.
pub(super) fn failed(session: &Session, error: &io::Error) -> GitError {
    let cause = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let message = match cause {
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)) => {
            "the certificate is signed by an authority that is not trusted; name it with ca.crt"
                .to_owned()
        }
        Some(cause) => cause.to_string(),
        None => {
            let what = format!(
                "the connection broke in the TLS handshake: {}",
                error.kind()
            );
            return session
                .patience()
                .err()
                .unwrap_or_else(|| session.unreachable(what));
        }
    };
    GitError::Tls {
        url: session.url(),
        message,
    }
}
