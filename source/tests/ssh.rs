//! Fetching over SSH from a real `sshd`. Skipped, loudly, where none is installed.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    collections::BTreeMap,
    io::Read,
    os::unix::net::{UnixListener, UnixStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ramen_group::Reason;
use ramen_source::{
    git::{Credentials, Git, GitError, GitLimits, GitUrl, Loaded, Remote, Wanted, no_progress},
    testing::{Repo, Sshd},
    tree::TreeLimits,
};

struct Setup {
    _dir: tempfile::TempDir,
    repo: Repo,
    git: Git,
    sshd: Sshd,
}

impl Setup {
    fn new() -> Option<Self> {
        if let Some(reason) = Sshd::missing() {
            ramen_skip::say(&reason);
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let repo = Repo::init(&dir.path().join("it's a repo.git")).unwrap();
        repo.push(&[("tools/a/a.py", "x = 1\n")]).unwrap();
        let git = Git::new(&dir.path().join("scratch"), 2).unwrap();
        let sshd = Sshd::start(&dir.path().join("sshd")).unwrap();
        Some(Self {
            _dir: dir,
            repo,
            git,
            sshd,
        })
    }

    fn remote(&self, files: &[(&str, String)]) -> Remote {
        let files: BTreeMap<_, _> = files
            .iter()
            .map(|(k, v)| ((*k).to_owned(), v.clone().into_bytes()))
            .collect();
        let url = self.sshd.url(self.repo.path()).replace(' ', "%20");
        Remote {
            credentials: Arc::new(Credentials::from_files(&files).unwrap()),
            limits: GitLimits {
                timeout: Duration::from_secs(20),
                ..GitLimits::default()
            },
            ..Remote::new(GitUrl::parse(&url).unwrap())
        }
    }

    async fn load(&self, remote: &Remote) -> Result<Loaded, GitError> {
        let resolved = self.git.resolve(remote, &Wanted::Head).await?;
        self.git
            .load(remote, &resolved, "", TreeLimits::default(), no_progress())
            .await
    }

    fn key(&self, name: &str) -> (&'static str, String) {
        ("identity", self.sshd.key(name).unwrap())
    }

    fn known(&self, key: &str) -> (&'static str, String) {
        ("known_hosts", self.sshd.known_hosts(key).unwrap())
    }
}

#[tokio::test]
async fn a_known_host_and_the_right_key_fetch() {
    let Some(setup) = Setup::new() else { return };
    for host_key in ["host_ed25519", "host_rsa"] {
        // Each file lists one of the server's two keys: that one is asked for.
        let remote = setup.remote(&[setup.key("client"), setup.known(host_key)]);
        let loaded = setup.load(&remote).await.unwrap();
        assert_eq!(loaded.tree.files[0].data, b"x = 1\n");
        assert_eq!(loaded.resolved.name.as_deref(), Some("main"));
    }
    let second = setup.repo.push(&[("tools/a/a.py", "x = 2\n")]).unwrap();
    setup.repo.push(&[("tools/a/a.py", "x = 3\n")]).unwrap();
    let remote = setup.remote(&[setup.key("client"), setup.known("host_ed25519")]);
    let wanted = Wanted::parse(&second).unwrap();
    let resolved = setup.git.resolve(&remote, &wanted).await.unwrap();
    let loaded = setup
        .git
        .load(&remote, &resolved, "", TreeLimits::default(), no_progress())
        .await
        .unwrap();
    assert_eq!(loaded.tree.files[0].data, b"x = 2\n");
}

#[tokio::test]
async fn git17_an_unknown_or_changed_host_key_is_refused_with_its_fingerprint() {
    let Some(setup) = Setup::new() else { return };
    let shown = |name: &str| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pub");
        std::fs::write(&path, setup.sshd.key(&format!("{name}.pub")).unwrap()).unwrap();
        let output = std::process::Command::new("ssh-keygen")
            .args(["-l", "-f", path.to_str().unwrap()])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_whitespace().nth(1).unwrap().to_owned()
    };
    let fingerprints = [shown("host_ed25519"), shown("host_rsa")];
    let named = |error: &GitError| {
        fingerprints
            .iter()
            .any(|fingerprint| error.to_string().contains(fingerprint))
    };
    let port = setup.sshd.port();
    let stranger = setup.sshd.key("stranger.pub").unwrap();
    let changed = ("known_hosts", format!("[127.0.0.1]:{port} {stranger}"));
    let error = setup
        .load(&setup.remote(&[setup.key("client"), changed]))
        .await
        .unwrap_err();
    assert!(matches!(error, GitError::HostKeyMismatch { .. }), "{error}");
    assert_eq!(error.reason(), Reason::HostKeyMismatch);
    assert!(named(&error), "{error} names none of {fingerprints:?}");
    let other = ("known_hosts", format!("github.com {stranger}"));
    for files in [vec![setup.key("client"), other], vec![setup.key("client")]] {
        let error = setup.load(&setup.remote(&files)).await.unwrap_err();
        assert!(matches!(error, GitError::HostKeyUnknown { .. }), "{error}");
        assert!(named(&error) && error.to_string().contains(&format!("[127.0.0.1]:{port}")));
        assert!(!error.is_transient());
    }
    let revoked = format!(
        "{}@revoked * {}@revoked * {}",
        setup.sshd.known_hosts("host_ed25519").unwrap(),
        setup.sshd.key("host_ed25519.pub").unwrap(),
        setup.sshd.key("host_rsa.pub").unwrap()
    );
    let files = [setup.key("client"), ("known_hosts", revoked)];
    let error = setup.load(&setup.remote(&files)).await.unwrap_err();
    assert!(matches!(error, GitError::HostKeyRevoked { .. }), "{error}");
}

/// Says to the copy of this program that a test starts what it is to do.
const ROLE: &str = "RAMEN_TEST_ROLE";

/// An ssh agent that counts who comes, and sends everybody away.
struct Agent {
    _dir: tempfile::TempDir,
    socket: PathBuf,
    asked: Arc<AtomicUsize>,
}

impl Agent {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("agent");
        let listener = UnixListener::bind(&socket).unwrap();
        let asked = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                drop(stream);
            }
        });
        Self {
            _dir: dir,
            socket,
            asked,
        }
    }

    /// Runs this very test in a process that finds the agent; how often that asked the agent.
    fn asked_by(&self, test: &str, role: &str) -> usize {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env("SSH_AUTH_SOCK", &self.socket)
            .env(ROLE, role)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let failed = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("1 passed"), "{said}\n{failed}");
        // Who comes after them is sent away after they were counted.
        let mut last = UnixStream::connect(&self.socket).unwrap();
        last.read_to_end(&mut Vec::new()).unwrap();
        self.asked.swap(0, Ordering::SeqCst) - 1
    }
}

