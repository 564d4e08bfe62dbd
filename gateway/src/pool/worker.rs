//! One worker: its connections, its load, and whether it stands aside.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Status};

use super::link::{CONNECT, Link, MAX_STREAMS, was_lost};
use super::locked;
use crate::groups::WorkerAt;

/// Connections to one worker.
const MAX_LINKS: usize = 32;
/// Calls that fail one after the other until it stands aside. One may be the fault of what was called.
pub(super) const IN_A_ROW: u32 = 3;
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
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
    /// Whether there is any: an answer of a worker that is well takes no lock.
    troubled: AtomicBool,
    /// How often a worker of its pool was set aside.
    ejections: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Trouble {
    /// Calls that failed since one was answered last.
    failures: u32,
    /// Times that it was set aside since then.
    times: u32,
    until: Option<Instant>,
    /// When the last attempt to connect failed, and why.
    unreached: Option<(Instant, String)>,
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
    /// A worker; connects on first use. Times that it is set aside are counted there.
    pub(super) fn new(at: WorkerAt, ejections: &Arc<AtomicU64>) -> Self {
        Self {
            at,
            load: Arc::default(),
            links: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            trouble: Mutex::default(),
            troubled: AtomicBool::default(),
            ejections: Arc::clone(ejections),
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

    /// Whether it could not be reached lately, or failed what it was asked.
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
        let asked = Instant::now();
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(link) = self.roomy() {
            return Ok(link);
        }
        // Whoever waited for an attempt that failed does not wait for another: the next worker is asked.
        if let Some(why) = self.unreached_since(asked) {
            return Err(why);
        }
        self.try_again();
        match Link::connect(&self.at).await {
            Ok(link) => {
                let link = Arc::new(link);
                locked(&self.links).push(Arc::clone(&link));
                // Whether it does any work the next answer says.
                locked(&self.trouble).until = None;
                Ok(link)
            }
            Err(error) => {
                let mut trouble = locked(&self.trouble);
                trouble.unreached = Some((Instant::now(), error.clone()));
                self.set_aside(&mut trouble);
                Err(error)
            }
        }
    }

    /// A call was answered.
    pub(super) fn answered(&self) {
        if self.troubled.load(Ordering::Relaxed) {
            let mut trouble = locked(&self.trouble);
            *trouble = Trouble::default();
            self.troubled.store(false, Ordering::Relaxed);
        }
    }

    /// A call ended with a status. Most of them are an answer.
    pub(super) fn ended(&self, status: &Status) {
        if status.code() != Code::Unavailable && !was_lost(status) {
            return self.answered();
        }
        let mut trouble = locked(&self.trouble);
        // All calls of a connection that broke fail at once: that is one failure.
        if trouble.until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        trouble.failures += 1;
        self.troubled.store(true, Ordering::Relaxed);
        if trouble.failures >= IN_A_ROW {
            self.set_aside(&mut trouble);
        }
    }

    fn unreached_since(&self, asked: Instant) -> Option<String> {
        let trouble = locked(&self.trouble);
        let (at, why) = trouble.unreached.as_ref()?;
        (*at > asked).then(|| why.clone())
    }

    /// While one call finds out whether a worker is back, the others go elsewhere.
    fn try_again(&self) {
        let mut trouble = locked(&self.trouble);
        if trouble.times > 0 {
            trouble.until = Some(Instant::now() + CONNECT);
        }
    }

    fn set_aside(&self, trouble: &mut Trouble) {
        let pause = FIRST_PAUSE * 2_u32.pow(trouble.times.min(6));
        trouble.times += 1;
        self.troubled.store(true, Ordering::Relaxed);
        trouble.until = Some(Instant::now() + pause.min(MAX_PAUSE));
        self.ejections.fetch_add(1, Ordering::Relaxed);
    }

    fn roomy(&self) -> Option<Arc<Link>> {
        let mut links = locked(&self.links);
        links.retain(|link| link.is_usable());
        let full = links.len() >= MAX_LINKS;
        let emptiest = links.iter().min_by_key(|link| link.streams())?;
        (full || emptiest.streams() < MAX_STREAMS).then(|| Arc::clone(emptiest))
    }
}
