//! Fetching over smart HTTP from the real `git http-backend`, with and without faults.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod faults;
mod monorepo;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use ramen_group::Reason;
use ramen_source::{
    git::{
        AddressPolicy, Credentials, Git, GitError, GitLimits, GitUrl, Loaded, OnProgress, Remote,
        UrlPolicy, Wanted, no_progress,
    },
    testing::{Authority, Entry, Fault, Login, Repo, SmartHttp, SmartHttpOptions},
    tree::TreeLimits,
};

struct Setup {
    dir: tempfile::TempDir,
    repo: Repo,
    git: Git,
    commit: String,
}

impl Setup {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let repo = Repo::init(&dir.path().join("repos/x.git")).unwrap();
        let git = Git::new(&dir.path().join("scratch"), 2).unwrap();
        let commit = repo.push(&[("tools/a/a.py", "x = 1\n")]).unwrap();
        Self {
            dir,
            repo,
            git,
            commit,
        }
    }

    fn root(&self) -> std::path::PathBuf {
        self.dir.path().join("repos")
    }

    fn serve(&self, options: SmartHttpOptions) -> SmartHttp {
        SmartHttp::start(&self.root(), options).unwrap()
    }

    fn faulty(&self, fault: Fault) -> SmartHttp {
        self.serve(SmartHttpOptions {
            fault,
            ..Default::default()
        })
    }

    async fn load(&self, remote: &Remote, wanted: &str) -> Result<Loaded, GitError> {
        let resolved = self.git.resolve(remote, &Wanted::parse(wanted)?).await?;
        self.git
            .load(remote, &resolved, "", TreeLimits::default(), no_progress())
            .await
    }

    fn scratch_is_empty(&self) -> bool {
        let entries = std::fs::read_dir(self.dir.path().join("scratch")).unwrap();
        entries.flatten().all(|entry| entry.file_name() == ".lock")
    }
}

fn remote(url: &str) -> Remote {
    let limits = GitLimits {
        timeout: Duration::from_secs(20),
        idle: Duration::from_secs(10),
        ..GitLimits::default()
    };
    Remote {
        limits,
        ..Remote::new(GitUrl::parse(url).unwrap())
    }
}

fn with(files: &[(&str, &str)]) -> Arc<Credentials> {
    let files: BTreeMap<_, _> = files
        .iter()
        .map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec()))
        .collect();
    Arc::new(Credentials::from_files(&files).unwrap())
}

fn basic() -> Login {
    Login::Basic {
        user: "me".to_owned(),
        password: "s3cr3t".to_owned(),
    }
}

