//! What the token of a group's pods opens, and what becomes of layers.

use std::time::SystemTime;

use http::Method;
use tokio::sync::mpsc;

use super::super::*;
use super::port::{Archive, Port, layer_path};
use crate::testing::web;

#[tokio::test]
async fn pods_read_layers_by_their_digest_with_the_token_of_their_group() {
    let port = Port::start().await;
    let code = port.code("x").await;
    let group = GroupKey::new("team-a", "calc");
    let token = port.artifacts.read_token(&group);
    let path = layer_path(Kind::Code, &code);
    let got = port.get(&path, &token).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.header("content-type"), Some("application/zstd"));
    assert_eq!(got.body.len() as u64, code.size);
    assert_eq!(ramen_source::Digest::of(&got.body).to_string(), code.digest);
    for wrong in ["", "rar_", "rar_team-a_calc_", "rar_team-b_calc_00", "x"] {
        assert_eq!(
            port.get(&path, &Secret::from(wrong)).await.status,
            401,
            "{wrong}"
        );
    }
    let bearer = format!("Bearer {}", token.expose());
    for headers in [
        vec![],
        vec![("authorization", token.expose().as_str())],
        vec![
            ("authorization", bearer.as_str()),
            ("authorization", bearer.as_str()),
        ],
    ] {
        let got = web::send(port.address, Method::GET, &path, &headers, "").await;
        assert_eq!(got.status, 401, "{headers:?}");
    }
    // Tokens are made from a key in the store: a restarted operator knows them.
    let again = Artifacts::open(Store::open(port.artifacts.store().root()).unwrap());
    assert_eq!(again.await.unwrap().read_token(&group), token);
}

#[tokio::test]
async fn a_part_of_a_layer_cannot_be_asked_for() {
    let port = Port::start().await;
    let code = port.code("x").await;
    let bearer = format!(
        "Bearer {}",
        port.artifacts.read_token(&GroupKey::new("a", "b")).expose()
    );
    for range in [
        "bytes=0-3",
        "bytes=5-",
        "bytes=-1",
        "bytes=9999999-",
        "lines=1-2",
    ] {
        let headers = [("authorization", bearer.as_str()), ("range", range)];
        let path = layer_path(Kind::Code, &code);
        let got = web::send(port.address, Method::GET, &path, &headers, "").await;
        assert_eq!(
            (got.status, got.header("accept-ranges")),
            (200, Some("none")),
            "{range}"
        );
        assert_eq!(got.body.len() as u64, code.size, "{range}");
    }
}

#[tokio::test]
async fn a_layer_that_is_not_there_wakes_its_group() {
    let port = Port::start().await;
    let (woken, mut wakes) = mpsc::unbounded_channel();
    port.artifacts
        .on_lost(move |group| woken.send(group.clone()).unwrap());
    let group = GroupKey::new("team-a", "calc");
    let token = port.artifacts.read_token(&group);
    let path = format!("/v1/layers/deps/{}", Archive::of("lost").digest);
    for _ in 0..5 {
        assert_eq!(port.get(&path, &token).await.status, 404);
    }
    assert_eq!(wakes.recv().await, Some(group.clone()));
    assert!(wakes.try_recv().is_err(), "five pods are one loss");
    assert!(port.artifacts.take_lost(&group) && !port.artifacts.take_lost(&group));
}

#[tokio::test]
async fn a_damaged_layer_is_never_given_whole_and_is_made_again() {
    let port = Port::start().await;
    let code = port.code(&"long enough to matter ".repeat(100)).await;
    let token = port.artifacts.read_token(&GroupKey::new("team-a", "calc"));
    let blobs = port.artifacts.store().root().join("blobs");
    let name = port.files("blobs").remove(0);
    let mut bytes = std::fs::read(blobs.join(&name)).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(blobs.join(&name), bytes).unwrap();
    let bearer = format!("Bearer {}", token.expose());
    let path = layer_path(Kind::Code, &code);
    let request = web::request(
        Method::GET,
        &path,
        &[("authorization", bearer.as_str())],
        http_body_util::Empty::new(),
    );
    let broken = web::exchange(port.address, request).await;
    assert!(broken.is_err(), "{broken:?}");
    assert_eq!(port.get(&path, &token).await.status, 404);
    assert_eq!(port.files("blobs"), Vec::<String>::new());
    let group = GroupKey::new("team-a", "calc");
    assert!(port.artifacts.take_lost(&group));
}

#[tokio::test]
async fn half_archives_of_a_crash_are_swept_when_they_are_old() {
    let port = Port::start().await;
    let incoming = port.artifacts.store().root().join("incoming");
    std::fs::create_dir_all(&incoming).unwrap();
    for name in ["old", "young"] {
        std::fs::write(incoming.join(name), "half").unwrap();
    }
    let old = std::fs::File::options()
        .write(true)
        .open(incoming.join("old"))
        .unwrap();
    old.set_modified(SystemTime::now() - Duration::from_hours(25))
        .unwrap();
    endpoint::sweep(port.artifacts.store());
    assert_eq!(port.files("incoming"), ["young"]);
}
