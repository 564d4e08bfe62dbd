//! Walking real git trees, among them trees that `git add` would never make.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod repositories;

use std::{path::Path, process::Command};

use ramen_group::Reason;
use ramen_source::{
    git::{Git, GitError, GitUrl, Loaded, Remote, Wanted, no_progress},
    testing::{Entry, Repo},
    tree::{TreeError, TreeLimits},
};

struct Setup {
    dir: tempfile::TempDir,
    repo: Repo,
    git: Git,
}

impl Setup {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let repo = Repo::init(&dir.path().join("x.git")).unwrap();
        let git = Git::new(&dir.path().join("scratch"), 2).unwrap();
        Self { dir, repo, git }
    }

    fn remote(&self) -> Remote {
        Remote::new(GitUrl::local(self.repo.path()))
    }

    async fn load(&self, wanted: &str, path: &str) -> Result<Loaded, GitError> {
        self.load_within(wanted, path, TreeLimits::default()).await
    }

    async fn load_within(
        &self,
        wanted: &str,
        path: &str,
        limits: TreeLimits,
    ) -> Result<Loaded, GitError> {
        let remote = self.remote();
        let resolved = self.git.resolve(&remote, &Wanted::parse(wanted)?).await?;
        self.git
            .load(&remote, &resolved, path, limits, no_progress())
            .await
    }
}

fn paths(loaded: &Loaded) -> Vec<&str> {
    loaded
        .tree
        .files
        .iter()
        .map(|file| file.path.as_str())
        .collect()
}

const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 9\n";

#[tokio::test]
async fn only_mcp_is_walked_and_its_tree_id_is_the_key() {
    let setup = Setup::new();
    let entries = [
        ("README.md", Entry::text("hello")),
        ("link", Entry::Link("/etc/passwd".to_owned())),
        ("mcp/tools/a/a.py", Entry::text("x = 1\n")),
        ("mcp/tools/a/run.sh", Entry::Executable(b"#!".to_vec())),
    ];
    setup.repo.commit("main", &entries).unwrap();
    let first = setup.load("", "").await.unwrap();
    assert_eq!(paths(&first), ["tools/a/a.py", "tools/a/run.sh"]);
    assert!(first.tree.errors.is_empty() && first.tree.warnings.is_empty());
    let output = Command::new("git")
        .args([
            "-C",
            setup.repo.path().to_str().unwrap(),
            "rev-parse",
            "main:mcp",
        ])
        .output()
        .unwrap();
    assert_eq!(
        first.tree.id,
        String::from_utf8(output.stdout).unwrap().trim()
    );
    // A change elsewhere is another commit and the same tree.
    let mut changed = entries.to_vec();
    changed[0] = ("README.md", Entry::text("other"));
    setup.repo.commit("main", &changed).unwrap();
    let second = setup.load("main", "").await.unwrap();
    assert_ne!(first.resolved.commit, second.resolved.commit);
    assert_eq!(first.tree, second.tree);
}

#[tokio::test]
async fn the_folder_of_the_group_may_lie_deeper() {
    let setup = Setup::new();
    let entries = [("services/a/mcp/tools/t/t.py", Entry::text("1"))];
    setup.repo.commit("main", &entries).unwrap();
    for path in ["services/a", "/services/a/", "./services/a"] {
        assert_eq!(
            paths(&setup.load("main", path).await.unwrap()),
            ["tools/t/t.py"],
            "{path}"
        );
    }
    for path in ["", "services", "services/b", "services/../services/a"] {
        let error = setup.load("main", path).await.unwrap_err();
        assert_eq!(error.reason(), Reason::McpFolderMissing, "{path}: {error}");
    }
}

