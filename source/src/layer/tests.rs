use std::{
    collections::BTreeMap,
    fs,
    io::{Cursor, Read, Write},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use proptest::prelude::*;

use super::*;
use crate::{Tree, tree::TreeFile};

const SMALL: Limits = Limits {
    entries: 50,
    file_bytes: 1 << 20,
    total_bytes: 2 << 20,
    path_bytes: 300,
};

fn tree(files: &[(&str, &[u8])]) -> Tree {
    let files = files
        .iter()
        .map(|(path, data)| TreeFile {
            path: (*path).to_owned(),
            data: data.to_vec(),
        })
        .collect();
    Tree {
        id: "t".to_owned(),
        files,
        ..Tree::default()
    }
}

fn zst(tar: &[u8]) -> Vec<u8> {
    zstd::encode_all(tar, 1).unwrap()
}

/// A raw header, so that paths and kinds that the tar library refuses can be written.
fn entry(name: &[u8], kind: u8, size: u64, data: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    let raw = header.as_mut_bytes();
    raw[..name.len().min(100)].copy_from_slice(&name[..name.len().min(100)]);
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_mode(0o644);
    header.set_size(size);
    header.as_gnu_mut().unwrap().linkname[..11].copy_from_slice(b"/etc/passwd");
    header.set_cksum();
    let mut out = header.as_bytes().to_vec();
    out.extend_from_slice(data);
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

fn unpack_bytes(
    archive: &[u8],
    limits: Limits,
) -> (tempfile::TempDir, Result<Unpacked, LayerError>) {
    let outer = tempfile::tempdir().unwrap();
    let dir = outer.path().join("in");
    fs::create_dir(&dir).unwrap();
    let done = unpack(Cursor::new(archive), None, &dir, limits);
    let outside: Vec<_> = fs::read_dir(outer.path()).unwrap().collect();
    assert_eq!(
        outside.len(),
        1,
        "something was written outside of the folder"
    );
    (outer, done)
}

fn files_of(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs::read(path).unwrap());
            }
        }
    }
    files
}

#[test]
fn the_same_files_always_give_the_same_bytes() {
    let scratch = tempfile::tempdir().unwrap();
    let files: &[(&str, &[u8])] = &[("tools/a/a.py", b"x = 1\n"), ("tools/a/a.json", b"{}")];
    let first = pack_tree(&tree(files), scratch.path()).unwrap();
    let reversed: Vec<_> = files.iter().rev().copied().collect();
    let second = pack_tree(&tree(&reversed), scratch.path()).unwrap();
    assert_eq!(first.digest, second.digest);
    assert_eq!(
        fs::read(first.path()).unwrap(),
        fs::read(second.path()).unwrap()
    );
    assert_eq!(first.digest, Digest::of(&fs::read(first.path()).unwrap()));
    assert_eq!((first.files, first.bytes), (2, 8));
}

#[test]
fn entries_have_no_time_no_owner_and_plain_modes() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("bin")).unwrap();
    fs::write(dir.path().join("bin/run"), "#!").unwrap();
    fs::set_permissions(
        dir.path().join("bin/run"),
        fs::Permissions::from_mode(0o4777),
    )
    .unwrap();
    fs::write(dir.path().join("data"), "d").unwrap();
    let layer = pack_dir(dir.path(), scratch.path(), PackOptions::DEPS, &mut |_| {}).unwrap();
    let decoded = zstd::decode_all(fs::File::open(layer.path()).unwrap()).unwrap();
    let mut seen = Vec::new();
    for entry in tar::Archive::new(&decoded[..]).entries().unwrap() {
        let entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.mtime().unwrap(), header.uid().unwrap()), (0, 0));
        assert_eq!(header.gid().unwrap(), 0);
        seen.push((
            entry.path().unwrap().display().to_string(),
            header.mode().unwrap(),
        ));
    }
    let expected = [("bin", 0o755), ("bin/run", 0o755), ("data", 0o644)];
    assert_eq!(seen, expected.map(|(name, mode)| (name.to_owned(), mode)));
}

#[test]
fn long_paths_survive() {
    let scratch = tempfile::tempdir().unwrap();
    let long = format!("tools/{}/{}.py", "a".repeat(64), "b".repeat(200));
    let layer = pack_tree(&tree(&[(&long, b"1")]), scratch.path()).unwrap();
    let out = tempfile::tempdir().unwrap();
    let file = fs::File::open(layer.path()).unwrap();
    unpack(file, Some(layer.digest), out.path(), Limits::CODE).unwrap();
    assert_eq!(fs::read(out.path().join("mcp").join(long)).unwrap(), b"1");
}

