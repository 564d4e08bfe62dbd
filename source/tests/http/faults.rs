//! What goes wrong, and who must not see the password.

use super::*;

#[tokio::test]
async fn git07_a_server_that_always_says_401_is_asked_once() {
    let setup = Setup::new();
    let server = setup.serve(SmartHttpOptions {
        login: Some(basic()),
        ..Default::default()
    });
    let url = server.url("x.git");
    for (files, hint) in [
        (
            vec![("username", "me"), ("password", "wrong-s3cr3t")],
            "to the configured credentials",
        ),
        (vec![], "no credentials are configured"),
        (
            vec![("bearerToken", "t0ken")],
            "to the configured credentials",
        ),
    ] {
        let before = server.seen().len();
        let started = Instant::now();
        let wrong = Remote {
            credentials: with(&files),
            ..remote(&url)
        };
        let error = setup.load(&wrong, "").await.unwrap_err();
        assert_eq!(error.reason(), Reason::AuthenticationFailed, "{error}");
        assert!(error.to_string().contains(hint), "{error}");
        assert!(!error.is_transient());
        assert!(server.seen().len() - before <= 2, "{:?}", server.seen());
        assert!(started.elapsed() < Duration::from_secs(10));
        assert_silent(&error);
    }
}

#[tokio::test]
async fn git08_no_error_holds_the_password_of_the_address() {
    let setup = Setup::new();
    for (fault, reason) in [
        (Fault::Status(401), Reason::AuthenticationFailed),
        (Fault::Status(403), Reason::AuthenticationFailed),
        (Fault::Status(404), Reason::SourceUnreachable),
        (Fault::Status(500), Reason::SourceUnreachable),
        (Fault::Status(418), Reason::SourceUnreachable),
        (Fault::Page, Reason::SourceUnreachable),
        (Fault::BreakOff, Reason::SourceUnreachable),
        (
            Fault::Redirect("http://me:s3cr3t@localhost:1".to_owned()),
            Reason::SourceUnreachable,
        ),
    ] {
        let what = format!("{fault:?}");
        let server = setup.faulty(fault);
        let url = server.url("x.git").replace("http://", "http://me:s3cr3t@");
        let error = setup.load(&remote(&url), "").await.unwrap_err();
        assert_eq!(error.reason(), reason, "{what}: {error}");
        assert_silent(&error);
    }
    // TLS: a certificate that nobody vouches for, and a port that speaks no TLS at all.
    let authority = Authority::create(&setup.dir.path().join("tls")).unwrap();
    let server = setup.serve(SmartHttpOptions {
        tls: Some(authority),
        ..Default::default()
    });
    let url = server
        .url("x.git")
        .replace("https://", "https://me:s3cr3t@");
    let error = setup.load(&remote(&url), "").await.unwrap_err();
    assert_eq!(error.reason(), Reason::CertificateRefused, "{error}");
    assert!(error.to_string().contains("ca.crt"), "{error}");
    assert_silent(&error);
    let plain = SmartHttp::serve(&setup.root()).unwrap();
    let url = plain.url("x.git").replace("http://", "https://me:s3cr3t@");
    assert_silent(&setup.load(&remote(&url), "").await.unwrap_err());
    drop(plain);
    let closed = remote("http://me:s3cr3t@127.0.0.1:1/x.git");
    let error = setup.load(&closed, "").await.unwrap_err();
    assert_eq!(error.reason(), Reason::SourceUnreachable);
    assert!(error.is_transient());
    assert_silent(&error);
}

