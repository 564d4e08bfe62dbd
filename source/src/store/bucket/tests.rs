//! Stores in buckets: of a real S3 server (s3s over a folder), of the same with the login and the headers of Google Cloud Storage in
//! front of it, and of the emulator of Azure Blob Storage.

mod site;

use std::{io::Read as _, time::Duration};

use self::site::Site;
use super::super::tests::layer;
use super::super::*;
use crate::testing::S3;
use crate::{Cache, cache::CacheError, layer::Incoming};

async fn s3() -> S3 {
    S3::start(([127, 0, 0, 1], 0).into()).await.unwrap()
}

fn variables(all: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    all.iter().map(own).collect()
}

fn open(server: &S3, place: &str, dir: &Path) -> Store {
    let bucket = Bucket::new(&format!("s3://{place}"), server.variables()).unwrap();
    Store::in_bucket(&bucket, dir).unwrap()
}

/// Bytes that no compression makes small.
async fn noise(dir: &Path, size: usize) -> Layer {
    let mut bytes = Vec::with_capacity(size + 8);
    let mut state = 1_u64;
    while bytes.len() < size {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    let mut incoming = Incoming::new(dir, u64::MAX).unwrap();
    incoming.write(&bytes).await.unwrap();
    incoming.finish(Digest::of(&bytes)).await.unwrap()
}

async fn bytes(store: &Store, layer: &LayerRef) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut file = store.open_layer(layer).await.unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

async fn all_of_it(site: &Site) {
    a_bucket_does_what_a_folder_does(site).await;
    a_large_layer_goes_up_in_pieces_and_comes_back_whole(site).await;
    prefixes_of_one_bucket_are_apart_and_prune_keeps_what_is_named(site).await;
    what_was_put_first_under_a_name_stays(site).await;
    a_bucket_that_is_not_there_is_told(site).await;
    wrong_credentials_are_told_and_show_none(site).await;
}

#[tokio::test]
async fn buckets_of_s3() {
    all_of_it(&Site::s3().await).await;
}

#[tokio::test]
async fn buckets_of_google_cloud_storage() {
    all_of_it(&Site::google().await).await;
}

#[tokio::test]
async fn buckets_of_azure_blob_storage() {
    if let Some(site) = Site::azure() {
        all_of_it(&site).await;
    }
}

async fn a_bucket_does_what_a_folder_does(site: &Site) {
    let dir = tempfile::tempdir().unwrap();
    let store = site.open("ramen/team/layers", dir.path());
    assert!(!store.is_folder());
    let small = layer(dir.path(), "one");
    assert_eq!(store.find(Kind::Code, "k").await.unwrap(), None);
    let put = store.put(Kind::Code, "k", &small).await.unwrap();
    assert_eq!(
        store.find(Kind::Code, "k").await.unwrap(),
        Some(put.clone())
    );
    assert_eq!(store.find(Kind::Deps, "k").await.unwrap(), None);
    assert_eq!(Digest::of(&bytes(&store, &put).await), small.digest);
    // Another replica, with a folder of its own, sees the same.
    let elsewhere = tempfile::tempdir().unwrap();
    let other = site.open("ramen/team/layers", elsewhere.path());
    assert_eq!(
        other.find(Kind::Code, "k").await.unwrap(),
        Some(put.clone())
    );

    assert_eq!(store.memo("m").await.unwrap(), None);
    store.put_memo("m", "text").await.unwrap();
    store.put_memo("m", "newer").await.unwrap();
    assert_eq!(other.memo("m").await.unwrap().as_deref(), Some("newer"));
    assert_eq!(
        store
            .prune_memos("m", Duration::from_hours(1))
            .await
            .unwrap(),
        0
    );
    assert_eq!(store.prune_memos("m", Duration::ZERO).await.unwrap(), 1);
    assert_eq!(other.memo("m").await.unwrap(), None);
    store.remove_memo("m").await.unwrap();

    store.remove_blob(small.digest).await.unwrap();
    store.remove_blob(small.digest).await.unwrap();
    assert_eq!(
        store.find(Kind::Code, "k").await.unwrap(),
        None,
        "an entry without its blob"
    );
    let missing = store.open_layer(&put).await.unwrap_err();
    assert!(matches!(missing, StoreError::Missing { .. }), "{missing}");
    store.put(Kind::Code, "k", &small).await.unwrap();
    assert!(other.find(Kind::Code, "k").await.unwrap().is_some());
    for key in ["../x", "a/b", ""] {
        assert!(store.find(Kind::Code, key).await.is_err(), "{key}");
    }
}

async fn a_large_layer_goes_up_in_pieces_and_comes_back_whole(site: &Site) {
    let dir = tempfile::tempdir().unwrap();
    let store = site.open("ramen/layers", dir.path());
    // Three pieces, the last one small.
    let large = noise(dir.path(), 2 * PIECE + 1000).await;
    let put = store.put(Kind::Deps, "large", &large).await.unwrap();
    assert_eq!(
        store.find(Kind::Deps, "large").await.unwrap(),
        Some(put.clone())
    );
    assert_eq!(Digest::of(&bytes(&store, &put).await), large.digest);
    assert_eq!(store.put(Kind::Deps, "large", &large).await.unwrap(), put);
}

async fn prefixes_of_one_bucket_are_apart_and_prune_keeps_what_is_named(site: &Site) {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = site.open("ramen/one", one.path());
    let second = site.open("ramen/two", two.path());
    let (a, b) = (layer(dir.path(), "a"), layer(dir.path(), "b"));
    let kept = first.put(Kind::Code, "a", &a).await.unwrap();
    first.put(Kind::Code, "b", &b).await.unwrap();
    second.put(Kind::Code, "b", &b).await.unwrap();
    let young = first.prune(&[], Duration::from_hours(1)).await.unwrap();
    assert_eq!(young, Pruned::default());
    let keep = std::slice::from_ref(&kept);
    let pruned = first.prune(keep, Duration::ZERO).await.unwrap();
    assert_eq!((pruned.entries, pruned.blobs, pruned.bytes), (1, 1, b.size));
    assert_eq!(first.find(Kind::Code, "a").await.unwrap(), Some(kept));
    assert_eq!(first.find(Kind::Code, "b").await.unwrap(), None);
    assert!(second.find(Kind::Code, "b").await.unwrap().is_some());
    // The whole bucket is a place as well.
    let whole = site.open("ramen", dir.path());
    assert_eq!(whole.find(Kind::Code, "a").await.unwrap(), None);
}

async fn what_was_put_first_under_a_name_stays(site: &Site) {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let local = Store::open(folder.path()).unwrap();
    for (first, second) in [
        (
            site.open("ramen/x", one.path()),
            site.open("ramen/x", two.path()),
        ),
        (local.clone(), local),
    ] {
        assert_eq!(first.first("key", b"mine".to_vec()).await.unwrap(), b"mine");
        assert_eq!(
            second.first("key", b"yours".to_vec()).await.unwrap(),
            b"mine"
        );
        assert_eq!(
            first.first("key", b"again".to_vec()).await.unwrap(),
            b"mine"
        );
        assert!(first.first("../key", Vec::new()).await.is_err());
    }
}

/// As it is told to people.
fn told(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

async fn a_bucket_that_is_not_there_is_told(site: &Site) {
    let dir = tempfile::tempdir().unwrap();
    let store = site.open("ramem/layers", dir.path());
    let layer = layer(dir.path(), "one");
    for error in [
        store.first("key", b"mine".to_vec()).await.unwrap_err(),
        store.put(Kind::Code, "k", &layer).await.unwrap_err(),
        store.put_memo("m", "text").await.unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::NoBucket { .. }), "{error:?}");
        assert!(told(&error).contains("ramem"), "{}", told(&error));
    }
}