#[test]
fn packing_refuses_links_or_copies_the_files_they_lead_to() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lib.so.1"), "elf").unwrap();
    symlink("lib.so.1", dir.path().join("lib.so")).unwrap();
    let strict = PackOptions {
        links: Links::Refuse,
        ..PackOptions::DEPS
    };
    let error = pack_dir(dir.path(), scratch.path(), strict, &mut |_| {}).unwrap_err();
    assert!(
        error.to_string().starts_with("lib.so: a symbolic link"),
        "{error}"
    );
    let mut last = Progress::default();
    let layer = pack_dir(dir.path(), scratch.path(), PackOptions::DEPS, &mut |p| {
        last = p;
    })
    .unwrap();
    assert_eq!((layer.files, layer.bytes), (2, 6));
    assert_eq!((last.files, last.total_files, last.bytes), (2, Some(2), 6));
    for target in ["/etc/passwd", "gone", "."] {
        let bad = tempfile::tempdir().unwrap();
        symlink(target, bad.path().join("link")).unwrap();
        let packed = pack_dir(bad.path(), scratch.path(), PackOptions::DEPS, &mut |_| {});
        assert!(
            matches!(packed, Err(LayerError::NotAFile { .. })),
            "{target}"
        );
    }
}

#[test]
fn packing_keeps_its_limits() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    for n in 0..60 {
        fs::write(dir.path().join(n.to_string()), "x").unwrap();
    }
    let options = PackOptions {
        limits: SMALL,
        ..PackOptions::DEPS
    };
    let error = pack_dir(dir.path(), scratch.path(), options, &mut |_| {}).unwrap_err();
    assert!(
        matches!(error, LayerError::TooLarge { limit: 50, .. }),
        "{error}"
    );
    let left = fs::read_dir(scratch.path()).unwrap().count();
    assert_eq!(left, 0, "a failed pack leaves nothing");
}

#[test]
fn hostile_entries_are_refused_and_named() {
    let long = "a/".repeat(200);
    let cases: &[(&str, Vec<u8>)] = &[
        ("absolute", entry(b"/etc/x", b'0', 1, b"x")),
        ("a `..` part", entry(b"a/../../x", b'0', 1, b"x")),
        ("a `..` part", entry(b"..", b'5', 0, b"")),
        ("not UTF-8", entry(b"a\xff", b'0', 1, b"x")),
        ("a symbolic link", entry(b"link", b'2', 0, b"")),
        ("a hard link", entry(b"link", b'1', 0, b"")),
        ("a device", entry(b"dev", b'3', 0, b"")),
        ("a device", entry(b"dev", b'4', 0, b"")),
        ("a pipe", entry(b"pipe", b'6', 0, b"")),
        ("another kind", entry(b"sparse", b'S', 0, b"")),
        ("another kind", entry(b"pax", b'x', 0, b"")),
        ("an empty part", entry(b"a//b", b'0', 1, b"x")),
        ("backslash", entry(b"a\\b", b'0', 1, b"x")),
        ("reserved", entry(STAMP_FILE.as_bytes(), b'0', 1, b"x")),
        ("a folder with content", entry(b"d", b'5', 1 << 40, b"")),
        ("too long", entry(b"././@LongLink", b'L', 1 << 40, b"")),
        ("bytes in one file", entry(b"big", b'0', 2 << 20, b"")),
        (
            "twice",
            [entry(b"a", b'0', 1, b"x"), entry(b"a", b'0', 1, b"y")].concat(),
        ),
        (
            "twice",
            [entry(b"a", b'0', 1, b"x"), entry(b"a/b", b'0', 1, b"y")].concat(),
        ),
        (
            "twice",
            [entry(b"a/b", b'0', 1, b"x"), entry(b"a", b'0', 1, b"y")].concat(),
        ),
        (
            "too long",
            [
                entry(b"././@LongLink", b'L', 301, &[b'a'; 301]),
                entry(b"x", b'0', 0, b""),
            ]
            .concat(),
        ),
        (
            "an empty part",
            [
                entry(b"././@LongLink", b'L', 300, &long.as_bytes()[..300]),
                entry(b"/", b'0', 0, b""),
            ]
            .concat(),
        ),
        ("middle of a file", entry(b"short", b'0', 5000, b"x")),
    ];
    for (what, tar) in cases {
        let mut tar = tar.clone();
        if !what.contains("middle") {
            tar.extend([0; 1024]);
        }
        let (_dir, done) = unpack_bytes(&zst(&tar), SMALL);
        if let Err(error) = done {
            assert!(error.to_string().contains(what), "{what}: {error}");
            assert!(error.is_corrupt());
        } else {
            assert_eq!(*what, "an empty part", "{what} was let through");
        }
    }
}