#[tokio::test]
async fn git09_credentials_go_to_no_other_scheme_host_or_port() {
    let setup = Setup::new();
    let credentials = with(&[("username", "me"), ("password", "s3cr3t")]);
    let authority = Authority::create(&setup.dir.path().join("tls")).unwrap();
    let tls = |login: Option<Login>| SmartHttpOptions {
        tls: Some(authority.clone()),
        login,
        ..Default::default()
    };
    let trusting = |url: &str| {
        let pem = std::fs::read_to_string(&authority.ca).unwrap();
        let files = [
            ("username", "me"),
            ("password", "s3cr3t"),
            ("ca.crt", pem.as_str()),
        ];
        Remote {
            credentials: with(&files),
            ..remote(url)
        }
    };

    // Another port and another host: refused before anything is sent there.
    let other = SmartHttp::serve(&setup.root()).unwrap();
    let elsewhere = other.base().replace("127.0.0.1", "localhost");
    for target in [other.base(), elsewhere] {
        let server = setup.faulty(Fault::Redirect(target.clone()));
        let from = Remote {
            credentials: Arc::clone(&credentials),
            ..remote(&server.url("x.git"))
        };
        let error = setup.load(&from, "").await.unwrap_err();
        assert!(matches!(error, GitError::Redirect { .. }), "{error}");
        assert!(error.to_string().contains(&target), "{error}");
        assert!(other.seen().is_empty());
    }

    // From http to https of the same host: followed, without credentials.
    let open = setup.serve(tls(None));
    let upgrade = setup.faulty(Fault::Redirect(open.base()));
    let loaded = setup
        .load(&trusting(&upgrade.url("x.git")), "")
        .await
        .unwrap();
    assert_eq!(loaded.tree.files.len(), 1);
    assert!(
        open.seen().iter().all(|seen| seen.authorization.is_none()),
        "{:?}",
        open.seen()
    );
    assert!(
        upgrade
            .seen()
            .iter()
            .all(|seen| seen.authorization.is_some())
    );
    let closed = setup.serve(tls(Some(basic())));
    let upgrade = setup.faulty(Fault::Redirect(closed.base()));
    let error = setup
        .load(&trusting(&upgrade.url("x.git")), "")
        .await
        .unwrap_err();
    assert_eq!(error.reason(), Reason::AuthenticationFailed);
    assert!(
        error.to_string().contains("configure the https address"),
        "{error}"
    );
    assert!(
        closed
            .seen()
            .iter()
            .all(|seen| seen.authorization.is_none())
    );

    // From https to http: refused.
    let plain = SmartHttp::serve(&setup.root()).unwrap();
    let downgrade = setup.serve(SmartHttpOptions {
        fault: Fault::Redirect(plain.base()),
        ..tls(None)
    });
    let error = setup
        .load(&trusting(&downgrade.url("x.git")), "")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("https to plain http"), "{error}");
    assert!(plain.seen().is_empty());
}

#[tokio::test]
async fn git09_a_redirect_to_another_path_of_the_same_server_is_followed_and_loops_end() {
    let setup = Setup::new();
    let login = Some(basic());
    let credentials = with(&[("username", "me"), ("password", "s3cr3t")]);
    let to = |server: &SmartHttp, path: &str| Remote {
        credentials: Arc::clone(&credentials),
        ..remote(&server.url(path))
    };
    let fault = Fault::Renamed("/old/y".to_owned(), "/x.git".to_owned());
    let renamed = setup.serve(SmartHttpOptions {
        login,
        fault,
        ..Default::default()
    });
    setup.load(&to(&renamed, "old/y"), "").await.unwrap();
    let pack = renamed
        .seen()
        .into_iter()
        .find(|seen| seen.method == "POST")
        .unwrap();
    assert_eq!(pack.target, "/x.git/git-upload-pack");

    let there = "/other.git/info/refs?service=git-upload-pack".to_owned();
    let turning = setup.faulty(Fault::RedirectExactly(there));
    let error = setup.load(&to(&turning, "x.git"), "").await.unwrap_err();
    assert!(error.to_string().contains("too many"), "{error}");
    assert!(turning.seen().len() <= 6);

    let page = setup.faulty(Fault::RedirectExactly("/login?next=x".to_owned()));
    let error = setup.load(&to(&page, "x.git"), "").await.unwrap_err();
    assert!(error.to_string().contains("login page"), "{error}");
}

#[tokio::test]
async fn tls_with_an_authority_of_ones_own_works_and_checks_the_name() {
    let setup = Setup::new();
    let authority = Authority::create(&setup.dir.path().join("tls")).unwrap();
    let pem = std::fs::read_to_string(&authority.ca).unwrap();
    let credentials = with(&[("ca.crt", &pem)]);
    let server = setup.serve(SmartHttpOptions {
        tls: Some(authority),
        ..Default::default()
    });
    let url = server.url("x.git");
    let trusting = |url: &str| Remote {
        credentials: Arc::clone(&credentials),
        ..remote(url)
    };
    setup.load(&trusting(&url), "").await.unwrap();
    setup
        .load(&trusting(&url.replace("127.0.0.1", "localhost")), "")
        .await
        .unwrap();
    let error = setup
        .load(&trusting(&url.replace("127.0.0.1", "127.0.0.2")), "")
        .await
        .unwrap_err();
    // Nothing listens there, or the certificate is for another address.
    assert!(
        matches!(error, GitError::Unreachable { .. } | GitError::Tls { .. }),
        "{error}"
    );
    let other = Authority::create(&setup.dir.path().join("other")).unwrap();
    let pem = std::fs::read_to_string(&other.ca).unwrap();
    let wrong = Remote {
        credentials: with(&[("ca.crt", &pem)]),
        ..remote(&url)
    };
    let error = setup.load(&wrong, "").await.unwrap_err();
    assert_eq!(error.reason(), Reason::CertificateRefused, "{error}");
}

