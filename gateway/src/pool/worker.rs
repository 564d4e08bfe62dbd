//! One worker: its connections, its load, and whether it stands aside.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::link::{Link, MAX_STREAMS};
use super::locked;
use crate::groups::WorkerAt;

/// Connections to one worker.
const MAX_LINKS: usize = 32;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// A worker.
#[derive(Debug)]
pub struct Worker {
    at: WorkerAt,
    load: Arc<AtomicUsize>,
    links: Mutex<Vec<Arc<Link>>>,
    /// Held while connecting, so that a burst opens one connection and not hundreds.
    connecting: tokio::sync::Mutex<()>,
    trouble: Mutex<Trouble>,
}

#[derive(Debug, Default)]
struct Trouble {
    failures: u32,
    until: Option<Instant>,
}

/// A call at a worker; it counts as load until this is dropped.
#[derive(Debug)]
pub(super) struct Place(Option<Arc<AtomicUsize>>);

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(load) = &self.0 {
            load.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Worker {
    /// A worker; connects on first use.
    pub fn new(at: WorkerAt) -> Self {
        Self {
            at,
            load: Arc::default(),
            links: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            trouble: Mutex::default(),
        }
    }

    /// `host:port`.
    pub fn address(&self) -> &str {
        &self.at.address
    }

    pub(super) fn at(&self) -> &WorkerAt {
        &self.at
    }

    /// Whether it is in this zone; without one every worker is.
    pub(super) fn is_in(&self, zone: Option<&str>) -> bool {
        zone.is_none() || self.at.zone.as_deref() == zone
    }

    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    pub(super) fn place(&self) -> Place {
        self.load.fetch_add(1, Ordering::Relaxed);
        Place(Some(Arc::clone(&self.load)))
    }

    /// A place that is no load.
    #[expect(
        clippy::unused_self,
        reason = "a place is a worker's, whether it counts or not"
    )]
    pub(super) fn idle_place(&self) -> Place {
        Place(None)
    }

    /// Whether it could not be reached lately.
    pub(crate) fn stands_aside(&self) -> bool {
        locked(&self.trouble)
            .until
            .is_some_and(|until| Instant::now() < until)
    }

    /// The emptiest connection; a new one when all are full.
    pub(super) async fn link(&self) -> Result<Arc<Link>, String> {
        if let Some(link) = self.roomy() {
            return Ok(link);
        }
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(link) = self.roomy() {
            return Ok(link);
        }
        match Link::connect(&self.at).await {
            Ok(link) => {
                let link = Arc::new(link);
                locked(&self.links).push(Arc::clone(&link));
                *locked(&self.trouble) = Trouble::default();
                Ok(link)
            }
            Err(error) => {
                let mut trouble = locked(&self.trouble);
                let pause = FIRST_PAUSE * 2_u32.pow(trouble.failures.min(6));
                trouble.failures += 1;
                trouble.until = Some(Instant::now() + pause.min(MAX_PAUSE));
                Err(error)
            }
        }
    }

    fn roomy(&self) -> Option<Arc<Link>> {
        let mut links = locked(&self.links);
        links.retain(|link| link.is_usable());
        let full = links.len() >= MAX_LINKS;
        let emptiest = links.iter().min_by_key(|link| link.streams())?;
        (full || emptiest.streams() < MAX_STREAMS).then(|| Arc::clone(emptiest))
    }
}
