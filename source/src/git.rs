//! Git: resolve a ref, fetch its commit, walk `mcp/`. Never a checkout, never the `git` program.
//!
//! libgit2 speaks the smart protocol and keeps the objects; the bytes travel over transports of
//! our own (HTTP over hyper and rustls, SSH over libssh2). So the deadline, the byte limits, the
//! trust in certificates and host keys, and where a credential may go are decided here, in one
//! place and for one operation, not by process-wide switches of a C library. libgit2 sees only the
//! address `ramen://source`: no user configuration (`url.insteadOf`, proxies, helpers) applies and
//! no error text of it can hold an address.
//!
//! Rules
//! * A credential goes to the scheme, host and port of the configured address, nowhere else.
//! * Redirects are followed on the same scheme, host and port, and from `http` to `https` of the
//!   same host (then without credentials). All others are refused.
//! * One attempt with the configured credentials; a refusal is final.
//! * SSH needs a `known_hosts` entry. An SSH agent, `~/.ssh` and `~/.gitconfig` are never read.
//! * Each fetch uses a new bare folder and depth 1. Local repositories are read in place.

mod credentials;
mod error;
mod fetch;
mod http;
mod known_hosts;
mod listings;
mod policy;
mod reference;
mod session;
mod ssh;
mod transport;
mod url;
mod walk;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::sync::{Semaphore, oneshot};

use crate::{Tree, lock::SharedDir, tree::TreeLimits};
use listings::Listings;
use session::Session;

pub use self::{
    credentials::Credentials,
    error::GitError,
    fetch::Fetched,
    known_hosts::{HostKeyVerdict, KnownHosts},
    policy::{AddressPolicy, UrlPolicy},
    reference::{RemoteRef, Resolved, Wanted},
    url::GitUrl,
};

#[cfg(feature = "testing")]
pub(crate) fn prepare_library() {
    transport::setup();
}

/// Bounds of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GitLimits {
    /// Wall clock for the whole operation.
    pub timeout: Duration,
    /// How long the server may be silent.
    pub idle: Duration,
    /// Bytes received.
    pub bytes: u64,
    /// Objects received.
    pub objects: usize,
}

impl Default for GitLimits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_mins(1),
            idle: Duration::from_secs(30),
            bytes: 512 << 20,
            objects: 500_000,
        }
    }
}

/// A repository and how it may be reached.
#[derive(Debug, Clone)]
pub struct Remote {
    /// Its address.
    pub url: GitUrl,
    /// What to log in with.
    pub credentials: Arc<Credentials>,
    /// Bounds.
    pub limits: GitLimits,
    /// Which addresses may be used at all.
    pub policy: UrlPolicy,
}

impl Remote {
    /// A repository with default bounds, no credentials, and everything allowed that a person on
    /// their own machine may do.
    pub fn new(url: GitUrl) -> Self {
        Self {
            url,
            credentials: Arc::default(),
            limits: GitLimits::default(),
            policy: UrlPolicy::machine(),
        }
    }
}

/// How far a fetch is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FetchProgress {
    /// Objects received.
    pub objects: usize,
    /// Objects in all; 0 before the server said so.
    pub total_objects: usize,
    /// Bytes received.
    pub bytes: u64,
}

/// Called from the thread of the fetch, often: keep it short.
pub type OnProgress = Arc<dyn Fn(FetchProgress) + Send + Sync>;

/// A progress callback that does nothing.
pub fn no_progress() -> OnProgress {
    Arc::new(|_| {})
}

/// What [`Git::load`] gives.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What was fetched; the commit is that of the fetch, should the branch have moved since the
    /// ref was resolved.
    pub resolved: Resolved,
    /// The files of `mcp/`.
    pub tree: Tree,
}

/// Runs git operations, each on a thread of its own, a few at a time. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Git {
    permits: Arc<Semaphore>,
    scratch: PathBuf,
    listings: Arc<Listings>,
    _shared: Arc<SharedDir>,
}

