//! The ports that others reach: artifacts and hooks. Every replica answers both, since a Service picks any
//! of them; what only the replica can do that writes is passed on, or put off for a moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use kube::ResourceExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::group::{Context, GroupKey};
use crate::hooks::trace::Traces;
use crate::hooks::{self, Followed, Follows};

/// Whether this replica writes. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leads(Arc<AtomicBool>);

impl Leads {
    /// From now on it does; a replica that loses the lease ends.
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it does.
    pub(crate) fn now(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Opens the ports; they close with the set.
pub(crate) async fn open(
    args: &Args,
    ctx: &Arc<Context>,
    leads: &Leads,
    replica: String,
    stop: &CancellationToken,
) -> anyhow::Result<JoinSet<()>> {
    let listen = async |address| {
        let listener = TcpListener::bind(address).await;
        listener.with_context(|| format!("cannot listen on {address}"))
    };
    let mut ports = JoinSet::new();
    let artifacts = ctx.work.artifacts.clone();
    let wake = ctx.wake.clone();
    artifacts.on_lost(move |group| wake.wake(group));
    let listener = listen(args.artifacts_listen).await?;
    ports.spawn(artifacts.serve(listener, leads.clone(), stop.clone()));
    if let (Some(address), Some(dir)) = (args.hooks_listen.0, &args.hooks_dir) {
        let listener = listen(address).await?;
        let (traces, write) = Traces::new(
            ctx.client.clone(),
            ctx.recorder.clone(),
            ctx.caches.clone(),
            replica,
        );
        ports.spawn(write);
        let groups = Arc::new(KnownGroups {
            ctx: Arc::clone(ctx),
            leads: leads.clone(),
            traces,
        });
        ports.spawn(hooks::serve(listener, dir.clone(), groups, stop.clone()));
    }
    Ok(ports)
}

/// What hooks are matched with.
struct KnownGroups {
    ctx: Arc<Context>,
    leads: Leads,
    traces: Traces,
}

impl hooks::Groups for KnownGroups {
    fn all(&self) -> Vec<Followed> {
        let groups = self.ctx.caches.groups.state();
        let known = groups.iter().filter_map(|guarded| guarded.0.as_ref().ok());
        known
            .map(|group| Followed {
                key: GroupKey::new(group.namespace().unwrap_or_default(), group.name_any()),
                address: group.spec.source.url.clone(),
                follows: Follows::of(group.spec.source.reference.as_ref()),
            })
            .collect()
    }

    fn look(&self, group: &GroupKey, receiver: &str) {
        let leads = self.leads.now();
        if leads {
            self.ctx.wake.look(group);
        }
        self.traces.leave(group, receiver, !leads);
    }

    fn counted(&self, receiver: &str, outcome: &'static str) {
        self.ctx.metrics.hooked(receiver, outcome);
    }
}

#[cfg(test)]
mod tests;
