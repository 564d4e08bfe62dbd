use std::{io::Read, time::Duration};

use super::*;
use crate::{Tree, layer::pack_tree, tree::TreeFile};

pub(super) fn layer(scratch: &Path, text: &str) -> Layer {
    let data = text.as_bytes().to_vec();
    let files = vec![TreeFile {
        path: "tools/a/a.py".to_owned(),
        data,
    }];
    pack_tree(
        &Tree {
            files,
            ..Tree::default()
        },
        scratch,
    )
    .unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .map(|entries| {
            entries
                .map(|e| e.unwrap().file_name().to_str().unwrap().to_owned())
                .collect()
        })
        .unwrap_or_default();
    names.sort();
    names
}

#[tokio::test]
async fn what_is_put_is_found_and_opened() {
    let dir = tempfile::tempdir().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.find(Kind::Code, "k").await.unwrap(), None);
    let layer = layer(scratch.path(), "one");
    let put = store.put(Kind::Code, "k", &layer).await.unwrap();
    assert_eq!(put, layer.reference("k"));
    assert_eq!(
        store.find(Kind::Code, "k").await.unwrap(),
        Some(put.clone())
    );
    assert_eq!(
        store.find(Kind::Deps, "k").await.unwrap(),
        None,
        "kinds are apart"
    );
    let mut bytes = Vec::new();
    store
        .open_layer(&put)
        .await
        .unwrap()
        .read_to_end(&mut bytes)
        .unwrap();
    assert_eq!(Digest::of(&bytes), layer.digest);
    assert_eq!(
        store.put(Kind::Code, "k", &layer).await.unwrap(),
        put,
        "putting again is fine"
    );
    // Another process sees the same.
    let other = Store::open(dir.path()).unwrap();
    assert_eq!(other.find(Kind::Code, "k").await.unwrap(), Some(put));
}

#[tokio::test]
async fn an_entry_without_its_whole_blob_counts_as_absent() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let layer = layer(dir.path(), "one");
    let put = store.put(Kind::Code, "k", &layer).await.unwrap();
    let blob = dir
        .path()
        .join("blobs")
        .join(format!("{}.tar.zst", layer.digest.hex()));
    fs::write(&blob, "short").unwrap();
    assert_eq!(store.find(Kind::Code, "k").await.unwrap(), None);
    store.remove_blob(layer.digest).await.unwrap();
    store.remove_blob(layer.digest).await.unwrap();
    assert_eq!(store.find(Kind::Code, "k").await.unwrap(), None);
    let missing = store.open_layer(&put).await.unwrap_err();
    assert!(matches!(missing, StoreError::Missing { .. }), "{missing}");
    // Building it again heals it.
    store.put(Kind::Code, "k", &layer).await.unwrap();
    assert!(store.find(Kind::Code, "k").await.unwrap().is_some());
    fs::write(dir.path().join("code/k.json"), "{half").unwrap();
    assert_eq!(store.find(Kind::Code, "k").await.unwrap(), None);
}

#[tokio::test]
async fn keys_cannot_leave_their_folder() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    for key in [
        "",
        "../x",
        "a/b",
        ".hidden",
        "a b",
        "é",
        "%2e%2e",
        &"x".repeat(129),
    ] {
        let error = store.find(Kind::Code, key).await.unwrap_err();
        assert!(matches!(error, StoreError::InvalidKey { .. }), "{key}");
    }
}

#[tokio::test]
async fn memos_are_kept_beside_the_layers() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.memo("m").await.unwrap(), None);
    store.put_memo("m", "text").await.unwrap();
    store.put_memo("m", "newer").await.unwrap();
    assert_eq!(store.memo("m").await.unwrap().as_deref(), Some("newer"));
    assert!(store.put_memo("../m", "x").await.is_err());

    store.put_memo("n", "other").await.unwrap();
    let hour = std::time::Duration::from_hours(1);
    assert_eq!(store.prune_memos("m", hour).await.unwrap(), 0);
    let now = std::time::Duration::ZERO;
    assert_eq!(store.prune_memos("m", now).await.unwrap(), 1);
    assert_eq!(store.memo("m").await.unwrap(), None);
    assert_eq!(store.memo("n").await.unwrap().as_deref(), Some("other"));
    store.remove_memo("n").await.unwrap();
    store.remove_memo("n").await.unwrap();
    assert_eq!(store.memo("n").await.unwrap(), None);
}

