//! Listing refs and fetching commits.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use git2::{
    AutotagOption, Direction, ErrorCode, FetchOptions, Oid, RemoteCallbacks, Repository,
    RepositoryInitOptions,
};
use tempfile::TempDir;

use super::{GitError, RemoteRef, Resolved, session::Session, transport, url::Address, walk};
use crate::{Tree, tree::TreeLimits};

const PREFIX: &str = "fetch-";
const TIP: &str = "refs/ramen/tip";

/// A fetched commit. Its folder goes away with it.
#[derive(Debug)]
pub struct Fetched {
    /// Absent for a local repository, which is read in place.
    _folder: Option<TempDir>,
    repository: PathBuf,
    resolved: Resolved,
}

impl Fetched {
    /// What was fetched. The commit may be newer than the one asked for, when the branch moved.
    pub fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// Reads `<path>/mcp` of the commit; `path` is empty for the root. This blocks.
    pub fn walk(&self, path: &str, limits: &TreeLimits) -> Result<Tree, GitError> {
        walk::walk(&self.repository, &self.resolved.commit, path, limits)
    }
}

/// Removes the folders of fetches that a crash ended.
pub(super) fn sweep(scratch: &Path) -> io::Result<()> {
    for entry in fs::read_dir(scratch)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn local(session: &Session) -> Option<&Path> {
    match session.remote.url.address() {
        Address::Local(path) => Some(path),
        _ => None,
    }
}

pub(super) fn open(path: &Path) -> Result<Repository, GitError> {
    Repository::open(path).map_err(|e| {
        let folder = path.to_owned();
        match e.code() {
            ErrorCode::NotFound if path.is_dir() => GitError::NoRepository { path: folder },
            ErrorCode::NotFound => GitError::NoFolder { path: folder },
            _ => GitError::Library {
                url: path.display().to_string(),
                message: e.message().to_owned(),
            },
        }
    })
}

pub(super) fn ls_remote(session: &Arc<Session>) -> Result<Vec<RemoteRef>, GitError> {
    let failed = |e: git2::Error| session.library(&e);
    let _entered = transport::enter(session);
    let address = match local(session) {
        Some(path) => {
            open(path)?;
            path.to_str()
                .ok_or_else(|| GitError::Url {
                    message: "the path is not UTF-8".to_owned(),
                })?
                .to_owned()
        }
        None => transport::ADDRESS.to_owned(),
    };
    let mut remote = git2::Remote::create_detached(address).map_err(failed)?;
    remote.connect(Direction::Fetch).map_err(failed)?;
    let mut refs: Vec<RemoteRef> = Vec::new();
    for head in remote.list().map_err(failed)? {
        let (name, id) = (head.name(), head.oid().to_string());
        if let Some(tag) = name.strip_suffix("^{}") {
            if let Some(tag) = refs.iter_mut().rfind(|r| r.name == tag) {
                tag.peeled = Some(id);
            }
            continue;
        }
        let target = head.symref_target().map(str::to_owned);
        refs.push(RemoteRef {
            name: name.to_owned(),
            id,
            peeled: None,
            target,
        });
    }
    // Nothing is read any more; a server that is gone already does not matter.
    let _ = remote.disconnect();
    Ok(refs)
}

pub(super) fn fetch(
    session: &Arc<Session>,
    resolved: &Resolved,
    scratch: &Path,
) -> Result<Fetched, GitError> {
    if let Some(path) = local(session) {
        return fetch_local(path, resolved);
    }
    let disk = |source: io::Error| GitError::Disk {
        path: scratch.to_owned(),
        source: source.into(),
    };
    let folder = tempfile::Builder::new()
        .prefix(PREFIX)
        .tempdir_in(scratch)
        .map_err(disk)?;
    let failed = |e: git2::Error| session.library(&e);
    let mut options = RepositoryInitOptions::new();
    options.bare(true).external_template(false);
    let repository = Repository::init_opts(folder.path(), &options).map_err(failed)?;
    let commit = match (&resolved.full_ref, &resolved.on_branch) {
        (Some(full_ref), _) => {
            get(session, &repository, &[format!("+{full_ref}:{TIP}")], 1)?;
            // libgit2 is content when a ref does not exist, so it is looked for.
            tip(&repository).ok_or_else(|| GitError::RefNotFound {
                what: format!("{full_ref} does not exist any more"),
            })?
        }
        (None, Some(branch)) => on_branch(session, &repository, branch, &resolved.commit)?,
        (None, None) => pinned(session, &repository, &resolved.commit)?,
    };
    let resolved = Resolved {
        commit: commit.to_string(),
        ..resolved.clone()
    };
    let repository = folder.path().to_owned();
    Ok(Fetched {
        _folder: Some(folder),
        repository,
        resolved,
    })
}

/// A local repository is read where it is: libgit2's local transport has no depth and would copy
/// the whole history.
fn fetch_local(path: &Path, resolved: &Resolved) -> Result<Fetched, GitError> {
    let repository = open(path)?;
    let absent = |what: String| GitError::RefNotFound { what };
    let commit = if let Some(full_ref) = &resolved.full_ref {
        repository
            .find_reference(full_ref)
            .and_then(|found| found.peel_to_commit())
            .map_err(|_| absent(format!("{full_ref} does not exist any more")))?
            .id()
    } else {
        let id = parse_id(&resolved.commit)?;
        let found = repository.find_commit(id);
        found
            .map_err(|_| absent(format!("there is no commit {id}")))?
            .id()
    };
    if let Some(branch) = &resolved.on_branch {
        let tip = repository
            .find_reference(&format!("refs/heads/{branch}"))
            .and_then(|found| found.peel_to_commit())
            .map_err(|_| absent(format!("there is no branch {branch}")))?;
        contains(&repository, tip.id(), commit, branch)?;
    }
    let resolved = Resolved {
        commit: commit.to_string(),
        ..resolved.clone()
    };
    Ok(Fetched {
        _folder: None,
        repository: path.to_owned(),
        resolved,
    })
}

fn parse_id(commit: &str) -> Result<Oid, GitError> {
    Oid::from_str(commit).map_err(|_| GitError::Wanted {
        message: format!("{commit:?} is not a commit id"),
    })
}

/// Fetches into a fresh repository; depth 0 is the whole history.
fn get(
    session: &Arc<Session>,
    repository: &Repository,
    specs: &[String],
    depth: i32,
) -> Result<(), GitError> {
    let failed = |e: git2::Error| session.library(&e);
    let _entered = transport::enter(session);
    let mut callbacks = RemoteCallbacks::new();
    callbacks.transfer_progress(|stats| session.transferred(&stats));
    let mut options = FetchOptions::new();
    options
        .remote_callbacks(callbacks)
        .depth(depth)
        .download_tags(AutotagOption::None)
        .update_fetchhead(false);
    let mut remote = repository
        .remote_anonymous(transport::ADDRESS)
        .map_err(failed)?;
    remote
        .fetch(specs, Some(&mut options), None)
        .map_err(failed)
}

fn tip(repository: &Repository) -> Option<Oid> {
    let commit = repository
        .find_reference(TIP)
        .and_then(|found| found.peel_to_commit());
    commit.ok().map(|commit| commit.id())
}

/// A commit by its id alone: most forges give any commit; others give tips only, so then all
/// branches and tags are fetched with their history.
fn pinned(session: &Arc<Session>, repository: &Repository, commit: &str) -> Result<Oid, GitError> {
    let id = parse_id(commit)?;
    let direct = get(session, repository, &[format!("+{commit}:{TIP}")], 1);
    if direct.is_ok() && repository.find_commit(id).is_ok() {
        return Ok(id);
    }
    // A refusal by the server's access rules, a limit or the deadline is final. That the server
    // does not give commits by id (it may just hang up then) is not.
    match session.forget_failure() {
        None | Some(GitError::Unreachable { .. } | GitError::NotGit { .. }) => {}
        Some(error) => return Err(error),
    }
    session.patience()?;
    tracing::debug!(url = %session.remote.url, commit, "the server gives no commits by id");
    let specs = [
        "+refs/heads/*:refs/ramen/heads/*",
        "+refs/tags/*:refs/ramen/tags/*",
    ];
    get(session, repository, &specs.map(str::to_owned), 0)?;
    match repository.find_commit(id) {
        Ok(found) => Ok(found.id()),
        Err(_) => Err(GitError::RefNotFound {
            what: format!("there is no commit {commit} on any branch or tag"),
        }),
    }
}

fn on_branch(
    session: &Arc<Session>,
    repository: &Repository,
    branch: &str,
    commit: &str,
) -> Result<Oid, GitError> {
    let id = parse_id(commit)?;
    get(
        session,
        repository,
        &[format!("+refs/heads/{branch}:{TIP}")],
        0,
    )?;
    let tip = tip(repository).ok_or_else(|| GitError::RefNotFound {
        what: format!("there is no branch {branch}"),
    })?;
    contains(repository, tip, id, branch)?;
    Ok(id)
}

fn contains(repository: &Repository, tip: Oid, commit: Oid, branch: &str) -> Result<(), GitError> {
    let below = repository.graph_descendant_of(tip, commit).unwrap_or(false);
    if tip == commit || below {
        return Ok(());
    }
    Err(GitError::RefNotFound {
        what: format!("the commit {commit} is not on the branch {branch}"),
    })
}
