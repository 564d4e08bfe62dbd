//! The endpoint over a bucket of a real S3 server.

use ramen_source::store::Bucket;
use ramen_source::testing::S3;

use super::super::*;
use super::port::{Archive, Port, layer_path, reference, report};

fn store(server: &S3, dir: &std::path::Path) -> Store {
    let bucket = Bucket::new("s3://ramen/team", server.variables()).unwrap();
    Store::in_bucket(&bucket, dir).unwrap()
}

#[tokio::test]
async fn two_replicas_share_a_bucket_and_an_outage_of_it_passes() {
    let mut server = S3::start(([127, 0, 0, 1], 0).into()).await.unwrap();
    let folder = |name: &str| tempfile::Builder::new().prefix(name).tempdir().unwrap();
    let (one, two) = (folder("one"), folder("two"));
    let (first, second) = (store(&server, one.path()), store(&server, two.path()));
    let port = Port::in_store(one, first).await;
    let standby = Port::in_store(two, second).await;
    port.leads.begin();

    let mut deploy = port.deploy("calc", "1").await;
    // More than goes up in one piece.
    let archive = Archive::of(&"requirements ".repeat(1 << 20));
    let deps = reference(&port.put_deps(&deploy, "k", &archive).await);
    let body = report(&deploy, Some(&deps));
    assert_eq!(
        port.put(&deploy.path("report"), &deploy.token, body)
            .await
            .status,
        204
    );
    assert!(deploy.reports.wait_for(Option::is_some).await.is_ok());

    // The key for read tokens is the same, whoever made it.
    let pods = port.artifacts.read_token(&deploy.id.group);
    assert_eq!(pods, standby.artifacts.read_token(&deploy.id.group));
    for replica in [&port, &standby] {
        let got = replica.get(&layer_path(Kind::Deps, &deps), &pods).await;
        assert_eq!((got.status, got.body == archive.bytes), (200, true));
        let code = replica
            .get(&layer_path(Kind::Code, &deploy.code), &pods)
            .await;
        assert_eq!(
            ramen_source::Digest::of(&code.body).to_string(),
            deploy.code.digest
        );
    }
    let known = standby.artifacts.report(&deploy.id).await.unwrap();
    assert!(known.is_some(), "a replica that takes over has it");

    server.stop().await;
    let got = port.get(&layer_path(Kind::Deps, &deps), &pods).await;
    assert_eq!(got.status, 500, "a pod tries that again");
    assert!(
        !port.artifacts.take_lost(&deploy.id.group),
        "nothing is lost"
    );
    server.resume().await.unwrap();
    let got = port.get(&layer_path(Kind::Deps, &deps), &pods).await;
    assert_eq!(got.status, 200);

    // Damage in the bucket is found, and the layer is made again.
    let blob = server.file(&format!("team/blobs/{}.tar.zst", archive.digest.hex()));
    let mut bytes = std::fs::read(&blob).unwrap();
    bytes[7] ^= 1;
    std::fs::write(&blob, bytes).unwrap();
    let bearer = format!("Bearer {}", pods.expose());
    let path = layer_path(Kind::Deps, &deps);
    let headers = [("authorization", bearer.as_str())];
    let empty = http_body_util::Empty::new();
    let request = crate::testing::web::request(http::Method::GET, &path, &headers, empty);
    assert!(
        crate::testing::web::exchange(port.address, request)
            .await
            .is_err()
    );
    assert_eq!(port.get(&path, &pods).await.status, 404);
    assert!(port.artifacts.take_lost(&deploy.id.group));
}
