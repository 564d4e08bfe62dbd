//! Puts the parts together and runs them until a signal comes or one of them ends.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, stream};
use kube::runtime::controller;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use ramen_crds::McpGroup;
use ramen_group::CidrSet;
use ramen_source::Store;
use ramen_source::git::Git;
use ramen_source::store::Bucket;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::artifacts::Artifacts;
use crate::deploy::Jobs;
use crate::gateways;
use crate::group::build::Network;
use crate::group::{Context, Guarded, Operator, PodsBucket, Runs, Wake, Work, on_error, reconcile};
use crate::http::Pages;
use crate::lease::Holder;
use crate::metrics::Metrics;
use crate::names;
use crate::pods::{self, Pods};
use crate::ports::{self, Leads};
use crate::reload::Push;
use crate::watches::{self, Caches};

/// How often layers that nobody needs are removed.
const SWEEP: Duration = Duration::from_mins(10);
/// Layers this young are left alone: a deploy may be under way.
const YOUNG: Duration = Duration::from_hours(3);
/// Where a pod finds its own namespace.
const OWN_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Runs the operator.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    stop_on_signal(stop.clone())?;
    let client = Client::try_default()
        .await
        .context("there is no way to reach an API server")?;
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let pages = Pages::new(registry);
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let mut servers = JoinSet::new();
    servers.spawn(pages.clone().serve(listener, stop.clone()));

    let (caches, writers) = Caches::new();
    let (wake, runs) = Wake::new();
    let ctx = Arc::new(parts(&args, &client, caches, wake, metrics.clone()).await?);
    let established = wait_for_kind(&client, &args.namespaces);
    let Some(()) = stop.run_until_cancelled(established).await else {
        return Ok(());
    };
    let mut tasks = JoinSet::new();
    watches::start(&client, &args.namespaces, &ctx, writers, &mut tasks);
    pods::start(&client, &args.namespaces, &ctx.pods, &ctx.wake, &mut tasks);
    let listed = async {
        ctx.pods.ready().await;
        ctx.caches.ready().await
    };
    match stop.run_until_cancelled(listed).await {
        None => return Ok(()),
        Some(ready) => ready.context("a watch ended before its first list was done")?,
    }
    let leads = Leads::default();
    let mut ports = ports::open(&args, &ctx, &leads, identity(&args), &stop).await?;
    pages.set_ready(true);
    tracing::info!(groups = ctx.caches.groups.len(), "ready");

    let ended = lead(&args, &client, &ctx, &leads, runs, &stop).await;
    pages.set_ready(false);
    stop.cancel();
    tasks.shutdown().await;
    let closed = async {
        while servers.join_next().await.is_some() {}
        while ports.join_next().await.is_some() {}
    };
    let _ = tokio::time::timeout(Duration::from_secs(5), closed).await;
    ended
}

/// Everything that runs share.
async fn parts(
    args: &Args,
    client: &Client,
    caches: Caches,
    wake: Wake,
    metrics: Metrics,
) -> anyhow::Result<Context> {
    std::fs::create_dir_all(&args.scratch)
        .with_context(|| format!("cannot make {}", args.scratch.display()))?;
    let store = store(args)?;
    let git = Git::new(&args.scratch.join("git"), args.fetches)
        .with_context(|| format!("cannot use {}", args.scratch.display()))?;
    let artifacts = Artifacts::open(store)
        .await
        .context("cannot keep the key for read tokens in the store")?;
    let pods = Pods::default();
    let jobs = Jobs::new(client.clone(), artifacts.clone(), pods.clone());
    let work = Work {
        git,
        scratch: args.scratch.clone(),
        deploy: Arc::new(jobs),
        artifacts,
        reload: Arc::new(Push::new(pods.clone())),
        metrics: metrics.clone(),
    };
    let operator = Operator {
        worker_image: args.worker_image.clone(),
        image_pull_policy: args.image_pull_policy.clone(),
        artifacts_url: args.artifacts_url.clone(),
        bucket: pods_bucket(args)?,
        allow_http: args.allow_http,
        gateways: args
            .gateway_namespace
            .clone()
            .filter(|namespace| !namespace.is_empty()),
        network: Network::new(
            own_namespace(args).ok(),
            args.dns_to.clone().unwrap_or_default().0,
            args.metrics_from.clone().unwrap_or_default().0,
        ),
    };
    let reporter = Reporter {
        controller: names::OPERATOR.to_owned(),
        instance: Some(identity(args)),
    };
    let recorder = Recorder::new(client.clone(), reporter);
    Ok(Context::new(
        client.clone(),
        operator,
        caches,
        pods,
        work,
        wake,
        metrics,
        recorder,
    ))
}

/// The bucket that pods read themselves.
fn pods_bucket(args: &Args) -> anyhow::Result<Option<PodsBucket>> {
    if !args.pods_bucket {
        return Ok(None);
    }
    let address = args.store.to_str().unwrap_or_default();
    if !Bucket::is_address(address) {
        bail!("{} needs a bucket in {}", names::PODS_BUCKET, names::STORE);
    }
    let ranges = CidrSet::parse_list(&args.pods_bucket_cidrs.join(","));
    let ranges = ranges.map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("{}: {}", names::PODS_BUCKET_CIDRS, faults.join("; "))
    })?;
    Ok(Some(PodsBucket {
        address: address.to_owned(),
        secret: args
            .pods_bucket_secret
            .clone()
            .filter(|name| !name.is_empty()),
        ranges,
    }))
}