#[test]
fn bombs_end_at_the_limits() {
    // 1 GiB of zeros in a few kilobytes, declared as a file of 1 byte, then as what it is.
    let mut bomb = zstd::Encoder::new(Vec::new(), 1).unwrap();
    bomb.write_all(&entry(b"x", b'0', 1 << 30, b"")).unwrap();
    std::io::copy(&mut std::io::repeat(0).take(1 << 26), &mut bomb).unwrap();
    let (_dir, done) = unpack_bytes(&bomb.finish().unwrap(), SMALL);
    assert!(matches!(done, Err(LayerError::TooLarge { .. })));
    // Many files, each within the limit of one.
    let mut tar = Vec::new();
    for n in 0..4 {
        let name = n.to_string();
        tar.extend(entry(name.as_bytes(), b'0', 1 << 20, &vec![0; 1 << 20]));
    }
    let (_dir, done) = unpack_bytes(&zst(&tar), SMALL);
    assert!(matches!(
        done,
        Err(LayerError::TooLarge { unit: "bytes", .. })
    ));
    let many: Vec<u8> = (0..60)
        .flat_map(|n: u8| entry(n.to_string().as_bytes(), b'5', 0, b""))
        .collect();
    let (_dir, done) = unpack_bytes(&zst(&many), SMALL);
    assert!(matches!(
        done,
        Err(LayerError::TooLarge {
            unit: "entries",
            ..
        })
    ));
}

#[test]
fn another_archive_than_the_digest_names_is_refused_before_any_other_fault() {
    let scratch = tempfile::tempdir().unwrap();
    let layer = pack_tree(&tree(&[("tools/a/a.py", b"x")]), scratch.path()).unwrap();
    let good = fs::read(layer.path()).unwrap();
    for (what, bytes) in [
        ("a flipped bit", {
            let mut bytes = good.clone();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            bytes
        }),
        ("cut short", good[..good.len() - 3].to_vec()),
        ("empty", Vec::new()),
        ("more at the end", [good.clone(), b"x".to_vec()].concat()),
        ("not an archive", b"hello".to_vec()),
    ] {
        let out = tempfile::tempdir().unwrap();
        let done = unpack(
            Cursor::new(bytes),
            Some(layer.digest),
            out.path(),
            Limits::CODE,
        );
        assert!(
            matches!(done, Err(LayerError::DigestMismatch { .. })),
            "{what}"
        );
    }
}

#[test]
fn garbage_without_a_digest_is_malformed_and_nothing_worse() {
    for bytes in [&b""[..], b"hello", &[0x28, 0xb5, 0x2f, 0xfd, 0xff, 0xff]] {
        let (_dir, done) = unpack_bytes(bytes, SMALL);
        assert!(done.is_err() || bytes.is_empty());
    }
}

fn name() -> impl Strategy<Value = String> {
    proptest::string::string_regex("[a-zA-Zé日_.-]{1,12}")
        .unwrap()
        .prop_filter("a name", |name| unsafe_part(name).is_none())
}

fn paths() -> impl Strategy<Value = BTreeMap<String, Vec<u8>>> {
    let path = proptest::collection::vec(name(), 1..5).prop_map(|parts| parts.join("/"));
    let data = proptest::collection::vec(any::<u8>(), 0..300);
    proptest::collection::btree_map(path, data, 0..20).prop_map(|map| {
        // No file where another path has a folder.
        let keys: Vec<String> = map.keys().cloned().collect();
        map.into_iter()
            .filter(|(path, _)| !keys.iter().any(|k| k.starts_with(&format!("{path}/"))))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_packed_comes_out_again(files in paths()) {
        let scratch = tempfile::tempdir().unwrap();
        let listed: Vec<_> = files.iter().map(|(p, d)| (p.as_str(), d.as_slice())).collect();
        let layer = pack_tree(&tree(&listed), scratch.path()).unwrap();
        let out = tempfile::tempdir().unwrap();
        let archive = fs::File::open(layer.path()).unwrap();
        unpack(archive, Some(layer.digest), out.path(), Limits::CODE).unwrap();
        prop_assert_eq!(&files_of(&code_dir(out.path())), &files);
        // The unpacked folder packed again is the same content.
        let again =
            pack_dir(&code_dir(out.path()), scratch.path(), PackOptions::DEPS, &mut |_| {}).unwrap();
        prop_assert_eq!(again.bytes, layer.bytes);
    }

    #[test]
    fn no_archive_writes_outside_of_its_folder(
        names in proptest::collection::vec(
            proptest::collection::vec(
                prop_oneof![Just(b"..".to_vec()), Just(b"".to_vec()), Just(b".".to_vec()),
                    Just(b"a".to_vec()), Just(b"b".to_vec()), Just(b"\xff".to_vec())],
                1..6,
            ),
            1..6,
        ),
        kinds in proptest::collection::vec(prop_oneof![Just(b'0'), Just(b'5'), Just(b'2'), Just(b'1'), any::<u8>()], 6),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut tar = Vec::new();
        for (parts, kind) in names.iter().zip(&kinds) {
            let size = u64::from(*kind == b'0');
            tar.extend(entry(&parts.join(&b'/'), *kind, size, &b"x"[..usize::from(*kind == b'0')]));
        }
        for (at, byte) in &flips {
            let at = at.index(tar.len());
            tar[at] = *byte;
        }
        let (dir, _) = unpack_bytes(&zst(&tar), SMALL);
        for path in files_of(&dir.path().join("in")).keys() {
            prop_assert!(unsafe_part(path).is_none());
        }
    }
}
