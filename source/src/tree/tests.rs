use std::{fs, os::unix::fs::symlink};

use ramen_group::Reason;

use super::*;
use crate::layer::{Limits, pack_tree, unpack};

const LIMITS: TreeLimits = TreeLimits {
    entries: 100,
    file_bytes: 1000,
    total_bytes: 5000,
    depth: 16,
};

fn judge(nodes: &[(&str, NodeKind, &[u8])]) -> Result<Tree, TreeError> {
    let nodes = nodes
        .iter()
        .map(|(path, kind, data)| Node {
            parts: path
                .split('/')
                .map(|part| part.as_bytes().to_vec())
                .collect(),
            kind: *kind,
            handle: data.to_vec(),
        })
        .collect();
    select("id".to_owned(), nodes, &LIMITS, |node| {
        Ok(node.handle.clone())
    })
}

fn file(path: &'static str) -> (&'static str, NodeKind, &'static [u8]) {
    (path, NodeKind::File { size: 1 }, b"x")
}

fn loaded(tree: &Tree) -> Vec<&str> {
    tree.files.iter().map(|file| file.path.as_str()).collect()
}

const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 12345\n";

#[test]
fn a_fault_in_a_package_leaves_that_package_out_and_names_the_path() {
    for (kind, data, reason) in [
        (NodeKind::Link, &b""[..], Reason::SymlinkRefused),
        (NodeKind::Submodule, b"", Reason::SubmoduleRefused),
        (NodeKind::Other, b"", Reason::PathRefused),
        (NodeKind::TooDeep, b"", Reason::PathRefused),
        (NodeKind::File { size: 100 }, POINTER, Reason::LfsPointer),
        (NodeKind::File { size: 1001 }, b"", Reason::FileTooLarge),
    ] {
        let tree = judge(&[
            file("tools/bad/bad.py"),
            ("tools/bad/data/odd", kind, data),
            file("tools/bad/z.py"),
            file("tools/good/good.py"),
            file("requirements.txt"),
        ])
        .unwrap();
        assert_eq!(
            loaded(&tree),
            ["requirements.txt", "tools/good/good.py"],
            "{kind:?}"
        );
        let [entry] = &tree.errors[..] else {
            panic!("{:?}", tree.errors)
        };
        assert_eq!(entry.reason, reason);
        assert_eq!(entry.package.as_deref(), Some("tools/bad"));
        assert_eq!(entry.path.as_deref(), Some("mcp/tools/bad/data/odd"));
        assert!(
            entry.message.contains("mcp/tools/bad/data/odd"),
            "{}",
            entry.message
        );
    }
}

#[test]
fn git03_a_package_folder_that_is_a_submodule_is_an_entry() {
    let tree = judge(&[
        ("tools/sub", NodeKind::Submodule, b""),
        file("tools/a/a.py"),
    ])
    .unwrap();
    assert_eq!(tree.errors[0].package.as_deref(), Some("tools/sub"));
    assert_eq!(tree.errors[0].reason, Reason::SubmoduleRefused);
    assert_eq!(loaded(&tree), ["tools/a/a.py"]);
}

#[test]
fn git05_a_link_inside_the_repository_is_an_entry_that_says_so() {
    let tree = judge(&[
        file("tools/a/utils/u.py"),
        file("tools/b/b.py"),
        ("tools/b/utils", NodeKind::Link, b"../a/utils"),
    ])
    .unwrap();
    assert!(
        tree.errors[0]
            .message
            .contains("symlinks are not supported under mcp/")
    );
    assert_eq!(loaded(&tree), ["tools/a/utils/u.py"]);
}

#[test]
fn git10_twins_all_load_and_each_is_remarked_on() {
    let tree = judge(&[
        ("tools/Calc", NodeKind::Folder, b""),
        file("tools/Calc/a.py"),
        ("tools/calc", NodeKind::Folder, b""),
        file("tools/calc/a.py"),
        ("tools/x", NodeKind::Folder, b""),
        file("tools/x/\u{e9}.py"),
        file("tools/x/e\u{301}.py"),
    ])
    .unwrap();
    assert_eq!(tree.files.len(), 4);
    assert!(tree.errors.is_empty());
    let of = |package: &str| {
        let twins = tree
            .warnings
            .iter()
            .filter(|w| w.reason == Reason::CaseTwins);
        twins
            .filter(|w| w.package.as_deref() == Some(package))
            .count()
    };
    assert_eq!(
        (of("tools/Calc"), of("tools/calc"), of("tools/x")),
        (1, 1, 2)
    );
}

#[test]
fn a_fault_that_would_change_the_meaning_of_the_group_is_fatal() {
    for path in [
        "requirements.txt",
        "tests.yaml",
        "env.yaml",
        "guardrails/policy.py",
        "tools",
    ] {
        let error = judge(&[(path, NodeKind::Link, b""), file("tools/a/a.py")]).unwrap_err();
        assert_eq!(error.reason(), Reason::SymlinkRefused, "{path}");
        assert_eq!(error.finding().path, Some(format!("mcp/{path}")));
    }
    let error = judge(&[("requirements.txt", NodeKind::File { size: 100 }, POINTER)]).unwrap_err();
    assert_eq!(error.reason(), Reason::LfsPointer);
}