/// An agent with the right key would let us in: it must not be asked. It is found by the environment, and that of a test is
/// shared, so this happens in a process of its own.
#[tokio::test]
async fn a_wrong_key_or_none_is_refused_and_no_agent_is_asked() {
    match std::env::var(ROLE).as_deref() {
        Ok("ask the agent") => {
            let mut agent = ssh2::Session::new().unwrap().agent().unwrap();
            // It takes connections and answers nothing.
            let _ = agent.connect().and_then(|()| agent.list_identities());
        }
        Ok(_) => wrong_keys_are_refused().await,
        Err(_) => {
            const TEST: &str = "a_wrong_key_or_none_is_refused_and_no_agent_is_asked";
            let agent = Agent::start();
            assert_eq!(agent.asked_by(TEST, "fetch"), 0, "the agent was asked");
            assert_eq!(agent.asked_by(TEST, "ask the agent"), 1, "it can be asked");
        }
    }
}

async fn wrong_keys_are_refused() {
    let Some(setup) = Setup::new() else { return };
    for (files, words) in [
        (
            vec![setup.key("stranger"), setup.known("host_ed25519")],
            "the key in identity",
        ),
        (
            vec![setup.known("host_ed25519")],
            "no ssh key is configured",
        ),
        (
            vec![
                ("password", "s3cr3t".to_owned()),
                setup.known("host_ed25519"),
            ],
            "the password",
        ),
    ] {
        let error = setup.load(&setup.remote(&files)).await.unwrap_err();
        assert_eq!(error.reason(), Reason::AuthenticationFailed, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(!format!("{error:?}").contains("s3cr3t"));
    }
}

#[tokio::test]
async fn a_repository_that_is_not_there_is_told_apart_from_a_broken_server() {
    let Some(setup) = Setup::new() else { return };
    let mut remote = setup.remote(&[setup.key("client"), setup.known("host_ed25519")]);
    let gone = setup.repo.path().with_file_name("gone.git");
    remote.url = GitUrl::parse(&setup.sshd.url(&gone)).unwrap();
    let error = setup.load(&remote).await.unwrap_err();
    assert!(matches!(error, GitError::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_accepts_and_says_nothing_is_given_up() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "ssh://git@127.0.0.1:{}/x.git",
        silent.local_addr().unwrap().port()
    );
    let dir = tempfile::tempdir().unwrap();
    let git = Git::new(dir.path(), 1).unwrap();
    let limits = GitLimits {
        idle: Duration::from_millis(400),
        ..GitLimits::default()
    };
    let remote = Remote {
        limits,
        ..Remote::new(GitUrl::parse(&url).unwrap())
    };
    let waiting = git.resolve(&remote, &Wanted::Head);
    let error = tokio::time::timeout(Duration::from_secs(20), waiting)
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(error.reason(), Reason::FetchTimeout, "{error}");
}
