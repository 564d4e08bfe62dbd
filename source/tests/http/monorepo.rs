//! GIT06: `mcp/` as a small part of a large repository.

use std::{
    fmt::Write as _,
    io::Write as _,
    process::{Command, Stdio},
    sync::atomic::AtomicU64,
};

use super::*;

const FOLDERS: usize = 2000;
const FILES: usize = 200_000;

/// Adds all the files beside `mcp/` in one commit. Their names differ, so that each folder is an object of its own.
fn grow(repo: &Repo) {
    let mut stream = "blob\nmark :1\ndata 1\nx\ncommit refs/heads/main\n\
        committer T <t@example.com> 1700000000 +0000\ndata 4\ngrow\nfrom refs/heads/main^0\n"
        .to_owned();
    for file in 0..FILES {
        let folder = file / (FILES / FOLDERS);
        writeln!(stream, "M 100644 :1 data/{folder}/{file}.txt").unwrap();
    }
    let mut import = Command::new("git")
        .arg("-C")
        .arg(repo.path())
        .args(["fast-import", "--quiet"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = import.stdin.take().unwrap();
    stdin.write_all(stream.as_bytes()).unwrap();
    drop(stdin);
    assert!(import.wait().unwrap().success());
}

#[tokio::test]
async fn git06_files_beside_mcp_cost_their_names_in_the_fetch_and_nothing_in_the_walk() {
    let setup = Setup::new();
    grow(&setup.repo);
    let server = SmartHttp::serve(&setup.root()).unwrap();
    let remote = remote(&server.url("x.git"));
    let (objects, bytes) = (Arc::<AtomicUsize>::default(), Arc::<AtomicU64>::default());
    let seen = (Arc::clone(&objects), Arc::clone(&bytes));
    let progress: OnProgress = Arc::new(move |step| {
        seen.0.fetch_max(step.total_objects, Ordering::Relaxed);
        seen.1.fetch_max(step.bytes, Ordering::Relaxed);
    });
    let resolved = setup.git.resolve(&remote, &Wanted::Head).await.unwrap();
    // Far less than lies outside: the walk does not look at it.
    let limits = TreeLimits {
        entries: 10,
        ..TreeLimits::default()
    };
    let loaded = setup
        .git
        .load(&remote, &resolved, "", limits, progress)
        .await
        .unwrap();
    let paths: Vec<_> = loaded.tree.files.iter().map(|file| &file.path).collect();
    assert_eq!(paths, ["tools/a/a.py"]);
    // A commit, its tree, `data` and its folders, `mcp/tools/a`, and two contents.
    assert_eq!(objects.load(Ordering::Relaxed), 1 + 1 + 1 + FOLDERS + 3 + 2);
    let bytes = bytes.load(Ordering::Relaxed);
    assert!(bytes < 4 << 20, "{bytes} bytes were received");
}
