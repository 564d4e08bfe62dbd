use super::*;
use crate::{
    Tree,
    layer::{PackOptions, code_dir, pack_dir, pack_tree},
    tree::TreeFile,
};

struct Setup {
    dir: tempfile::TempDir,
    store: Store,
    cache: Cache,
}

impl Setup {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        let cache = Cache::open(&dir.path().join("cache")).unwrap();
        Self { dir, store, cache }
    }

    fn layer(&self, text: &str) -> Layer {
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
            self.dir.path(),
        )
        .unwrap()
    }

    fn temp_folders(&self) -> usize {
        let entries = fs::read_dir(self.cache.root()).unwrap();
        entries
            .filter(|e| {
                e.as_ref()
                    .unwrap()
                    .file_name()
                    .to_str()
                    .unwrap()
                    .starts_with(TEMP_PREFIX)
            })
            .count()
    }
}

#[tokio::test]
async fn a_layer_is_unpacked_once_and_then_used_again() {
    let setup = Setup::new();
    let layer = setup.layer("x = 1");
    let put = setup.store.put(Kind::Code, "k", &layer).await.unwrap();
    let dir = setup
        .cache
        .ready(&setup.store, Kind::Code, &put)
        .await
        .unwrap();
    assert_eq!(dir, setup.cache.root().join(layer.digest.dir_name()));
    let file = code_dir(&dir).join("tools/a/a.py");
    assert_eq!(fs::read_to_string(&file).unwrap(), "x = 1");
    // The archive is not needed any more.
    setup.store.remove_blob(layer.digest).await.unwrap();
    assert_eq!(
        setup
            .cache
            .ready(&setup.store, Kind::Code, &put)
            .await
            .unwrap(),
        dir
    );
    assert_eq!(setup.temp_folders(), 0);
}

#[tokio::test]
async fn a_corrupt_layer_is_named_removed_and_built_again() {
    let setup = Setup::new();
    let layer = setup.layer("x = 1");
    let put = setup.store.put(Kind::Code, "k", &layer).await.unwrap();
    let blob = setup
        .store
        .root()
        .join("blobs")
        .join(format!("{}.tar.zst", layer.digest.hex()));
    let mut bytes = fs::read(&blob).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&blob, bytes).unwrap();
    let error = setup
        .cache
        .ready(&setup.store, Kind::Code, &put)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, CacheError::Corrupt { key, .. } if key == "k"),
        "{error}"
    );
    assert!(error.needs_rebuild());
    assert_eq!(error.reason(), ramen_group::Reason::LayerCorrupt);
    assert_eq!(setup.store.find(Kind::Code, "k").await.unwrap(), None);
    assert!(!setup.cache.path_of(layer.digest).exists());
    assert_eq!(setup.temp_folders(), 0);
    let error = setup
        .cache
        .ready(&setup.store, Kind::Code, &put)
        .await
        .unwrap_err();
    assert_eq!(error.reason(), ramen_group::Reason::LayerMissing);
    setup.store.put(Kind::Code, "k", &layer).await.unwrap();
    setup
        .cache
        .ready(&setup.store, Kind::Code, &put)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_get_one_whole_folder() {
    let setup = Setup::new();
    let source = setup.dir.path().join("source");
    for n in 0..200 {
        let package = source.join(format!("p{}", n % 7));
        fs::create_dir_all(&package).unwrap();
        fs::write(package.join(format!("{n}.py")), n.to_string()).unwrap();
    }
    let layer = pack_dir(&source, setup.dir.path(), PackOptions::DEPS, &mut |_| {}).unwrap();
    let put = setup.store.put(Kind::Deps, "k", &layer).await.unwrap();
    // Two caches on one folder stand for two processes.
    let other = Cache::open(setup.cache.root()).unwrap();
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let cache = if n % 2 == 0 {
                setup.cache.clone()
            } else {
                other.clone()
            };
            let (store, put) = (setup.store.clone(), put.clone());
            tokio::spawn(async move { cache.ready(&store, Kind::Deps, &put).await.unwrap() })
        })
        .collect();
    for task in tasks {
        let dir = task.await.unwrap();
        assert_eq!(count(&dir).unwrap().files, 200);
    }
    assert_eq!(setup.temp_folders(), 0);
}

#[tokio::test]
async fn a_folder_that_lost_files_is_unpacked_again_at_the_next_start() {
    let setup = Setup::new();
    let layer = setup.layer("x = 1");
    let put = setup.store.put(Kind::Code, "k", &layer).await.unwrap();
    let dir = setup
        .cache
        .ready(&setup.store, Kind::Code, &put)
        .await
        .unwrap();
    let file = code_dir(&dir).join("tools/a/a.py");
    // What Python leaves there is no reason.
    let cached = code_dir(&dir).join("tools/a/__pycache__");
    fs::create_dir(&cached).unwrap();
    fs::write(cached.join("a.pyc"), "x").unwrap();
    let restarted = Cache::open(setup.cache.root()).unwrap();
    restarted
        .ready(&setup.store, Kind::Code, &put)
        .await
        .unwrap();
    assert!(cached.exists());
    // A power cut: the file is there, its bytes are not.
    fs::write(&file, "").unwrap();
    let restarted = Cache::open(setup.cache.root()).unwrap();
    restarted
        .ready(&setup.store, Kind::Code, &put)
        .await
        .unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "x = 1");
}