/// No error may hold the password, in any form.
fn assert_silent(error: &GitError) {
    let texts = [
        format!("{error}"),
        format!("{error:?}"),
        error.finding().to_string(),
    ];
    for text in texts {
        // `bWU6czNjcjN0` is `me:s3cr3t` in base64.
        for secret in ["s3cr3t", "bWU6czNjcjN0", "t0ken"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

#[tokio::test]
async fn a_fetch_brings_the_tip_alone_and_leaves_no_folder() {
    let setup = Setup::new();
    let big: Vec<(String, Entry)> = (0..50)
        .map(|n| (format!("mcp/tools/a/{n}.py"), Entry::text(&format!("{n}"))))
        .collect();
    for n in 0..20 {
        let mut entries = big.clone();
        entries[0].1 = Entry::text(&format!("v{n}"));
        setup.repo.commit("main", &entries).unwrap();
    }
    let server = SmartHttp::serve(&setup.root()).unwrap();
    let remote = remote(&server.url("x.git"));
    let objects = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&objects);
    let progress: OnProgress =
        Arc::new(move |p| seen.store(p.total_objects.max(p.objects), Ordering::Relaxed));
    let resolved = setup.git.resolve(&remote, &Wanted::Head).await.unwrap();
    assert_eq!(resolved.name.as_deref(), Some("main"));
    let fetched = setup.git.fetch(&remote, &resolved, progress).await.unwrap();
    // One commit, four trees, fifty files; the history has twenty of some.
    assert_eq!(objects.load(Ordering::Relaxed), 55);
    let tree = fetched.walk("", &TreeLimits::default()).unwrap();
    assert_eq!(tree.files.len(), 50);
    assert!(!setup.scratch_is_empty());
    drop(fetched);
    assert!(setup.scratch_is_empty());
}

#[tokio::test]
async fn git11_branches_tags_versions_and_commits_are_fetched() {
    let setup = Setup::new();
    let first = &setup.commit;
    setup.repo.annotated_tag("v1.0.0", first).unwrap();
    let second = setup.repo.push(&[("tools/a/a.py", "x = 2\n")]).unwrap();
    let third = setup.repo.push(&[("tools/a/a.py", "x = 3\n")]).unwrap();
    let server = SmartHttp::serve(&setup.root()).unwrap();
    let remote = remote(&server.url("x.git"));
    for (wanted, text, revision) in [
        ("", "x = 3\n", format!("main@sha1:{third}")),
        ("main", "x = 3\n", format!("main@sha1:{third}")),
        ("v1.0.0", "x = 1\n", format!("v1.0.0@sha1:{first}")),
        // Neither is a tip, and this server gives tips only: the history is fetched.
        (second.as_str(), "x = 2\n", format!("sha1:{second}")),
        (first.as_str(), "x = 1\n", format!("sha1:{first}")),
    ] {
        let loaded = setup.load(&remote, wanted).await.unwrap();
        assert_eq!(loaded.tree.files[0].data, text.as_bytes(), "{wanted}");
        assert_eq!(loaded.resolved.revision(), revision);
    }
    // A forge gives any commit, even one that no branch holds.
    setup
        .repo
        .configure("uploadpack.allowAnySHA1InWant", "true")
        .unwrap();
    let loose = setup
        .repo
        .commit("gone", &[("mcp/tools/a/a.py", Entry::text("x = 4\n"))])
        .unwrap();
    setup.repo.delete_branch("gone").unwrap();
    let loaded = setup.load(&remote, &loose).await.unwrap();
    assert_eq!(loaded.tree.files[0].data, b"x = 4\n");
    let absent = "0123456789012345678901234567890123456789";
    let error = setup.load(&remote, absent).await.unwrap_err();
    assert_eq!(error.reason(), Reason::RefNotFound, "{error}");
    for (commit, fine) in [(&first.clone(), true), (&third, true), (&loose, false)] {
        let wanted = Wanted::Commit {
            id: commit.clone(),
            branch: Some("main".to_owned()),
        };
        let resolved = setup.git.resolve(&remote, &wanted).await.unwrap();
        let fetched = setup.git.fetch(&remote, &resolved, no_progress()).await;
        assert_eq!(fetched.is_ok(), fine, "{commit}: {:?}", fetched.err());
    }
    let error = setup.load(&remote, "nowhere").await.unwrap_err();
    assert_eq!(error.reason(), Reason::RefNotFound);
    assert!(setup.scratch_is_empty());
}

#[tokio::test]
async fn git01_git18_a_ref_that_goes_away_is_named_and_comes_back() {
    let setup = Setup::new();
    let server = SmartHttp::serve(&setup.root()).unwrap();
    let remote = remote(&server.url("x.git"));
    let resolved = setup
        .git
        .resolve(&remote, &Wanted::parse("main").unwrap())
        .await
        .unwrap();
    setup.repo.delete_branch("main").unwrap();
    let error = setup
        .git
        .fetch(&remote, &resolved, no_progress())
        .await
        .unwrap_err();
    assert_eq!(error.reason(), Reason::RefNotFound, "{error}");
    let error = setup.load(&remote, "main").await.unwrap_err();
    assert_eq!(error.reason(), Reason::RefNotFound, "{error}");
    setup.repo.push(&[("tools/a/a.py", "x = 2\n")]).unwrap();
    setup.load(&remote, "main").await.unwrap();
    let gone = Remote {
        url: GitUrl::parse(&server.url("gone.git")).unwrap(),
        ..remote
    };
    let error = setup.load(&gone, "").await.unwrap_err();
    assert!(matches!(error, GitError::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn a_branch_that_moves_between_resolve_and_fetch_gives_the_newer_commit() {
    let setup = Setup::new();
    let server = SmartHttp::serve(&setup.root()).unwrap();
    let remote = remote(&server.url("x.git"));
    let resolved = setup.git.resolve(&remote, &Wanted::Head).await.unwrap();
    let newer = setup.repo.push(&[("tools/a/a.py", "x = 2\n")]).unwrap();
    let loaded = setup
        .git
        .load(&remote, &resolved, "", TreeLimits::default(), no_progress())
        .await
        .unwrap();
    assert_eq!(loaded.resolved.commit, newer);
}

#[tokio::test]
async fn logins_from_files_and_from_the_address_work() {
    let setup = Setup::new();
    let server = setup.serve(SmartHttpOptions {
        login: Some(basic()),
        ..Default::default()
    });
    let url = server.url("x.git");
    let files = with(&[("username", "me\n"), ("password", "s3cr3t\n")]);
    setup
        .load(
            &Remote {
                credentials: files,
                ..remote(&url)
            },
            "",
        )
        .await
        .unwrap();
    let inline = url.replace("http://", "http://me:s3cr3t@");
    setup.load(&remote(&inline), "").await.unwrap();
    let token = Login::Bearer("t0ken".to_owned());
    let server = setup.serve(SmartHttpOptions {
        login: Some(token),
        ..Default::default()
    });
    let files = with(&[("bearerToken", "t0ken")]);
    let bearer = Remote {
        credentials: files,
        ..remote(&server.url("x.git"))
    };
    setup.load(&bearer, "").await.unwrap();
}

#[tokio::test]
async fn the_users_git_configuration_has_no_say() {
    // `url.insteadOf` of a user would send us elsewhere; libgit2 never sees the address.
    let setup = Setup::new();
    let server = SmartHttp::serve(&setup.root()).unwrap();
    let refs = setup
        .git
        .ls_remote(&remote(&server.url("x.git")))
        .await
        .unwrap();
    let names: Vec<_> = refs.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["HEAD", "refs/heads/main"]);
    assert_eq!(refs[0].target.as_deref(), Some("refs/heads/main"));
    for seen in server.seen() {
        assert_eq!(seen.target, "/x.git/info/refs?service=git-upload-pack");
        assert_eq!(seen.authorization, None);
    }
}

#[tokio::test]
async fn an_address_that_is_not_allowed_is_not_connected_to() {
    let setup = Setup::new();
    let server = SmartHttp::serve(&setup.root()).unwrap();
    let addresses = AddressPolicy::not_local();
    let policy = UrlPolicy {
        addresses,
        ..UrlPolicy::machine()
    };
    for host in ["127.0.0.1", "localhost"] {
        let url = server.url("x.git").replace("127.0.0.1", host);
        let error = setup
            .load(
                &Remote {
                    policy: policy.clone(),
                    ..remote(&url)
                },
                "",
            )
            .await
            .unwrap_err();
        assert!(matches!(error, GitError::Forbidden { .. }), "{error}");
    }
    assert!(server.seen().is_empty());
    let cluster = Remote {
        policy: UrlPolicy::cluster(),
        ..remote(&server.url("x.git"))
    };
    let error = setup.load(&cluster, "").await.unwrap_err();
    assert!(error.to_string().contains("use https"), "{error}");
    // A pinned commit needs no refs, but the rule holds at once.
    let pinned = Wanted::parse(&setup.commit).unwrap();
    assert!(setup.git.resolve(&cluster, &pinned).await.is_err());
}