#[test]
fn a_fault_elsewhere_is_a_warning_and_leaves_out_what_is_there() {
    let tree = judge(&[
        ("docs/logo.png", NodeKind::File { size: 100 }, POINTER),
        file("docs/a.md"),
        ("tools/README.md", NodeKind::Link, b""),
        file("tools/a/a.py"),
    ])
    .unwrap();
    assert!(tree.errors.is_empty());
    assert_eq!(tree.warnings.len(), 2);
    assert_eq!(loaded(&tree), ["docs/a.md", "tools/a/a.py"]);
}

#[test]
fn names_that_cannot_be_used_are_shown_escaped() {
    let tree = judge(&[file("tools/a/a\n.py"), file("tools/b/b.py")]).unwrap();
    assert_eq!(tree.errors[0].reason, Reason::PathRefused);
    assert_eq!(tree.errors[0].path.as_deref(), Some("mcp/tools/a/a\\n.py"));
    assert_eq!(loaded(&tree), ["tools/b/b.py"]);
    for name in ["tools/a/.git", "tools/a/..", "tools/a/x\\y"] {
        let tree = judge(&[file(name)]).unwrap();
        assert_eq!(tree.errors.len(), 1, "{name}");
    }
}

#[test]
fn too_much_is_fatal_and_says_where() {
    let many: Vec<String> = (0..101).map(|n| format!("tools/a/{n:03}.py")).collect();
    let nodes: Vec<_> = many
        .iter()
        .map(|p| (p.as_str(), NodeKind::File { size: 1 }, &b"x"[..]))
        .collect();
    let error = judge(&nodes).unwrap_err();
    assert!(
        matches!(&error, TreeError::TooLarge { path, limit: 100, .. } if path.ends_with("100.py"))
    );
    let big: Vec<_> = many
        .iter()
        .take(6)
        .map(|p| (p.as_str(), NodeKind::File { size: 1000 }, &b"x"[..]))
        .collect();
    let error = judge(&big).unwrap_err();
    assert!(matches!(error, TreeError::TooLarge { unit: "bytes", .. }));
    assert_eq!(error.reason(), Reason::TreeTooLarge);
}

#[test]
fn what_was_refused_travels_in_the_layer() {
    let scratch = tempfile::tempdir().unwrap();
    let tree = judge(&[("tools/b/l", NodeKind::Link, b""), file("tools/a/a.py")]).unwrap();
    let layer = pack_tree(&tree, scratch.path()).unwrap();
    let out = tempfile::tempdir().unwrap();
    unpack(
        fs::File::open(layer.path()).unwrap(),
        Some(layer.digest),
        out.path(),
        Limits::CODE,
    )
    .unwrap();
    let told = refused(out.path()).unwrap();
    assert_eq!((told.errors, told.warnings), (tree.errors, tree.warnings));
    let clean = judge(&[file("tools/a/a.py")]).unwrap();
    let layer = pack_tree(&clean, scratch.path()).unwrap();
    let out = tempfile::tempdir().unwrap();
    unpack(
        fs::File::open(layer.path()).unwrap(),
        None,
        out.path(),
        Limits::CODE,
    )
    .unwrap();
    assert_eq!(refused(out.path()).unwrap(), Refused::default());
    assert!(!out.path().join(REFUSED_FILE).exists());
}

#[test]
fn a_working_folder_follows_the_same_rules_and_skips_litter() {
    let dir = tempfile::tempdir().unwrap();
    let mcp = dir.path().join("mcp");
    for folder in ["tools/a/__pycache__", "tools/b", ".git"] {
        fs::create_dir_all(mcp.join(folder)).unwrap();
    }
    for name in [
        "tools/a/a.py",
        "tools/a/__pycache__/a.pyc",
        "tools/a/.a.py.swp",
        ".git/x",
        "tools/b/b.py",
    ] {
        fs::write(mcp.join(name), "x").unwrap();
    }
    symlink("../a", mcp.join("tools/b/link")).unwrap();
    let tree = walk_folder(dir.path(), &TreeLimits::default()).unwrap();
    assert_eq!(loaded(&tree), ["tools/a/a.py"]);
    assert_eq!(tree.errors[0].package.as_deref(), Some("tools/b"));
    // The folder itself may be named, too, and the id is that of the content.
    let same = walk_folder(&mcp, &TreeLimits::default()).unwrap();
    assert_eq!(same, tree);
    fs::write(mcp.join("tools/a/__pycache__/b.pyc"), "y").unwrap();
    assert_eq!(
        walk_folder(&mcp, &TreeLimits::default()).unwrap().id,
        tree.id
    );
    fs::write(mcp.join("tools/a/a.py"), "y").unwrap();
    assert_ne!(
        walk_folder(&mcp, &TreeLimits::default()).unwrap().id,
        tree.id
    );
    let empty = tempfile::tempdir().unwrap();
    let error = walk_folder(empty.path(), &TreeLimits::default()).unwrap_err();
    assert_eq!(error.reason(), Reason::McpFolderMissing);
}