#[tokio::test]
async fn a_crash_leaves_nothing_behind_and_prune_keeps_what_is_in_use() {
    let setup = Setup::new();
    let left = setup.cache.root().join(".tmp-crash");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("half"), "x").unwrap();
    let second = Cache::open(setup.cache.root()).unwrap();
    assert!(left.exists(), "it may be the other user's");
    let (a, b) = (setup.layer("a"), setup.layer("b"));
    for (key, layer) in [("a", &a), ("b", &b)] {
        let put = setup.store.put(Kind::Code, key, layer).await.unwrap();
        setup
            .cache
            .ready(&setup.store, Kind::Code, &put)
            .await
            .unwrap();
    }
    // Another process uses one of them.
    let put = setup.store.find(Kind::Code, "b").await.unwrap().unwrap();
    let in_use = second.ready(&setup.store, Kind::Code, &put).await.unwrap();
    assert_eq!(setup.cache.prune(&[]).unwrap(), 1);
    assert!(in_use.exists() && !setup.cache.path_of(a.digest).exists());
    let put = setup.store.find(Kind::Code, "a").await.unwrap().unwrap();
    setup
        .cache
        .ready(&setup.store, Kind::Code, &put)
        .await
        .unwrap();
    assert_eq!(
        setup.cache.release(&[]).unwrap(),
        1,
        "only what it used itself"
    );
    setup
        .cache
        .ready(&setup.store, Kind::Code, &put)
        .await
        .unwrap();
    assert_eq!(second.release(&[]).unwrap(), 1, "now nobody uses it");
    assert!(!in_use.exists());
    let put = setup.store.find(Kind::Code, "b").await.unwrap().unwrap();
    setup
        .cache
        .ready(&setup.store, Kind::Code, &put)
        .await
        .unwrap();
    assert_eq!(setup.cache.prune(&[a.digest]).unwrap(), 1);
    assert!(setup.cache.path_of(a.digest).exists());
    assert!(!setup.cache.path_of(b.digest).exists());
    let again = setup.store.find(Kind::Code, "b").await.unwrap().unwrap();
    setup
        .cache
        .ready(&setup.store, Kind::Code, &again)
        .await
        .unwrap();
    let root = setup.cache.root().to_owned();
    drop((setup.cache, second));
    let _third = Cache::open(&root).unwrap();
    assert!(!left.exists());
}

#[tokio::test]
async fn a_folder_that_was_just_packed_is_taken_over() {
    let setup = Setup::new();
    let source = setup.dir.path().join("source");
    fs::create_dir_all(source.join("p/__pycache__")).unwrap();
    fs::write(source.join("p/a.py"), "x").unwrap();
    fs::write(source.join("p/__pycache__/a.pyc"), "y").unwrap();
    let pack = || pack_dir(&source, setup.dir.path(), PackOptions::DEPS, &mut |_| {}).unwrap();
    let layer = pack();
    let put = setup.store.put(Kind::Deps, "k", &layer).await.unwrap();
    assert!(setup.cache.adopt(&source, &layer).await.unwrap());
    assert!(!source.exists());
    // The archive is not looked at.
    setup.store.remove_blob(layer.digest).await.unwrap();
    let dir = setup
        .cache
        .ready(&setup.store, Kind::Deps, &put)
        .await
        .unwrap();
    assert_eq!(fs::read_to_string(dir.join("p/a.py")).unwrap(), "x");
    // One that changed since, or holds links, is not.
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("a.py"), "1").unwrap();
    let layer = pack();
    fs::write(source.join("b.py"), "1").unwrap();
    assert!(!setup.cache.adopt(&source, &layer).await.unwrap());
    fs::remove_file(source.join("b.py")).unwrap();
    std::os::unix::fs::symlink("a.py", source.join("b.py")).unwrap();
    let layer = pack();
    assert!(!setup.cache.adopt(&source, &layer).await.unwrap());
    assert!(source.join("a.py").exists() && !source.join(STAMP_FILE).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn pruning_beside_use_never_takes_a_layer_away_from_its_user() {
    let setup = Setup::new();
    let layer = setup.layer("x = 1");
    let put = setup.store.put(Kind::Code, "k", &layer).await.unwrap();
    let other = Cache::open(setup.cache.root()).unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let pruner = {
        let (other, stop) = (other.clone(), Arc::clone(&stop));
        std::thread::spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                other.prune(&[]).unwrap();
            }
        })
    };
    for _ in 0..100 {
        // The pruner may win a few times; then it is an error, never a folder that vanishes.
        if let Ok(dir) = setup.cache.ready(&setup.store, Kind::Code, &put).await {
            let text = fs::read_to_string(code_dir(&dir).join("tools/a/a.py")).unwrap();
            assert_eq!(text, "x = 1");
            setup.cache.release(&[]).unwrap();
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    pruner.join().unwrap();
}
