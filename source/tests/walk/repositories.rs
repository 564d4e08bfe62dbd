//! What is not about single files: refs, empty repositories, hooks and attributes.

use super::*;

#[tokio::test]
async fn git13_nothing_of_the_repository_is_executed() {
    let setup = Setup::new();
    let marker = setup.dir.path().join("executed");
    let run = format!("#!/bin/sh\ntouch {}\n", marker.display());
    let hooks = setup.repo.path().join("hooks");
    std::fs::create_dir_all(&hooks).unwrap();
    for hook in [
        "post-checkout",
        "post-merge",
        "pre-auto-gc",
        "reference-transaction",
    ] {
        let path = hooks.join(hook);
        std::fs::write(&path, &run).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, executable).unwrap();
    }
    let command = format!("touch {}", marker.display());
    setup.repo.configure("core.fsmonitor", &command).unwrap();
    setup.repo.configure("core.sshCommand", &command).unwrap();
    setup
        .repo
        .configure("uploadpack.packObjectsHook", &command)
        .unwrap();
    let modules = format!("[submodule \"x\"]\n path = x\n url = \"ext::sh -c '{command}'\"\n");
    let entries = [
        (".gitmodules", Entry::text(&modules)),
        ("x", Entry::Submodule),
        ("mcp/.gitattributes", Entry::text("* filter=evil\n")),
        ("mcp/tools/a/a.py", Entry::text("1")),
        (
            "mcp/tools/b/.git/config",
            Entry::text(&format!("[core]\n fsmonitor = {command}\n")),
        ),
    ];
    setup.repo.commit("main", &entries).unwrap();
    let loaded = setup.load("main", "").await.unwrap();
    assert_eq!(paths(&loaded), [".gitattributes", "tools/a/a.py"]);
    assert!(!marker.exists());
}

#[tokio::test]
async fn local_repositories_resolve_all_kinds_of_refs() {
    let setup = Setup::new();
    let files = |text| [("mcp/tools/a/a.py", Entry::text(text))];
    let first = setup.repo.commit("main", &files("1")).unwrap();
    setup.repo.annotated_tag("v1.0.0", &first).unwrap();
    let second = setup.repo.commit("main", &files("2")).unwrap();
    setup.repo.tag("v1.1.0", &second).unwrap();
    let third = setup.repo.commit("other", &files("3")).unwrap();
    let remote = setup.remote();
    let resolve = async |wanted: Wanted| setup.git.resolve(&remote, &wanted).await;
    assert_eq!(
        resolve(Wanted::Head).await.unwrap().revision(),
        format!("main@sha1:{second}")
    );
    let tag = resolve(Wanted::Tag("v1.0.0".to_owned())).await.unwrap();
    assert_eq!(tag.revision(), format!("v1.0.0@sha1:{first}"));
    let newest = resolve(Wanted::Semver("1.x".to_owned())).await.unwrap();
    assert_eq!(newest.revision(), format!("v1.1.0@sha1:{second}"));
    // A commit that no ref names any more.
    setup.repo.delete_branch("other").unwrap();
    assert_eq!(
        setup.load(&third, "").await.unwrap().resolved.revision(),
        format!("sha1:{third}")
    );
    let pinned = |id: &str, branch: &str| Wanted::Commit {
        id: id.to_owned(),
        branch: Some(branch.to_owned()),
    };
    for (id, branch, fine) in [
        (&first, "main", true),
        (&second, "main", true),
        (&third, "main", false),
        (&first, "gone", false),
    ] {
        let resolved = resolve(pinned(id, branch)).await.unwrap();
        let fetched = setup.git.fetch(&remote, &resolved, no_progress()).await;
        match fetched {
            Ok(_) => assert!(fine, "{id} on {branch}"),
            Err(error) => {
                assert!(!fine, "{error}");
                assert_eq!(error.reason(), Reason::RefNotFound);
            }
        }
    }
    let missing = setup.load("nowhere", "").await.unwrap_err();
    assert_eq!(missing.reason(), Reason::RefNotFound);
}

#[tokio::test]
async fn an_empty_repository_and_no_repository_are_told_apart() {
    let setup = Setup::new();
    let error = setup.load("", "").await.unwrap_err();
    assert!(error.to_string().contains("empty"), "{error}");
    let nowhere = Remote::new(GitUrl::local(Path::new("/nowhere/x.git")));
    let error = setup
        .git
        .resolve(&nowhere, &Wanted::Head)
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "there is no folder /nowhere/x.git");
    assert_eq!(error.reason(), Reason::SourceInvalid);
    let plain = Remote::new(GitUrl::local(setup.dir.path()));
    let error = setup.git.resolve(&plain, &Wanted::Head).await.unwrap_err();
    assert!(matches!(error, GitError::NoRepository { .. }), "{error}");
}

#[tokio::test]
async fn a_crash_leaves_no_fetch_folder_behind() {
    let dir = tempfile::tempdir().unwrap();
    let left = dir.path().join("fetch-abc");
    std::fs::create_dir_all(left.join("objects")).unwrap();
    let _git = Git::new(dir.path(), 1).unwrap();
    assert!(!left.exists());
    // What is not ours stays.
    std::fs::create_dir(dir.path().join("other")).unwrap();
    let _second = Git::new(dir.path(), 1).unwrap();
    assert!(dir.path().join("other").exists());
}

#[tokio::test]
async fn git14_files_load_as_they_are_stored() {
    let setup = Setup::new();
    let attributes =
        "* text eol=crlf\n*.txt working-tree-encoding=UTF-16\n*.py export-subst ident filter=lfs\n";
    let code = b"x = '$Format:%H$ $Id$'\r\ny = 1\n".to_vec();
    let text = "h\u{e9}llo\n".as_bytes().to_vec();
    let entries = [
        (".gitattributes", Entry::text(attributes)),
        ("mcp/tools/a/a.py", Entry::File(code.clone())),
        ("mcp/tools/a/a.txt", Entry::File(text.clone())),
    ];
    setup.repo.commit("main", &entries).unwrap();
    let loaded = setup.load("main", "").await.unwrap();
    let data: Vec<_> = loaded
        .tree
        .files
        .iter()
        .map(|file| file.data.clone())
        .collect();
    assert_eq!(data, [code, text]);
}
