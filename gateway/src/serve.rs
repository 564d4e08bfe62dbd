//! The program: configuration, listener, signals.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use ramen_listener::{Tls, serve_metrics, tls};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

use crate::callers::Callers;
use crate::config::{Args, Config, Source};
use crate::door::Door;
use crate::gateway::{Gateway, info};
use crate::groups::Groups;
use crate::metrics::Metrics;
use crate::operations::platform::Platform;
use crate::operations::{self, Fixed, Operators};
use crate::recent::Recent;
use crate::{listed, listener};

/// Runs the gateway until a signal; the exit code is 2 for a bad configuration.
pub fn run(args: Args) -> ExitCode {
    let config = match Config::new(args) {
        Ok(config) => config,
        Err(error) => {
            log("info");
            tracing::error!("{error}");
            return ExitCode::from(2);
        }
    };
    log(&config.log);
    let served = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("no async runtime")
        .and_then(|runtime| runtime.block_on(serve(config)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "the gateway ends");
            ExitCode::FAILURE
        }
    }
}

fn log(filter: &str) {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // A second start in one process keeps the first.
    let _ = if std::io::stderr().is_terminal() {
        lines.with_target(false).try_init()
    } else {
        lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .try_init()
    };
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("no signal handler")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("no signal handler")?;
    let groups = Groups::new(config.upstreams);
    let metrics = Arc::<Metrics>::default();
    let platform = discover(config.source, &groups, &metrics).await?;
    let tls = config
        .tls
        .map(|(cert, key)| Tls::read(cert, key, tls::H2_AND_HTTP1))
        .transpose()?
        .map(Arc::new);
    if let Some(tls) = tls.clone() {
        tokio::spawn(async move { tls.watch().await });
    }
    let (stop, stopping) = watch::channel(false);
    let recent = Arc::<Recent>::default();
    let oidc = config.oidc.map(|file| file.counted(&metrics).follow());
    let operators = config.operators.map(|dir| {
        let (oidc, metrics) = (oidc.clone(), Arc::clone(&metrics));
        Operators::read(dir, Vec::new(), oidc, Some(metrics))
    });
    let operations = operations::of_operators(
        operators,
        config.operators_ranges,
        platform,
        &groups,
        &recent,
    )?;
    let gateway = Arc::new(Gateway {
        groups,
        door: Door {
            address: config.address,
            sites: config.sites,
            callers: Callers::new(config.limits),
        },
        call_timeout: config.call_timeout,
        stopping,
        oidc,
        operations: operations.map(|operations| operations.counted(&metrics)),
        recent,
        metrics,
        info: info(),
    });
    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("cannot listen at {}", config.listen))?;
    let address = listener.local_addr().context("no local address")?;
    let mut told = serde_json::json!({ "http": address.to_string(), "pid": std::process::id() });
    if let Some(at) = config.metrics {
        let port = TcpListener::bind(at).await;
        let port = port.with_context(|| format!("cannot listen at {at} for metrics"))?;
        told["metrics"] = port
            .local_addr()
            .context("no local address")?
            .to_string()
            .into();
        let (gateway, tls) = (Arc::clone(&gateway), tls.clone());
        let text = move || {
            if let Some(tls) = &tls {
                gateway.metrics.unusable("certificate", tls.is_stale());
            }
            gateway.metrics.text(&gateway.groups)
        };
        tokio::spawn(serve_metrics(port, text));
    }
    if let Some(file) = &config.address_file {
        tell(file, &told).with_context(|| format!("cannot write {}", file.display()))?;
    }
    tracing::info!(%address, tls = tls.is_some(), "listening");
    let places = ramen_listener::places(config.max_connections);
    let served = listener::serve(listener, gateway, tls, places);
    tokio::pin!(served);
    tokio::select! {
        () = &mut served => return Ok(()),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    stop.send_replace(true);
    tokio::select! {
        () = &mut served => {}
        () = tokio::time::sleep(config.drain) => tracing::warn!("requests were still running"),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Keeps the groups as their source says from now on. What the operations work on comes from there too.
async fn discover(
    source: Source,
    groups: &Groups,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Arc<dyn Platform>> {
    match source {
        Source::File(file) => {
            let reading = listed::read(&file)?;
            groups.replace(&reading.specs);
            let metrics = Arc::clone(metrics);
            tokio::spawn(listed::watch(file, groups.clone(), reading, metrics));
            Ok(Arc::new(Fixed::new(groups.clone())))
        }
        #[cfg(feature = "discovery-kube")]
        Source::Kube { namespaces, own } => {
            let places = crate::discovery::Places {
                namespaces: namespaces.clone(),
                own,
            };
            let discovery = crate::discovery::Discovery::new(places).await?;
            let client = discovery.client().clone();
            let cluster = operations::Cluster::new(client, namespaces, identity());
            // Before anybody asks whether this gateway is ready.
            groups.set_complete(false);
            tokio::spawn(discovery.run(groups.clone()));
            Ok(Arc::new(cluster))
        }
        // Refused with the rest of the configuration.
        #[cfg(not(feature = "discovery-kube"))]
        Source::Kube { .. } => anyhow::bail!("built without the feature discovery-kube"),
    }
}

/// The name of this replica in events: that of its pod.
#[cfg(feature = "discovery-kube")]
fn identity() -> String {
    let name = std::env::var("HOSTNAME").ok();
    name.filter(|name| !name.is_empty())
        .unwrap_or_else(|| "ramen-gateway".to_owned())
}

/// Written whole or not at all: who waits for the file reads it at once.
fn tell(file: &Path, text: &serde_json::Value) -> std::io::Result<()> {
    let new = file.with_extension("new");
    std::fs::write(&new, text.to_string())?;
    std::fs::rename(new, file)
}