impl Git {
    /// `scratch` holds the folders of running fetches; what a crash left there is swept.
    pub fn new(scratch: &Path, concurrency: usize) -> Result<Self, GitError> {
        transport::setup();
        let failed = |source: std::io::Error| GitError::Disk {
            path: scratch.to_owned(),
            source: source.into(),
        };
        let shared = SharedDir::open(scratch, fetch::sweep).map_err(failed)?;
        Ok(Self {
            permits: Arc::new(Semaphore::new(concurrency.max(1))),
            scratch: scratch.to_owned(),
            listings: Arc::default(),
            _shared: Arc::new(shared),
        })
    }

    /// All refs of the remote.
    pub async fn ls_remote(&self, remote: &Remote) -> Result<Vec<RemoteRef>, GitError> {
        self.run(remote, no_progress(), fetch::ls_remote).await
    }

    /// The commit that is wanted now. A full commit id needs no network. Of those who ask the same repository
    /// with the same login at the same time, one asks for all.
    pub async fn resolve(&self, remote: &Remote, wanted: &Wanted) -> Result<Resolved, GitError> {
        if let Some(resolved) = reference::without_refs(wanted) {
            policy::check(&remote.url, &remote.policy)?;
            return Ok(resolved);
        }
        let refs = self.listings.of(remote, || self.ls_remote(remote)).await?;
        reference::resolve(&refs, wanted)
    }

    /// Fetches a resolved commit into a new bare folder, which goes away with the result.
    pub async fn fetch(
        &self,
        remote: &Remote,
        resolved: &Resolved,
        progress: OnProgress,
    ) -> Result<Fetched, GitError> {
        let (resolved, scratch) = (resolved.clone(), self.scratch.clone());
        self.run(remote, progress, move |session| {
            fetch::fetch(session, &resolved, &scratch)
        })
        .await
    }

    /// Fetches a resolved commit and walks `<path>/mcp` of it. `path` is empty for the root.
    pub async fn load(
        &self,
        remote: &Remote,
        resolved: &Resolved,
        path: &str,
        limits: TreeLimits,
        progress: OnProgress,
    ) -> Result<Loaded, GitError> {
        let (resolved, scratch) = (resolved.clone(), self.scratch.clone());
        let path = path.to_owned();
        self.run(remote, progress, move |session| {
            let fetched = fetch::fetch(session, &resolved, &scratch)?;
            let tree = fetched.walk(&path, &limits)?;
            Ok(Loaded {
                resolved: fetched.resolved().clone(),
                tree,
            })
        })
        .await
    }

    /// Runs blocking work on a thread of its own and stops waiting at the deadline, whatever the
    /// thread does. Dropping the future stops the work.
    async fn run<T: Send + 'static>(
        &self,
        remote: &Remote,
        progress: OnProgress,
        work: impl FnOnce(&Arc<Session>) -> Result<T, GitError> + Send + 'static,
    ) -> Result<T, GitError> {
        policy::check(&remote.url, &remote.policy)?;
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        let session = Arc::new(Session::new(remote.clone(), self.scratch.clone(), progress));
        let stop = StopOnDrop(Arc::clone(&session));
        let (answer, result) = oneshot::channel();
        let thread = std::thread::Builder::new().name("ramen-git".to_owned());
        let spawned = thread.spawn(move || {
            let done = session.finish(work(&session));
            drop(permit);
            // Nobody may wait any more: then the result is dropped.
            let _ = answer.send(done);
        });
        spawned.map_err(|source| GitError::Disk {
            path: self.scratch.clone(),
            source: source.into(),
        })?;
        // The transports keep the deadline themselves; this catches what they cannot, such as a
        // name server that does not answer.
        let grace = remote.limits.timeout + Duration::from_secs(1);
        match tokio::time::timeout(grace, result).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(GitError::Library {
                url: remote.url.to_string(),
                message: "the git thread ended without an answer".to_owned(),
            }),
            Err(_) => Err(stop.0.timed_out()),
        }
    }
}

/// Ends the network part of an operation that nobody waits for.
struct StopOnDrop(Arc<Session>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