#[tokio::test]
async fn git03_git04_git05_submodules_pointers_and_links_are_entries_and_the_rest_loads() {
    let setup = Setup::new();
    let entries = [
        (
            ".gitmodules",
            Entry::text("[submodule \"s\"]\n path = mcp/tools/s\n url = x\n"),
        ),
        ("mcp/tools/s", Entry::Submodule),
        ("mcp/tools/lfs/lfs.py", Entry::text(POINTER)),
        ("mcp/tools/data/data.py", Entry::text("1")),
        ("mcp/tools/data/model.bin", Entry::text(POINTER)),
        ("mcp/tools/a/utils/u.py", Entry::text("1")),
        ("mcp/tools/b/b.py", Entry::text("1")),
        ("mcp/tools/b/utils", Entry::Link("../a/utils".to_owned())),
        ("mcp/tools/__pycache__/x.pyc", Entry::text("1")),
    ];
    setup.repo.commit("main", &entries).unwrap();
    let loaded = setup.load("main", "").await.unwrap();
    assert_eq!(
        paths(&loaded),
        ["tools/__pycache__/x.pyc", "tools/a/utils/u.py"]
    );
    let found: Vec<_> = loaded
        .tree
        .errors
        .iter()
        .map(|e| {
            (
                e.package.as_deref().unwrap(),
                e.reason,
                e.path.as_deref().unwrap(),
            )
        })
        .collect();
    for entry in [
        ("tools/s", Reason::SubmoduleRefused, "mcp/tools/s"),
        ("tools/lfs", Reason::LfsPointer, "mcp/tools/lfs/lfs.py"),
        ("tools/data", Reason::LfsPointer, "mcp/tools/data/model.bin"),
        ("tools/b", Reason::SymlinkRefused, "mcp/tools/b/utils"),
    ] {
        assert!(found.contains(&entry), "{entry:?} in {found:?}");
    }
    assert_eq!(found.len(), 4);
}

#[tokio::test]
async fn mcp_itself_must_be_a_folder_of_this_repository() {
    for (entry, reason) in [
        (Entry::Link("elsewhere".to_owned()), Reason::SymlinkRefused),
        (Entry::Submodule, Reason::SubmoduleRefused),
        (Entry::text("x"), Reason::McpFolderMissing),
    ] {
        let setup = Setup::new();
        setup.repo.commit("main", &[("mcp", entry)]).unwrap();
        let error = setup.load("main", "").await.unwrap_err();
        assert_eq!(error.reason(), reason);
        assert!(error.finding().message.contains("mcp"), "{error}");
    }
}

#[tokio::test]
async fn git10_twins_in_case_and_unicode_form_all_load() {
    let setup = Setup::new();
    let entries = [
        ("mcp/tools/Calc/Calc.py", Entry::text("1")),
        ("mcp/tools/calc/calc.py", Entry::text("2")),
        ("mcp/tools/x/\u{e9}.txt", Entry::text("3")),
        ("mcp/tools/x/e\u{301}.txt", Entry::text("4")),
    ];
    setup.repo.commit("main", &entries).unwrap();
    let loaded = setup.load("main", "").await.unwrap();
    assert_eq!(loaded.tree.files.len(), 4);
    assert_eq!(loaded.tree.warnings.len(), 4);
    assert!(
        loaded
            .tree
            .warnings
            .iter()
            .all(|w| w.reason == Reason::CaseTwins)
    );
}

#[tokio::test]
async fn names_that_git_refuses_to_add_are_entries() {
    let names: &[&[u8]] = &[
        b"mcp/tools/bad/.git/hooks/post-checkout",
        b"mcp/tools/bad/.GIT/config",
        b"mcp/tools/bad/../../../x",
        b"mcp/tools/bad/./x",
        b"mcp/tools/bad/a\\b",
        b"mcp/tools/bad/a\nb",
        b"mcp/tools/bad/\xff",
        b"mcp/tools/bad/git~1",
    ];
    for name in names {
        let setup = Setup::new();
        let good: &[u8] = b"mcp/tools/good/good.py";
        let entries = [(*name, Entry::text("x")), (good, Entry::text("1"))];
        setup.repo.commit("main", &entries).unwrap();
        let loaded = setup.load("main", "").await.unwrap();
        assert_eq!(paths(&loaded), ["tools/good/good.py"], "{name:?}");
        assert_eq!(
            loaded.tree.errors[0].reason,
            Reason::PathRefused,
            "{name:?}"
        );
        assert_eq!(loaded.tree.errors[0].package.as_deref(), Some("tools/bad"));
    }
}