/// The store, in a folder or a bucket.
fn store(args: &Args) -> anyhow::Result<Store> {
    let place = args.store.to_str().unwrap_or_default();
    let store = if place.contains("://") {
        let bucket = Bucket::new(place, std::env::vars())?;
        Store::in_bucket(&bucket, &args.scratch.join("store"))
    } else {
        Store::open(&args.store)
    };
    store.with_context(|| format!("cannot open the store in {}", args.store.display()))
}

/// Waits for the lease, then writes until it is lost or the process is told to stop.
async fn lead(
    args: &Args,
    client: &Client,
    ctx: &Arc<Context>,
    leads: &Leads,
    runs: Runs,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    if args.lease == "off" {
        ctx.metrics.leads(true);
        leads.begin();
        return control(args, ctx, runs, stop).await;
    }
    let holder = Holder::new(
        client.clone(),
        &own_namespace(args)?,
        &args.lease,
        &identity(args),
    );
    if !holder.acquire(stop).await {
        return Ok(());
    }
    tracing::info!(lease = args.lease, "this replica writes");
    ctx.metrics.leads(true);
    leads.begin();
    // The lease is given back only when nothing is written any more.
    let written = CancellationToken::new();
    let keep = holder.keep(&written);
    let work = async {
        if let Err(error) = control(args, ctx, runs, stop).await {
            return error;
        }
        written.cancel();
        std::future::pending().await
    };
    let ended = tokio::select! {
        kept = keep => kept.map_err(anyhow::Error::from),
        error = work => Err(error),
    };
    ctx.metrics.leads(false);
    ended
}

/// Runs groups as they are woken.
async fn control(
    args: &Args,
    ctx: &Arc<Context>,
    runs: Runs,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let queue = stream::unfold(runs, async |mut runs| {
        let next = runs.next().await?;
        Some((Ok::<_, std::convert::Infallible>(next), runs))
    });
    let queue = queue.take_until(stop.clone().cancelled_owned());
    let config = controller::Config::default()
        .concurrency(args.concurrency)
        .debounce(Duration::from_millis(20));
    let ended = controller_stream(ctx, queue, config).for_each(async |()| {});
    let sweep = sweep(ctx);
    let gateways = gateways::sweep(ctx, &args.namespaces);
    tokio::select! {
        // Runs that are under way come to their end.
        () = ended => {}
        () = sweep => {}
        () = gateways => {}
    }
    Ok(())
}

pub(crate) fn controller_stream<Q>(
    ctx: &Arc<Context>,
    queue: Q,
    config: controller::Config,
) -> impl futures::Stream<Item = ()>
where
    Q: futures::Stream<Item = Result<ObjectRef<Guarded>, std::convert::Infallible>>
        + Send
        + 'static,
{
    let reconciler = |guarded, ctx| Box::pin(reconcile(guarded, ctx));
    let store = ctx.caches.groups.clone();
    controller::applier(
        reconciler,
        on_error,
        Arc::clone(ctx),
        store,
        Box::pin(queue),
        config,
    )
    // Each run tells of itself.
    .map(drop)
}

/// Removes layers that no group needs, now and then.
async fn sweep(ctx: &Arc<Context>) {
    let mut timer = tokio::time::interval(SWEEP);
    timer.tick().await;
    loop {
        timer.tick().await;
        remove_layers(ctx, YOUNG).await;
    }
}

/// Removes layers of this age that no group needs.
async fn remove_layers(ctx: &Context, old: Duration) {
    let keep = match ctx.layers() {
        Ok(keep) => keep,
        // They may need anything.
        Err(unknown) => {
            let first: Vec<String> = unknown.iter().take(5).map(ToString::to_string).collect();
            tracing::warn!(
                groups = unknown.len(),
                first = first.join(", "),
                "old layers stay: it cannot be read what these groups need"
            );
            return;
        }
    };
    if let Err(error) = ctx.work.artifacts.store().prune(&keep, old).await {
        tracing::warn!(%error, "old layers could not be removed");
    }
}

/// Waits until the kind is there.
async fn wait_for_kind(client: &Client, namespaces: &[String]) {
    let api: Api<McpGroup> = match namespaces.first() {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut pause = crate::backoff::Backoff::default();
    loop {
        match api
            .list_metadata(&kube::api::ListParams::default().limit(1))
            .await
        {
            Ok(_) => return,
            Err(error) => tracing::warn!(
                %error,
                "the kind McpGroup cannot be listed; is the chart ramen-crds installed?"
            ),
        }
        tokio::time::sleep(pause.next().min(Duration::from_secs(15))).await;
    }
}

fn identity(args: &Args) -> String {
    let host = || {
        std::fs::read_to_string("/proc/sys/kernel/hostname")
            .map(|name| name.trim().to_owned())
            .unwrap_or_default()
    };
    let name = args.identity.clone().unwrap_or_else(host);
    if name.is_empty() {
        names::OPERATOR.to_owned()
    } else {
        name
    }
}

fn own_namespace(args: &Args) -> anyhow::Result<String> {
    if let Some(namespace) = &args.namespace {
        return Ok(namespace.clone());
    }
    match std::fs::read_to_string(OWN_NAMESPACE) {
        Ok(namespace) => Ok(namespace.trim().to_owned()),
        Err(_) => bail!("outside of a pod, --namespace (or --lease off) is needed"),
    }
}

fn stop_on_signal(stop: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("no signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("no signals")?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop");
        stop.cancel();
    });
    Ok(())
}

#[cfg(test)]
mod tests;