async fn wrong_credentials_are_told_and_show_none(site: &Site) {
    let dir = tempfile::tempdir().unwrap();
    let layer = layer(dir.path(), "one");
    for (store, secret) in site.open_as_strangers(dir.path()) {
        for error in [
            store.first("key", b"mine".to_vec()).await.unwrap_err(),
            store.find(Kind::Code, "k").await.unwrap_err(),
            store.memo("m").await.unwrap_err(),
            store.put(Kind::Code, "k", &layer).await.unwrap_err(),
            store.prune(&[], Duration::ZERO).await.unwrap_err(),
        ] {
            // The library does not say what became of a list.
            let list = matches!(&error, StoreError::Read { what, .. } if what == "code");
            assert!(
                list || matches!(error, StoreError::Refused { .. }),
                "{error:?}"
            );
            let text = format!("{} {error:?} {store:?}", told(&error));
            assert!(!text.contains(&secret), "{text}");
        }
    }
}

#[tokio::test]
async fn a_cache_unpacks_from_a_bucket_and_finds_damage() {
    let server = s3().await;
    let dir = tempfile::tempdir().unwrap();
    let store = open(&server, "ramen/layers", &dir.path().join("spool"));
    let small = layer(dir.path(), "one");
    let put = store.put(Kind::Code, "k", &small).await.unwrap();
    let cache = Cache::open(&dir.path().join("cache")).unwrap();
    let folder = cache.ready(&store, Kind::Code, &put).await.unwrap();
    assert!(
        crate::layer::code_dir(&folder)
            .join("tools/a/a.py")
            .is_file()
    );
    let blob = server.file(&format!("layers/blobs/{}.tar.zst", small.digest.hex()));
    let mut damaged = fs::read(&blob).unwrap();
    damaged[10] ^= 1;
    fs::write(&blob, damaged).unwrap();
    let fresh = Cache::open(&dir.path().join("fresh")).unwrap();
    let error = fresh.ready(&store, Kind::Code, &put).await.unwrap_err();
    assert!(matches!(error, CacheError::Corrupt { .. }), "{error}");
    assert!(!blob.exists(), "it is made again");
}

