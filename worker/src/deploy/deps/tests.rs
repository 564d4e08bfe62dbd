use std::collections::{BTreeMap, BTreeSet};

use super::local::tree_hash;
use super::lock::{packages, split_lock, with_pinned_hashes};

const LOCK: &str = "alpha==1.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\nbeta[x]==2.0 ; python_version > '3' \\\n    --hash=sha256:cc\ngamma @ git+https://git.test/g@0123\n";

#[test]
fn the_hashes_of_the_file_replace_those_of_the_index() {
    let pinned = BTreeMap::from([("beta".to_owned(), BTreeSet::from(["sha256:dd".to_owned()]))]);
    let lock = with_pinned_hashes(LOCK, &pinned);
    assert!(
        lock.contains("--hash=sha256:dd") && !lock.contains("--hash=sha256:cc"),
        "{lock}"
    );
    assert!(lock.contains("--hash=sha256:aa"), "{lock}");
    assert_eq!(with_pinned_hashes(LOCK, &BTreeMap::new()), LOCK);
}

#[test]
fn what_cannot_have_a_hash_is_installed_apart() {
    let (hashed, unhashed) = split_lock(LOCK);
    assert_eq!(unhashed, "gamma @ git+https://git.test/g@0123\n");
    assert_eq!(packages(&hashed), 2);
    assert_eq!(packages(LOCK), 3);
}

#[test]
fn a_folder_has_another_hash_when_a_file_in_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(dir.path().join("sub/a"), "1").unwrap();
    let before = tree_hash(dir.path());
    assert_eq!(before, tree_hash(dir.path()));
    std::fs::write(dir.path().join("sub/a"), "2").unwrap();
    assert_ne!(before, tree_hash(dir.path()));
}

#[test]
fn only_the_newest_locks_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let locks = dir.path().join("locks");
    std::fs::create_dir(&locks).unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH;
    for number in 0..super::LOCKS {
        let file = std::fs::File::create(locks.join(format!("{number}.txt"))).unwrap();
        file.set_modified(old + std::time::Duration::from_secs(number as u64))
            .unwrap();
    }
    super::remember(&locks.join("new.txt"), "alpha==1.0\n").unwrap();
    assert_eq!(std::fs::read_dir(&locks).unwrap().count(), super::LOCKS);
    assert!(locks.join("new.txt").exists() && !locks.join("0.txt").exists());
}
