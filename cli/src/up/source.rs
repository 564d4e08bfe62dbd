//! Where a group's code comes from on this machine: a git repository, or a working folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ramen_group::{Finding, LayerRef, Reason};
use ramen_source::git::{Git, GitError, OnProgress, Remote, Resolved, Wanted};
use ramen_source::store::StoreError;
use ramen_source::tree::{TreeLimits, walk_folder};
use ramen_source::{Kind, Store, Tree, layer};

/// The source of a group.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// A repository and what is wanted of it.
    Git {
        /// Boxed: far larger than the other kind.
        remote: Box<Remote>,
        wanted: Wanted,
        /// The folder in the repository that holds `mcp/`; empty for its root.
        path: String,
    },
    /// A folder that holds `mcp/`.
    Folder(PathBuf),
}

impl Source {
    /// Where the code comes from, whichever revision of it is wanted.
    pub(super) fn origin(&self) -> String {
        match self {
            Self::Git { remote, path, .. } => format!("{} {path}", remote.url),
            Self::Folder(dir) => dir.display().to_string(),
        }
    }
}

/// A revision that is known to exist.
#[derive(Debug, Clone)]
pub(super) enum Found {
    Git(Resolved),
    /// A folder has no cheap way to tell: it is walked.
    Folder(Tree),
}

impl Found {
    /// The commit, or the hash of the folder.
    pub(super) fn commit(&self) -> &str {
        match self {
            Self::Git(resolved) => &resolved.commit,
            Self::Folder(tree) => &tree.id,
        }
    }

    /// As people see it.
    pub(super) fn revision(&self) -> String {
        match self {
            Self::Git(resolved) => resolved.revision(),
            Self::Folder(tree) => folder_revision(tree),
        }
    }
}

/// A revision whose code is in the store.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) commit: String,
    pub(super) revision: String,
    pub(super) code: LayerRef,
}

/// Why a source gives nothing.
#[derive(Debug, Clone)]
pub(super) struct Trouble {
    pub(super) finding: Finding,
    /// Trying again without a change may help.
    pub(super) transient: bool,
}

impl From<GitError> for Trouble {
    fn from(error: GitError) -> Self {
        Self {
            transient: error.is_transient(),
            finding: error.finding(),
        }
    }
}

impl Trouble {
    /// Something of this machine that may pass: a full disk, a folder that cannot be written.
    fn here(reason: Reason, what: &str, error: &dyn std::error::Error) -> Self {
        Self {
            finding: Finding::group(reason, format!("{what}: {}", ramen_redact::chain(error))),
            transient: true,
        }
    }
}

/// What a fetch needs from this machine.
#[derive(Debug, Clone)]
pub(super) struct Fetcher {
    git: Git,
    store: Store,
    scratch: PathBuf,
}

impl Fetcher {
    pub(super) fn open(store: &Path, scratch: &Path) -> Result<Self, Trouble> {
        std::fs::create_dir_all(scratch)
            .map_err(|error| Trouble::here(Reason::Internal, "the scratch folder", &error))?;
        Ok(Self {
            git: Git::new(&scratch.join("git"), 4)?,
            store: Store::open(store)
                .map_err(|error| Trouble::here(error.reason(), "the store", &error))?,
            scratch: scratch.to_owned(),
        })
    }

    /// What is wanted now: one look at the refs, or a walk of the folder.
    pub(super) async fn resolve(&self, source: &Source) -> Result<Found, Trouble> {
        match source {
            Source::Git { remote, wanted, .. } => {
                Ok(Found::Git(self.git.resolve(remote, wanted).await?))
            }
            Source::Folder(dir) => Ok(Found::Folder(walk(dir.clone()).await?)),
        }
    }

    /// Brings the code of a revision into the store.
    pub(super) async fn store(
        &self,
        source: &Source,
        found: Found,
        progress: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<Stored, Trouble> {
        let (commit, revision, tree) = match (source, found) {
            (Source::Git { remote, path, .. }, Found::Git(resolved)) => {
                let loaded = self
                    .git
                    .load(
                        remote,
                        &resolved,
                        path,
                        TreeLimits::default(),
                        on_progress(progress),
                    )
                    .await?;
                (
                    loaded.resolved.commit.clone(),
                    loaded.resolved.revision(),
                    loaded.tree,
                )
            }
            (_, Found::Folder(tree)) => (tree.id.clone(), folder_revision(&tree), tree),
            (Source::Folder(dir), Found::Git(_)) => {
                let tree = walk(dir.clone()).await?;
                (tree.id.clone(), folder_revision(&tree), tree)
            }
        };
        let code = self.put(tree).await?;
        Ok(Stored {
            commit,
            revision,
            code,
        })
    }

    async fn put(&self, tree: Tree) -> Result<LayerRef, Trouble> {
        const WHAT: &str = "the code layer";
        let key = tree.id.clone();
        let stored = |error: StoreError| Trouble::here(error.reason(), WHAT, &error);
        if let Some(known) = self.store.find(Kind::Code, &key).await.map_err(stored)? {
            return Ok(known);
        }
        let scratch = self.scratch.clone();
        let packed = tokio::task::spawn_blocking(move || layer::pack_tree(&tree, &scratch)).await;
        let packed = packed
            .map_err(|error| Trouble::here(Reason::Internal, WHAT, &error))?
            .map_err(|error| Trouble::here(error.reason(), WHAT, &error))?;
        self.store
            .put(Kind::Code, &key, &packed)
            .await
            .map_err(stored)
    }

    /// Removes layers that no group needs any more.
    pub(super) async fn prune(&self, keep: &[LayerRef]) {
        /// `ramen validate` and groups of other files share the store.
        const YOUNG: Duration = Duration::from_hours(24);
        if let Err(error) = self.store.prune(keep, YOUNG).await {
            tracing::warn!(error = %error, "old layers could not be removed");
        }
    }
}

async fn walk(dir: PathBuf) -> Result<Tree, Trouble> {
    let walked =
        tokio::task::spawn_blocking(move || walk_folder(&dir, &TreeLimits::default())).await;
    walked
        .map_err(|error| Trouble::here(Reason::Internal, "the folder", &error))?
        .map_err(|error| Trouble {
            finding: error.finding(),
            // The person is editing: the next save is the next try.
            transient: false,
        })
}

fn folder_revision(tree: &Tree) -> String {
    let id = tree.id.trim_start_matches("dir-");
    format!("folder@{}", id.get(..12).unwrap_or(id))
}

fn on_progress(progress: impl Fn(String) + Send + Sync + 'static) -> OnProgress {
    Arc::new(move |step| {
        let total = match step.total_objects {
            0 => String::new(),
            total => format!("/{total}"),
        };
        progress(format!(
            "fetch {}{total} objects, {}",
            step.objects,
            super::deploy::size(step.bytes)
        ));
    })
}