#[tokio::test]
async fn an_outage_is_an_error_and_passes() {
    let mut server = s3().await;
    let dir = tempfile::tempdir().unwrap();
    let store = open(&server, "ramen/layers", dir.path());
    let small = layer(dir.path(), "one");
    let put = store.put(Kind::Code, "k", &small).await.unwrap();
    server.stop().await;
    let error = store.find(Kind::Code, "k").await.unwrap_err();
    assert!(matches!(error, StoreError::Read { .. }), "{error:?}");
    let error = store.put_memo("m", "x").await.unwrap_err();
    assert!(matches!(error, StoreError::Write { .. }), "{error:?}");
    // Nothing is taken for gone, which would have it made again.
    let error = store.open_layer(&put).await.unwrap_err();
    assert!(matches!(error, StoreError::Read { .. }), "{error:?}");
    server.resume().await.unwrap();
    assert_eq!(store.find(Kind::Code, "k").await.unwrap(), Some(put));
}

#[test]
fn addresses_name_a_provider_a_bucket_and_a_prefix() {
    for address in ["s3://bucket", "gs://bucket/a/b", "az://container/x"] {
        assert!(Bucket::is_address(address), "{address}");
    }
    for folder in [
        "/var/lib/ramen/store",
        "store",
        "file:///x",
        "http://x/y",
        "s3:/x",
        "",
    ] {
        assert!(!Bucket::is_address(folder), "{folder}");
        let error = Bucket::new(folder, []).unwrap_err();
        assert!(matches!(error, BucketInvalid::Address { .. }), "{error}");
    }
    for address in [
        "s3://",
        "s3:///x",
        "s3://key:secret@bucket/x",
        "s3://bucket:99/x",
        "s3://bucket/x?y",
        "s3://bucket/x#y",
        "s3://bucket/a//b",
    ] {
        let error = Bucket::new(address, []).unwrap_err();
        assert!(
            matches!(error, BucketInvalid::Address { .. }),
            "{address}: {error}"
        );
    }
}

#[test]
fn each_provider_is_made_from_its_own_variables() {
    let s3 = [
        ("AWS_REGION", "eu-central-1"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/run/token"),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
    ];
    let google = [(
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        r#"{"private_key": "k", "private_key_id": "i", "client_email": "e", "gcs_base_url": "https://storage.example", "disable_oauth": true}"#,
    )];
    let azure = [
        ("AZURE_STORAGE_ACCOUNT_NAME", "ramen"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0"),
    ];
    for (address, own) in [
        ("s3://bucket/x", &s3[..]),
        ("gs://bucket/x", &google),
        ("az://container/x", &azure),
    ] {
        // Those of another tool, or of nobody, are passed over.
        let others = [
            ("PATH", "/bin"),
            ("AWS_PAGER", "less"),
            ("AZURE_CONFIG_DIR", "/x"),
            ("GOOGLE_CLOUD_PROJECT", "p"),
        ];
        let all = variables(&[own, &others].concat());
        let bucket = Bucket::new(address, all).unwrap();
        assert_eq!(format!("{bucket:?}"), format!("Bucket({address:?})"));
    }
    let error = Bucket::new("az://container/x", []).unwrap_err();
    assert!(matches!(error, BucketInvalid::Variables { .. }), "{error}");
    let odd = variables(&[("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "perhaps")]);
    let error = Bucket::new("s3://bucket", odd).unwrap_err();
    assert!(error.to_string().contains("perhaps"), "{error}");
}
