//! A layer from a store that may hold anything: never a panic, nothing written outside the folder, limits held.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use ramen_source::layer::{Limits, unpack};

const LIMITS: Limits = Limits {
    entries: 50,
    file_bytes: 4096,
    total_bytes: 16384,
    path_bytes: 255,
};

fuzz_target!(|data: &[u8]| {
    let Some((&raw, data)) = data.split_first() else {
        return;
    };
    // Mostly a good zstd around a bad tar; otherwise bad zstd as well.
    let archive = if raw == 0 {
        data.to_vec()
    } else {
        zstd::encode_all(data, 1).expect("compresses")
    };
    let outer = tempfile::tempdir().expect("a temporary folder");
    let inner = outer.path().join("layer");
    std::fs::create_dir(&inner).expect("a folder");
    let unpacked = unpack(archive.as_slice(), None, &inner, LIMITS);
    let outside = std::fs::read_dir(outer.path()).expect("lists").count();
    assert_eq!(outside, 1, "something was written outside the folder");
    let (mut files, mut bytes) = (0, 0);
    count(&inner, &mut files, &mut bytes);
    assert!(bytes <= LIMITS.total_bytes, "{bytes} bytes were written");
    if let Ok(unpacked) = unpacked {
        assert_eq!((unpacked.files, unpacked.bytes), (files, bytes));
    }
});

fn count(folder: &Path, files: &mut u64, bytes: &mut u64) {
    for entry in std::fs::read_dir(folder).expect("lists").flatten() {
        let kind = entry.file_type().expect("a type");
        assert!(!kind.is_symlink(), "a link was made");
        if kind.is_dir() {
            count(&entry.path(), files, bytes);
        } else {
            *files += 1;
            *bytes += entry.metadata().expect("metadata").len();
        }
    }
}
