//! HTTPS by the gateway itself, and certificates that are renewed while it runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ramen_gateway::listener;
use ramen_gateway::pool::WorkerTls;
use ramen_listener::{Tls, tls::H2_AND_HTTP1};
use ramen_source::testing::Authority;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::support::{KEY, LONG, Running, spec};
use crate::worker::Worker;

/// What a client that trusts this authority alone, and offers these protocols, gets.
async fn connect(
    address: std::net::SocketAddr,
    authority: &Authority,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(&authority.ca).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

fn health() -> Request<Full<Bytes>> {
    Request::get("https://localhost/healthz")
        .header("host", "localhost")
        .body(Full::default())
        .unwrap()
}

/// Puts the certificate where the gateway reads it, as a kubelet does: a link that is turned to another folder.
fn turn(place: &Path, authority: &Authority) {
    let folder = authority.cert.parent().unwrap();
    let new = place.join("..data_new");
    symlink(folder, &new).unwrap();
    fs::rename(new, place.join("..data")).unwrap();
}

/// Until a client that trusts this authority gets in.
async fn taken(address: std::net::SocketAddr, authority: &Authority) {
    let taken = async {
        while connect(address, authority, &[]).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, taken)
        .await
        .expect("it is taken");
}

#[tokio::test]
async fn a_renewed_certificate_is_taken_and_open_connections_and_bad_files_change_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let authority = |name: &str| Authority::create(&temp.path().join(name)).unwrap();
    let (first, second) = (authority("first"), authority("second"));
    let place = temp.path().join("mounted");
    fs::create_dir(&place).unwrap();
    turn(&place, &first);
    let (cert, key) = (
        place.join("..data/server.crt"),
        place.join("..data/server.key"),
    );
    let tls = Arc::new(Tls::read(cert, key, H2_AND_HTTP1).unwrap());
    // Between the first reading and the first look: the look must find it.
    turn(&place, &second);
    tokio::spawn({
        let tls = Arc::clone(&tls);
        async move { tls.watch().await }
    });
    let running = Running::start(&[]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let gateway = Arc::clone(&running.gateway);
    tokio::spawn(listener::serve(listener, gateway, Some(tls), 100));
    taken(address, &second).await;
    assert!(connect(address, &first, &[]).await.is_err());

    // Both versions of HTTP, as the client likes it.
    let stream = connect(address, &second, &["http/1.1"]).await.unwrap();
    let (mut old, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(old.send_request(health()).await.unwrap().status(), 200);
    let stream = connect(address, &second, &["h2", "http/1.1"])
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut newer, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    assert_eq!(newer.send_request(health()).await.unwrap().status(), 200);

    // A certificate and the key of another: the one before stays.
    let torn = authority("torn");
    fs::copy(&first.key, &torn.key).unwrap();
    turn(&place, &torn);
    assert!(
        Tls::read(
            place.join("..data/server.crt"),
            place.join("..data/server.key"),
            H2_AND_HTTP1,
        )
        .is_err()
    );
    assert!(connect(address, &second, &[]).await.is_ok());
    // And a good one after it is taken all the same.
    let third = authority("third");
    turn(&place, &third);
    taken(address, &third).await;
    assert!(connect(address, &second, &[]).await.is_err());
    // Connections of before go on.
    assert_eq!(old.send_request(health()).await.unwrap().status(), 200);
    assert_eq!(newer.send_request(health()).await.unwrap().status(), 200);
}

/// A worker that serves TLS: what comes in by it is handed on to a plain one.
async fn encrypted(worker: std::net::SocketAddr, authority: &Authority) -> std::net::SocketAddr {
    let tls = Tls::read(authority.cert.clone(), authority.key.clone(), H2_AND_HTTP1).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = tls.acceptor();
            tokio::spawn(async move {
                // A client that does not like the certificate goes away.
                let Ok(mut outer) = acceptor.accept(stream).await else {
                    return;
                };
                let mut inner = TcpStream::connect(worker).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn workers_that_serve_tls_are_believed_by_their_authority_and_name_alone() {
    let temp = tempfile::tempdir().unwrap();
    let authority = |name: &str| Authority::create(&temp.path().join(name)).unwrap();
    let (ours, others) = (authority("ours"), authority("others"));
    let worker = Worker::start().await;
    let address = encrypted(worker.address, &ours).await;
    let running = Running::start(&[]).await;
    let serve = |ca: &Path, name: Option<&str>| {
        let mut group = spec("demo", KEY, &[address]);
        group.workers[0].tls = Some(Arc::new(WorkerTls {
            ca: ca.to_owned(),
            name: name.map(str::to_owned),
        }));
        running.groups.set(&group);
    };
    // By the address, and by a name.
    serve(&ours.ca, None);
    assert_eq!(running.call("echo").await.status, 200);
    serve(&ours.ca, Some("localhost"));
    assert_eq!(running.call("echo").await.status, 200);
    assert_eq!(worker.began(), 2);
    for (ca, name) in [
        (&others.ca, None),
        (&ours.ca, Some("somebody.example")),
        (&temp.path().join("none"), None),
        (&ours.key, None),
    ] {
        serve(ca, name);
        assert_eq!(running.call("echo").await.status, 503, "{ca:?} {name:?}");
    }
    assert_eq!(worker.began(), 2);
    // The authority's file is read for each connection: one that was mended counts.
    let mended = temp.path().join("mended");
    serve(&mended, None);
    assert_eq!(running.call("echo").await.status, 503);
    fs::copy(&ours.ca, &mended).unwrap();
    assert_eq!(running.call("echo").await.status, 200);
}