#[tokio::test]
async fn prune_keeps_what_is_named_and_what_is_young() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let (a, b) = (layer(dir.path(), "a"), layer(dir.path(), "b"));
    let kept = store.put(Kind::Code, "a", &a).await.unwrap();
    store.put(Kind::Code, "b", &b).await.unwrap();
    let young = store.prune(&[], Duration::from_hours(1)).await.unwrap();
    assert_eq!(young, Pruned::default());
    let pruned = store
        .prune(std::slice::from_ref(&kept), Duration::ZERO)
        .await
        .unwrap();
    assert_eq!((pruned.entries, pruned.blobs, pruned.bytes), (1, 1, b.size));
    assert_eq!(store.find(Kind::Code, "a").await.unwrap(), Some(kept));
    assert_eq!(store.find(Kind::Code, "b").await.unwrap(), None);
}

#[tokio::test]
async fn leftovers_of_a_crash_are_swept_when_nobody_else_uses_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    store
        .put(Kind::Code, "k", &layer(dir.path(), "x"))
        .await
        .unwrap();
    let staged = dir.path().join("blobs/abc.tar.zst#1");
    fs::write(&staged, "half").unwrap();
    let second = Store::open(dir.path()).unwrap();
    assert!(staged.exists(), "it may be the other user's");
    drop((store, second));
    let third = Store::open(dir.path()).unwrap();
    assert!(!staged.exists());
    assert!(third.find(Kind::Code, "k").await.unwrap().is_some());
}

/// A full disk, as far as a process can make one for itself: writes beyond the file size limit
/// fail with the kind that a full quota has. Runs in a child, since the limit is of the process.
#[test]
fn a_full_disk_is_named_and_leaves_nothing_half_written() {
    if std::env::var_os("RAMEN_TEST_FULL_DISK").is_none() {
        let me = std::env::current_exe().unwrap();
        let test = "store::tests::a_full_disk_is_named_and_leaves_nothing_half_written";
        // SIGXFSZ ignored: the write fails instead.
        let script = format!(
            "trap '' XFSZ; ulimit -f 64; exec '{}' --exact {test}",
            me.display()
        );
        let run = std::process::Command::new("bash")
            .args(["-c", &script])
            .env("RAMEN_TEST_FULL_DISK", "1")
            .output()
            .unwrap();
        assert!(
            run.status.success(),
            "{}",
            String::from_utf8_lossy(&run.stdout)
        );
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    // Made in memory: the archive itself must exist, only its copy must not fit.
    let small = layer(dir.path(), "small");
    runtime
        .block_on(store.put(Kind::Code, "small", &small))
        .unwrap();
    let mut noise = Vec::new();
    let mut state = 1_u64;
    while noise.len() < 1 << 20 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        noise.extend_from_slice(&state.to_le_bytes());
    }
    let files = vec![TreeFile {
        path: "tools/a/noise".to_owned(),
        data: noise,
    }];
    let error = pack_tree(
        &Tree {
            files,
            ..Tree::default()
        },
        dir.path(),
    )
    .unwrap_err();
    assert!(
        matches!(error, crate::layer::LayerError::DiskFull { .. }),
        "{error}"
    );
    // `/dev/zero` reads as an endless archive: the copy into the store runs into the limit.
    let endless = tempfile::Builder::new().tempfile_in(dir.path()).unwrap();
    let (_, path) = endless.into_parts();
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    let digest = Digest::of(b"endless");
    let big = Layer {
        path,
        digest,
        size: 1 << 40,
        files: 0,
        bytes: 0,
    };
    let error = runtime
        .block_on(store.put(Kind::Deps, "big", &big))
        .unwrap_err();
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error:?}");
    assert_eq!(names(&dir.path().join("deps")), Vec::<String>::new());
    let blobs = names(&dir.path().join("blobs"));
    assert_eq!(blobs, [format!("{}.tar.zst", small.digest.hex())]);
}
