//! TLS on the gRPC port.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::harness::{Client, KEY, eventually};
use crate::{group, setup};

/// A certificate for `localhost` that is its own authority, and its key.
fn certificate(dir: &Path) {
    let made = Command::new("openssl")
        .current_dir(dir)
        .args([
            "req",
            "-x509",
            "-nodes",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
        ])
        .args([
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-days",
            "2",
        ])
        .args(["-keyout", "key.new", "-out", "cert.pem"])
        .output()
        .expect("openssl makes certificates for tests: install it");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    std::fs::rename(dir.join("key.new"), dir.join("key.pem")).unwrap();
}

async fn connect(
    address: std::net::SocketAddr,
    cert: &Path,
) -> Result<Channel, tonic::transport::Error> {
    let trusted = Certificate::from_pem(std::fs::read(cert).unwrap());
    let tls = ClientTlsConfig::new()
        .ca_certificate(trusted)
        .domain_name("localhost");
    let port = address.port();
    Endpoint::from_shared(format!("https://127.0.0.1:{port}"))?
        .tls_config(tls)?
        .connect()
        .await
}

#[tokio::test]
async fn calls_and_sessions_work_over_tls_and_a_renewed_certificate_is_taken() {
    let setup = setup();
    let dir = setup.dir().to_path_buf();
    certificate(&dir);
    let setup = setup.with(|args| {
        args.tls_cert = Some(dir.join("cert.pem"));
        args.tls_key = Some(dir.join("key.pem"));
    });
    let running = setup.serve(&group(&["echo"])).await;
    let client = Client::new(
        connect(running.grpc, &dir.join("cert.pem")).await.unwrap(),
        Some(KEY),
    );
    assert_eq!(client.text("echo", json!({})).await, "{}");
    let mut session = client.session().await;
    session
        .send(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        .await;
    assert_eq!(session.next().await["id"], 1);

    // Without TLS nothing is answered, and the port goes on.
    let plain = Endpoint::from_shared(format!("http://{}", running.grpc))
        .unwrap()
        .connect_lazy();
    assert!(
        Client::new(plain, Some(KEY))
            .try_tool("echo", json!({}))
            .await
            .is_err()
    );

    certificate(&dir);
    assert!(
        connect(running.grpc, &dir.join("cert.pem")).await.is_err(),
        "still the old one"
    );
    running.worker().refresh();
    let renewed = eventually("the new certificate", async || {
        connect(running.grpc, &dir.join("cert.pem")).await.ok()
    })
    .await;
    assert_eq!(
        Client::new(renewed, Some(KEY))
            .text("echo", json!({}))
            .await,
        "{}"
    );
    assert_eq!(
        client.text("echo", json!({})).await,
        "{}",
        "the old connection lives"
    );
}

#[tokio::test]
async fn a_broken_renewal_keeps_the_old_certificate() {
    let setup = setup();
    let dir = setup.dir().to_path_buf();
    certificate(&dir);
    std::fs::copy(dir.join("cert.pem"), dir.join("old.pem")).unwrap();
    let setup = setup.with(|args| {
        args.tls_cert = Some(dir.join("cert.pem"));
        args.tls_key = Some(dir.join("key.pem"));
    });
    let running = setup.serve(&group(&["echo"])).await;
    std::fs::write(dir.join("cert.pem"), "nothing").unwrap();
    running.worker().refresh();
    assert!(connect(running.grpc, &dir.join("old.pem")).await.is_ok());
}
