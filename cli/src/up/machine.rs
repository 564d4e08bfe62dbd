//! What all groups on this machine share: the store, the fetcher, the worker program.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use ramen_group::LayerRef;
use ramen_rollout::Memory;
use ramen_source::{Cache, Digest};
use tokio::time::Instant;

use super::source::{Fetcher, Trouble};
use crate::state::{StateDir, read_json};

/// Layers are swept at most this often.
const SWEEP: Duration = Duration::from_mins(10);

/// Shared by all groups.
pub(super) struct Machine {
    pub(super) state: StateDir,
    pub(super) worker: PathBuf,
    pub(super) fetcher: Fetcher,
    swept: Mutex<Option<Instant>>,
}

impl Machine {
    /// Opens the store; what no group needs any more goes.
    pub(super) fn open(state: StateDir, worker: PathBuf) -> Result<Self, Trouble> {
        let fetcher = Fetcher::open(&state.store(), &state.scratch())?;
        let machine = Self {
            state,
            worker,
            fetcher,
            swept: Mutex::new(None),
        };
        machine.clean_cache();
        Ok(machine)
    }

    /// Removes layers that no group needs, in the background.
    pub(super) fn prune(&self) {
        let mut swept = self
            .swept
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if swept.is_some_and(|at| at.elapsed() < SWEEP) {
            return;
        }
        *swept = Some(Instant::now());
        let (fetcher, keep) = (self.fetcher.clone(), self.keep());
        tokio::spawn(async move { fetcher.prune(&keep).await });
    }

    /// The layers of every group that has a memory here, also of those that do not run now.
    fn keep(&self) -> Vec<LayerRef> {
        let groups = std::fs::read_dir(self.state.root().join("groups"));
        let dirs = groups
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path().join("memory.json"));
        dirs.filter_map(|file| read_json::<Memory>(&file))
            .flat_map(|memory| memory.keep())
            .collect()
    }

    /// Removes unpacked layers that nobody needs: only now, before anything of this machine uses them.
    fn clean_cache(&self) {
        let keep: Vec<Digest> = self
            .keep()
            .iter()
            .filter_map(|layer| layer.digest.parse().ok())
            .collect();
        let cleaned = Cache::open(&self.state.cache()).and_then(|cache| cache.prune(&keep));
        if let Err(error) = cleaned {
            tracing::warn!(error = %error, "unpacked layers could not be removed");
        }
    }
}