#[tokio::test]
async fn deep_and_large_trees_end_at_the_limits() {
    let setup = Setup::new();
    let deep = format!("mcp/tools/deep/{}x.py", "d/".repeat(20));
    let entries = [
        (deep.as_str(), Entry::text("1")),
        ("mcp/tools/a/a.py", Entry::text("1")),
        ("mcp/tools/big/big.bin", Entry::File(vec![0; 5000])),
    ];
    setup.repo.commit("main", &entries).unwrap();
    let limits = TreeLimits {
        file_bytes: 4000,
        ..TreeLimits::default()
    };
    let loaded = setup.load_within("main", "", limits).await.unwrap();
    assert_eq!(paths(&loaded), ["tools/a/a.py"]);
    let messages: Vec<_> = loaded
        .tree
        .errors
        .iter()
        .map(|e| e.message.as_str())
        .collect();
    assert!(
        messages
            .iter()
            .any(|m| m.contains("16 folders inside each other")),
        "{messages:?}"
    );
    assert!(
        messages
            .iter()
            .any(|m| m.contains("5000 bytes, 4000 are allowed")),
        "{messages:?}"
    );
    let of_big: Vec<_> = loaded
        .tree
        .errors
        .iter()
        .filter(|entry| entry.package.as_deref() == Some("tools/big"))
        .map(|entry| entry.reason)
        .collect();
    assert_eq!(of_big, [Reason::FileTooLarge]);
    let limits = TreeLimits {
        entries: 5,
        ..TreeLimits::default()
    };
    let error = setup.load_within("main", "", limits).await.unwrap_err();
    assert!(
        matches!(error, GitError::Tree(TreeError::TooLarge { .. })),
        "{error}"
    );
    assert_eq!(error.reason(), Reason::TreeTooLarge);
}

#[tokio::test]
async fn a_tree_that_grows_without_end_when_it_is_followed_is_bounded() {
    // Ten levels of ten names for one and the same tree: 10^10 paths from a few objects.
    let setup = Setup::new();
    let odb = setup.repo.raw().odb().unwrap();
    let mut id = odb.write(git2::ObjectType::Blob, b"x").unwrap();
    for level in 0..10 {
        let mut tree = Vec::new();
        for n in 0..10 {
            let mode = if level == 0 { "100644" } else { "40000" };
            tree.extend_from_slice(format!("{mode} n{n}\0").as_bytes());
            tree.extend_from_slice(id.as_bytes());
        }
        id = odb.write(git2::ObjectType::Tree, &tree).unwrap();
    }
    let mut root = b"40000 mcp\0".to_vec();
    root.extend_from_slice(id.as_bytes());
    let root = odb.write(git2::ObjectType::Tree, &root).unwrap();
    let who = git2::Signature::now("t", "t@example.com").unwrap();
    let tree = setup.repo.raw().find_tree(root).unwrap();
    setup
        .repo
        .raw()
        .commit(Some("refs/heads/main"), &who, &who, "bomb", &tree, &[])
        .unwrap();
    let error = setup.load("main", "").await.unwrap_err();
    assert_eq!(error.reason(), Reason::TreeTooLarge, "{error}");
}

#[tokio::test]
async fn git06_what_lies_outside_of_mcp_costs_nothing_in_the_walk() {
    let setup = Setup::new();
    let outside: Vec<(String, Entry)> = (0..20_000)
        .map(|n| (format!("data/{}/{n}.txt", n % 100), Entry::text("x")))
        .collect();
    let mut entries = outside;
    entries.push(("mcp/tools/a/a.py".to_owned(), Entry::text("1")));
    setup.repo.commit("main", &entries).unwrap();
    // Far more files than the walk may see: it does not look at them.
    let limits = TreeLimits {
        entries: 10,
        ..TreeLimits::default()
    };
    let loaded = setup.load_within("main", "", limits).await.unwrap();
    assert_eq!(paths(&loaded), ["tools/a/a.py"]);
}

#[tokio::test]
async fn git06_the_walk_reads_no_object_outside_of_mcp() {
    let setup = Setup::new();
    let code = [("mcp/tools/a/a.py", Entry::text("1"))];
    setup.repo.commit("code", &code).unwrap();
    let raw = setup.repo.raw();
    let code = raw.revparse_single("code:mcp").unwrap().id();
    // Objects that are nowhere: whoever looks at them fails.
    let nowhere = git2::Oid::from_str(&"5".repeat(40)).unwrap();
    let mut tree = Vec::new();
    for (entry, id) in [
        ("100644 README.md", nowhere),
        ("40000 data", nowhere),
        ("40000 mcp", code),
    ] {
        tree.extend_from_slice(entry.as_bytes());
        tree.push(0);
        tree.extend_from_slice(id.as_bytes());
    }
    let odb = raw.odb().unwrap();
    let tree = odb.write(git2::ObjectType::Tree, &tree).unwrap();
    let tree = raw.find_tree(tree).unwrap();
    let who = git2::Signature::now("t", "t@example.com").unwrap();
    raw.commit(Some("refs/heads/main"), &who, &who, "x", &tree, &[])
        .unwrap();
    let loaded = setup.load("main", "").await.unwrap();
    assert_eq!(paths(&loaded), ["tools/a/a.py"]);
}