#[tokio::test]
async fn git16_hanging_dripping_and_endless_servers_are_ended() {
    let setup = Setup::new();
    let short = |url: &str, timeout: u64, idle: u64| {
        let limits = GitLimits {
            timeout: Duration::from_millis(timeout),
            idle: Duration::from_millis(idle),
            bytes: 1 << 20,
            objects: 1000,
        };
        Remote {
            limits,
            ..remote(url)
        }
    };
    for (fault, timeout, idle, reason, words) in [
        (
            Fault::Hang,
            60_000,
            300,
            Reason::FetchTimeout,
            "no answer within 0.3 s",
        ),
        (
            Fault::Hang,
            300,
            60_000,
            Reason::FetchTimeout,
            "not done within 0.3 s",
        ),
        (
            Fault::Drip(Duration::from_millis(20)),
            700,
            60_000,
            Reason::FetchTimeout,
            "not done",
        ),
        (
            Fault::EndlessRefs,
            30_000,
            10_000,
            Reason::FetchTooLarge,
            "1048576 bytes",
        ),
        (
            Fault::EndlessPack,
            30_000,
            10_000,
            Reason::FetchTooLarge,
            "more than",
        ),
    ] {
        let what = format!("{fault:?}");
        let server = setup.faulty(fault);
        let started = Instant::now();
        let error = setup
            .load(&short(&server.url("x.git"), timeout, idle), "")
            .await
            .unwrap_err();
        assert_eq!(error.reason(), reason, "{what}: {error}");
        assert!(error.to_string().contains(words), "{what}: {error}");
        // A guard against hanging, far above what it takes.
        assert!(started.elapsed() < Duration::from_secs(20), "{what}");
        assert!(setup.scratch_is_empty(), "{what}");
    }
    // The others go on meanwhile, and afterwards.
    let server = SmartHttp::serve(&setup.root()).unwrap();
    setup.load(&remote(&server.url("x.git")), "").await.unwrap();
}

#[tokio::test]
async fn too_many_objects_are_refused_when_the_server_announces_them() {
    let setup = Setup::new();
    let many: Vec<_> = (0..300)
        .map(|n| (format!("data/{n}"), Entry::text(&n.to_string())))
        .collect();
    setup.repo.commit("many", &many).unwrap();
    let server = SmartHttp::serve(&setup.root()).unwrap();
    let mut small = remote(&server.url("x.git"));
    small.limits.objects = 100;
    let error = setup.load(&small, "many").await.unwrap_err();
    assert!(
        matches!(
            error,
            GitError::TooLarge {
                limit: 100,
                unit: "objects",
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn a_dropped_fetch_ends_and_gives_its_place_back() {
    let setup = Setup::new();
    let git = Git::new(&setup.dir.path().join("single"), 1).unwrap();
    let hanging = setup.faulty(Fault::Hang);
    let waiting = {
        let (git, mut remote) = (git.clone(), remote(&hanging.url("x.git")));
        remote.limits.timeout = Duration::from_mins(2);
        remote.limits.idle = Duration::from_mins(2);
        tokio::spawn(async move { git.resolve(&remote, &Wanted::Head).await })
    };
    // Once the request is there, the only place is taken.
    tokio::time::timeout(Duration::from_secs(20), async {
        while hanging.seen().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    waiting.abort();
    let server = SmartHttp::serve(&setup.root()).unwrap();
    let good = remote(&server.url("x.git"));
    // Far below the two minutes that the hanging one would have had.
    let next = tokio::time::timeout(Duration::from_secs(20), git.resolve(&good, &Wanted::Head));
    next.await.unwrap().unwrap();
}
