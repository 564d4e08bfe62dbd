//! TLS whose files change.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use ramen_listener::Tls;
use ramen_listener::tls::{H2, H2_AND_HTTP1, Protocols};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

/// A certificate for `localhost` that is its own authority, and its key.
fn certificate(dir: &Path, name: &str) {
    let made = Command::new("openssl")
        .current_dir(dir)
        .args(["req", "-x509", "-nodes", "-newkey", "ec", "-days", "2"])
        .args([
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-subj",
            "/CN=localhost",
        ])
        .args(["-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args([
            "-keyout",
            &format!("{name}.key"),
            "-out",
            &format!("{name}.pem"),
        ])
        .output()
        .expect("openssl makes certificates for tests: install it");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{said}");
}

fn put(dir: &Path, name: &str) {
    for end in ["pem", "key"] {
        std::fs::copy(
            dir.join(format!("{name}.{end}")),
            dir.join(format!("in-use.{end}")),
        )
        .unwrap();
    }
}

/// What is agreed on by somebody who trusts this certificate alone; nothing when they do not agree.
async fn agree(tls: &Tls, trusted: &Path, offered: Protocols) -> Option<Vec<u8>> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(trusted).unwrap())
        .unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accept = async {
        tls.acceptor()
            .accept(listener.accept().await.unwrap().0)
            .await
    };
    let connect = async {
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    };
    let (accepted, connected) = tokio::join!(accept, connect);
    accepted.ok()?;
    connected
        .ok()?
        .get_ref()
        .1
        .alpn_protocol()
        .map(<[u8]>::to_vec)
}

#[tokio::test]
async fn a_renewed_certificate_is_taken_and_one_that_does_not_fit_is_not() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    for name in ["first", "second"] {
        certificate(dir, name);
    }
    let (first, second) = (dir.join("first.pem"), dir.join("second.pem"));
    put(dir, "first");
    let (cert, key) = (dir.join("in-use.pem"), dir.join("in-use.key"));
    let tls = Tls::read(cert.clone(), key.clone(), H2_AND_HTTP1).unwrap();
    assert_eq!(agree(&tls, &first, H2_AND_HTTP1).await.unwrap(), b"h2");
    assert_eq!(
        agree(&tls, &first, &[b"http/1.1"]).await.unwrap(),
        b"http/1.1"
    );
    // One file of the two has changed; a moment later the other has.
    std::fs::copy(&second, &cert).unwrap();
    assert!(!tls.is_stale() && tls.renew().is_err() && tls.is_stale());
    assert!(agree(&tls, &first, H2).await.is_some(), "the old one stays");
    std::fs::copy(dir.join("second.key"), &key).unwrap();
    tls.renew().unwrap();
    assert!(!tls.is_stale());
    assert!(agree(&tls, &first, H2).await.is_none());
    assert!(agree(&tls, &second, H2).await.is_some());
    std::fs::remove_file(&cert).unwrap();
    let error = tls.renew().unwrap_err().to_string();
    assert!(error.contains("in-use.pem"), "{error}");
    assert!(agree(&tls, &second, H2).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn files_that_change_are_found_without_being_told() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    for name in ["first", "second"] {
        certificate(dir, name);
    }
    put(dir, "first");
    let tls = Arc::new(Tls::read(dir.join("in-use.pem"), dir.join("in-use.key"), H2).unwrap());
    let watched = Arc::clone(&tls);
    let watch = tokio::spawn(async move { watched.watch().await });
    tokio::task::yield_now().await;
    put(dir, "second");
    let second = dir.join("second.pem");
    while agree(&tls, &second, H2).await.is_none() {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    watch.abort();
}
